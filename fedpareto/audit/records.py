"""Clients whose local steps hide single records: what their uploads show of the worst record.

Stand-ins hold records without a gradient and, in one of two worlds, a canary whose gradient is
longer than any norm. Mini-batches, clipping, noise and steps are those of the engine. What a
mechanism does to uploads afterwards can show no more, and takes no part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from fedpareto.audit.base import Points, parts, told
from fedpareto.audit.chances import Draws
from fedpareto.audit.residuals import LOOKED_AT
from fedpareto.audit.sampled import Rounds
from fedpareto.audit.standin import around, seed_of
from fedpareto.contract import Records, Round
from fedpareto.federation import Data, Observer
from fedpareto.federation.block import Block, prepare
from fedpareto.federation.blocks import device_of
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.columns import contract_of
from fedpareto.federation.cost import Cost
from fedpareto.federation.run import run
from fedpareto.federation.setup import Setup
from fedpareto.federation.split import Indices, Split
from fedpareto.federation.steps import Images
from fedpareto.mechanisms import Unprotected, Upload
from fedpareto.privacy.records import worst_uses
from fedpareto.space import FloatArray

CLIENTS = 50  # of a training, each a sample of its own
AT_ONCE = 4  # trainings of a block
OUTPUTS, INPUTS = 10, 64  # those of digits, whose place the records take
SIZE = OUTPUTS * INPUTS
ALONG = np.outer(np.full(OUTPUTS, OUTPUTS**-0.5), np.arange(INPUTS) == 0).ravel()  # a canary's way
FAR = 1e12  # a label so far off that the gradient is longer than any norm, wherever the model is
NOTHING, CANARY, OPPOSITE = range(3)


def made(device: str) -> Images:
    """Return a record without a gradient and two whose gradients are long, and opposite."""
    x = torch.zeros(3, 1, 8, 8, device=device)
    x[CANARY:, 0, 0, 0] = 1.0
    return Images(x, torch.tensor([0.0, -FAR, FAR], device=device), 1.0, 0.0)


@dataclass(frozen=True)
class Line:
    """Lines through zero, which start flat."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        line = nn.Linear(INPUTS, OUTPUTS, bias=False)
        nn.init.zeros_(line.weight)
        return nn.Sequential(nn.Flatten(), line)


@dataclass(frozen=True)
class Terms:
    """How a client of one point uses its records, for whom the ε is the largest."""

    held: int  # records of the client
    steps: int  # of a round
    rounds: int
    noise: float  # on what all steps of a round show, where a record moves one of them by 1
    unit: float  # how far a record moves the model in one step
    rate: float  # the learning rate
    people: int  # records of one person
    shown: Rounds


def terms_of(one: Points) -> Terms:
    """Return how the records of a point are used, as its ε counts them."""
    privacy, columns = one.problem.privacy, one.columns
    records = contract_of(one.problem, columns).records
    assert isinstance(records, Records)
    T, batch = one.rounds, float(columns["batch_size"][0])
    uses = worst_uses(privacy, records, T, one.delta)
    held = uses.size if records.by_chance else int(batch)  # a pass of one step shows most
    steps, people = int(np.max(uses.times)), privacy.records_per_person
    norm = float(columns["record_clipping_norm"][0])
    noise = float(columns["record_noise_multiplier"][0]) * steps**0.5
    rate = batch / norm / (steps * people + 10 * noise)  # so that models stay near 1
    ratio = float(np.max(uses.ratio))
    out = -1.0 if privacy.adjacency == "replace" else 0.0
    shown = Rounds(ratio, T, 1.0, out, 0.0, steps * people)
    return Terms(held, steps, T, noise, rate * norm / batch, rate, people, shown)


class Uploads(Observer):
    """Gives clients their records, with canaries in every other training; keeps what they send."""

    def __init__(self, terms: Terms, trainings: int, planted: bool) -> None:
        self.terms, self.planted = terms, planted
        self.seen = np.zeros((trainings, terms.rounds, CLIENTS, SIZE), np.float32)

    def records(self, repeat: int, client: int, records: Indices) -> Indices:
        if not self.planted:
            return records
        few = self.terms.people
        if repeat % 2 == 0:
            return np.append([CANARY] * few, records[few:])
        replaced = self.terms.shown.out < 0
        return np.append([OPPOSITE] * few, records[few:]) if replaced else records[few:]

    def uploads(
        self, repeat: int, round: int, clients: Indices, takes_part: Tensor, upload: Upload
    ) -> None:
        self.seen[repeat, round, clients] = -upload.values[0].cpu().numpy() / self.terms.unit

    def sums(self, round: int, sums: Tensor, cohorts: Sequence[Cohort]) -> None:
        """Look away: what one client sends is what its records are hidden in."""

    def models(self, round: int, models: Tensor) -> None:
        """Look away, as from sums."""


def uploads(one: Points, terms: Terms, seeds: Sequence[int], planted: bool) -> FloatArray:
    """Train stand-ins of one point; return what uploads show, in steps of a record, [S,T,K,P]."""
    watch = Uploads(terms, len(seeds), planted)
    run(_block(one, terms, seeds), watch)
    return watch.seen.astype(np.float64)


def scores(one: Points, terms: Terms, seeds: Sequence[int]) -> FloatArray:
    """Return the log ratio of likelihoods of each client's uploads in both worlds, [N,2]."""
    found = []
    blocks = parts(len(seeds), AT_ONCE)
    for b, block in enumerate(blocks):
        seen = uploads(one, terms, [seeds[i] for i in block], planted=True)
        ratios = terms.shown.scores(seen @ ALONG, terms.noise).sum(1)  # [S,K]
        found.append(np.stack([ratios[::2].ravel(), ratios[1::2].ravel()], axis=1))
        told(blocks, b)
    return np.concatenate(found)


def noise_of(one: Points, seeds: Sequence[int], rounds: int) -> Draws:
    """Return the noise of uploads without records' gradients, in units of what is stated."""
    terms = terms_of(one)
    terms = replace(terms, rounds=min(terms.rounds, rounds))
    seen = uploads(one, terms, seeds, planted=False)[:, :, :LOOKED_AT] / terms.noise
    places = np.indices(seen.shape[:3]).reshape(3, -1)
    names = ("training", "round", "client")
    return Draws(seen.reshape(-1, SIZE), dict(zip(names, places, strict=True)))


def seeds_for(points: Points, canaries: int, seed: int, again: int) -> list[int]:
    """Return seeds of as many trainings as have so many canaries, and as many without."""
    pairs = -(-canaries // CLIENTS)
    return [seed_of(points.problem, seed, "records", again, i) for i in range(2 * pairs)]


def _block(one: Points, terms: Terms, seeds: Sequence[int]) -> Block:
    """Return a block of stand-ins of one point in which every client comes to every round."""
    problem = one.problem
    training = replace(
        problem.training,
        learning_rate=terms.rate,
        rounds=terms.rounds,
        momentum=0.0,
        sampling="fixed",
        sample_ratio=1.0,
        evaluate_every=terms.rounds,
        loss="mse",
    )
    repeats = tuple(
        Setup(
            Data("digits", clients=1),
            Line(),
            training,
            Unprotected(),
            s,
            Cost(),
            local=problem.local,
        )
        for s in seeds
    )
    settings = {name: torch.tensor(v, dtype=torch.float32) for name, v in one.given.items()}
    settings["sample_ratio"] = torch.ones(1, dtype=torch.float64)
    settings["rounds"] = torch.full((1,), float(terms.rounds))
    settings["learning_rate"] = torch.full((1,), terms.rate)
    plain = prepare(repeats[:1], settings, [Line()], CLIENTS, device_of(problem))
    records = made(plain.device)
    first = replace(records, x=records.x[:1], y=records.y[:1])
    plain = replace(plain, images=records, judge=replace(plain.judge, images=first))
    split = Split(np.full(CLIENTS * terms.held, NOTHING), np.arange(CLIENTS + 1) * terms.held)
    return around(plain, repeats, Round(CLIENTS, np.array([float(CLIENTS)])), split)

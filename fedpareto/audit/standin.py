"""Federations without data: what clients would train is planted, and all else is the study's own.

Cohorts, clipping, noise, sums and the server's step are those of the engine with the mechanism of
the study. Model and data are stand-ins, since what is planted takes the place of what is trained:
so an audit with them costs no privacy, and hardly any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from fedpareto.contract import Round, expected_cohorts
from fedpareto.federation import Data, Federation
from fedpareto.federation.block import Block, facts_of, prepare
from fedpareto.federation.blocks import device_of
from fedpareto.federation.cost import Cost
from fedpareto.federation.judge import Judge
from fedpareto.federation.setup import Setup
from fedpareto.federation.split import Split
from fedpareto.noise import derive, widened

if TYPE_CHECKING:
    from fedpareto.audit.base import Points


class First(nn.Module):
    """Scores from the first number of an input: as few multiplications as can be."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(1, size // 2)
        for p in self.parameters():
            nn.init.zeros_(p)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.flatten(1)[:, :1])
        return out


@dataclass(frozen=True)
class StandIn:
    """A model of so many parameters, which start at zero."""

    size: int

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return First(self.size)


def _setup(problem: Federation, seed: int, size: int, rounds: int) -> Setup:
    """Return what the stand-in federations of one seed share."""
    training = replace(
        problem.training,
        learning_rate=0.1,
        rounds=rounds,
        local_epochs=0,
        local_steps=1,
        batch_size=1,
        momentum=0.0,
        evaluate_every=rounds,
        loss="cross_entropy",
    )
    return Setup(
        Data("digits", clients=1),
        StandIn(size),
        training,
        problem.mechanism,
        seed,
        Cost(),
        server=problem.server,
        private=problem.private,
    )


def stand_in(
    points: Points,
    rows: Sequence[int],
    seeds: Sequence[int],
    size: int,
    room: int,
    rounds: int | None = None,
) -> Block:
    """Return a block of stand-ins for these rows of the points, with room for so many clients.

    Every client holds the same record. Runs have at most so many rounds, all if left out.
    """
    problem, given = points.problem, points.given
    clients, training = problem.data.clients, problem.training
    picked = list(rows)
    longest = min(points.rounds, rounds or points.rounds)
    repeats = tuple(_setup(problem, seed, size, longest) for seed in seeds)
    settings = {name: torch.from_numpy(v[picked]).float() for name, v in given.items()}
    settings["sample_ratio"] = torch.from_numpy(given["sample_ratio"][picked])
    settings["rounds"] = settings["rounds"].clamp_max(longest)
    settings["learning_rate"] = torch.full((len(picked),), 0.1)
    models = [StandIn(size)] * len(picked)
    made = prepare(repeats[:1], settings, models, room, device_of(problem))
    cohorts = expected_cohorts(given["sample_ratio"][picked], clients, training.sampling)
    terms = Round(clients, cohorts, training.sampling, training.weighting)
    split = Split(np.zeros(clients, dtype=np.int64), np.arange(clients + 1))
    return around(made, repeats, terms, split)


def around(made: Block, repeats: tuple[Setup, ...], terms: Round, split: Split) -> Block:
    """Return a block of one stand-in as one of many repeats, whose clients hold what split says."""
    facts = {name: v.to(made.device) for name, v in facts_of(repeats[0], terms).items()}
    S = len(repeats)
    return replace(
        made,
        repeats=repeats,
        terms=terms,
        facts=facts,
        splits=(split,) * S,
        initial=made.initial.expand(S, -1, -1),
        parameters=made.parameters.expand(S, -1),
        exists=None if made.exists is None else made.exists.expand(S, -1, -1),
        judge=of_one_image(made.judge, S),
    )


def of_one_image(judge: Judge, repeats: int) -> Judge:
    """Return a judge who looks at one image: what it says is not used."""
    images = replace(judge.images, x=judge.images.x[:1], y=judge.images.y[:1])
    owner = judge.owner.new_zeros(repeats, 1)
    return replace(judge, images=images, owner=owner, shares=judge.shares.new_ones(repeats, 1))


def room_of(points: Points) -> int:
    """Return how many clients come to a round at the most; if by chance, more than ever do."""
    most = float(points.columns["cohort"].max())
    if points.problem.training.sampling == "poisson":
        most += 8 * most**0.5 + 8
    return min(points.problem.data.clients, int(most))


def seed_of(problem: Federation, seed: int, *path: str | int) -> int:
    """Return the seed of a stand-in: as wide as the study's own on private data."""
    draw = widened if problem.private else derive
    return draw(seed, "audit", *path)

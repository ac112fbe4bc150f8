"""What the tests of sensitivity share: an engine run in which one client does something else in each federation of a block."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import typing
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fedpareto.contract import Round
from fedpareto.errors import SettingError
from fedpareto.federation import Data, Federation, Lr, Training, setup
from fedpareto.federation.blocks import prepared, setup_of
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.columns import contract_of, given_of
from fedpareto.federation.observer import Observer
from fedpareto.federation.run import run
from fedpareto.mechanisms import AddsGaussian, Chain, links_of
from fedpareto.noise import Noise, stream
from fedpareto.privacy import Privacy
from fedpareto.settings import kind_of, rule_of

CLIENTS, ROUNDS, CLIENT, SEED = 4, 3, 1, 5
SIZE = 650  # parameters of the model
WORLDS = ("zero", "long", "opposite", "at the norm", "beyond it", "one huge", "all huge", "infinite", "both infinite", "nan", "all nan", "across the model",
          "absent")
ROWS = [(t, world) for t in range(ROUNDS) for world in WORLDS]  # before round t a client is as in every other world


def examples(kind: type, number: float = 0.3) -> list:
    """Return instances of a mechanism from its declared settings: every option, and every setting that may be left out, alone."""
    hints = typing.get_type_hints(kind)
    choices, optional = {}, []
    for field in dataclasses.fields(kind):
        rule, of_kind = rule_of(field), kind_of(hints[field.name])
        if rule.options:
            choices[field.name] = rule.options
        elif of_kind is float and rule.search:
            assert rule.broken(number) is None, f"{field.name}: {number} {rule.broken(number)}"
            choices[field.name] = (number,)
            if field.default is None:
                optional.append(field.name)
    made = []
    for picked in itertools.product(*choices.values()):
        held = dict(zip(choices, picked, strict=True))
        for only in optional or [None]:
            mine = {name: v for name, v in held.items() if name == only or name not in optional}
            with contextlib.suppress(SettingError):  # two settings that exclude one another
                made.append(kind(**mine))
    for name, values in choices.items():
        tried = {getattr(example, name) for example in made} - {None}
        assert tried == set(values), f"{name}: {tried} of {values} were tried"
    return made


class Silent(Noise):
    """The same draws, but for normal noise, which is zero."""

    def normal(self, size):
        return torch.zeros_like(super().normal(size))


@dataclass(frozen=True)
class Watch:
    """Sends everything as it is, and keeps what entered it: round → client → upload of it alone."""

    seen: ClassVar[dict] = {}

    def protect(self, upload, values, noise):
        for m, client in enumerate(noise.clients):
            sent = None if upload.sent is None else upload.sent[:, m].clone()
            self.seen.setdefault(noise.round, {})[client] = (upload.values[:, m].clone(), upload.count[:, m].clone(), upload.bits[:, m].clone(), sent)
        return upload


@functools.cache
def drawn(*path):
    """Return normal numbers, the same for a path."""
    return torch.randn(SIZE, generator=stream(SEED, *path))


class Worlds(Observer):
    """In the row of a world one client is as in that world, from a round on; all else is the same in every row."""

    def __init__(self, block, norm, sampling):
        self.models_before, self.norm, self.sampling = [block.initial[0]], norm, sampling
        self.uploaded, self.summed, self.came = [{} for _ in range(ROUNDS)], [], []

    def cohort(self, repeat, round, cohort):
        with_client = cohort.joined_by(CLIENT)
        if self.sampling == "fixed":
            return Cohort(with_client.order, cohort.count)
        if round == 0:  # nobody else comes
            with_client = Cohort(with_client.order, np.ones_like(with_client.count))
        if round == ROUNDS - 1:
            with_client = Cohort(with_client.order, np.full_like(with_client.count, CLIENTS))
        n = int(with_client.count[0])
        absent = with_client.without(CLIENT)
        order = np.concatenate([absent.order[: n - 1], [CLIENT], absent.order[n - 1 : -1]])
        here = [not (world == "absent" and round >= t) for t, world in ROWS]
        assert set(order[: n - 1]) == set(absent.order[: absent.count[0]])
        return Cohort(order, np.where(here, n, n - 1))

    def updates(self, repeat, round, clients, updates):
        planted = updates.clone()
        for m, client in enumerate(clients.tolist()):
            planted[:, m] = drawn("planted", round, client)
            if client != CLIENT:
                continue
            for row, (t, world) in enumerate(ROWS):
                if round >= t:
                    planted[row, m] = self.update(world, round, self.models_before[-1][row])
        return planted

    def update(self, world, round, model):
        """Return the update of the client in a world, [P]."""
        direction = drawn("direction", round)
        direction = direction / direction.norm()
        lengths = {"zero": 0.0, "long": 1e3, "opposite": -1e3, "at the norm": self.norm, "beyond it": 1.5 * self.norm, "absent": 1e3}
        if world in lengths:
            return lengths[world] * direction
        if world == "across the model":
            return -2 * model
        whole = {"all huge": -3e38 * torch.ones(SIZE), "both infinite": direction * torch.inf, "all nan": direction * torch.nan}
        if world in whole:
            return whole[world]
        planted = 1e3 * direction
        planted[3] = {"one huge": 3e38, "infinite": torch.inf, "nan": torch.nan}[world]
        return planted

    def uploads(self, repeat, round, clients, takes_part, upload):
        for m, client in enumerate(clients.tolist()):
            self.uploaded[round][client] = upload.values[:, m] * takes_part[:, m, None]

    def sums(self, round, sums, cohorts):
        self.summed.append(sums[0].clone())
        self.came.append(torch.from_numpy(cohorts[0].count.copy()))

    def models(self, round, models):
        self.models_before.append(models[0].clone())


@dataclass(frozen=True)
class Ran:
    """What was seen of one run, by round."""

    entered: list  # [R,K,P] uploads right after the noise that is priced, of clients who took part
    beside: list  # whatever else of these uploads is sent: of each client (count, bits, which numbers)
    uploads: list  # [R,K,P]
    sums: list  # [R,P]
    models: list  # [R,P], before the first round too
    came: list  # [R]
    block: object


def federation(mechanism, sampling="fixed", weighting="uniform", server=None, **privacy):
    training = Training(0.1, rounds=ROUNDS, local_steps=1, batch_size=4, sampling=sampling, weighting=weighting, sample_ratio=0.5,
                        evaluate_every=ROUNDS)
    parts = {} if server is None else {"server": server}
    return Federation(Data("digits", CLIENTS, split="unequal"), Lr(), training, mechanism, (), privacy=Privacy(target_delta=1e-5, **privacy), **parts)


def terms(problem) -> Round:
    return contract_of(problem, problem.columns({}, 1, views=()))


def watched(problem) -> Chain:
    """Return the mechanism with a link that looks on, right after the noise that the contract prices."""
    links = links_of(problem.mechanism)
    whole = terms(problem)
    for place, link in enumerate(links, 1):
        if not isinstance(link, AddsGaussian):
            continue
        here = terms(dataclasses.replace(problem, mechanism=Chain(links[:place])))
        if (here.noise, here.norm) == (whole.noise, whole.norm):
            return Chain((*links[:place], Watch(), *links[place:]))
    raise AssertionError("the contract must price the noise of one link")


def both_ran(problem, monkeypatch) -> tuple[Ran, Ran]:
    """Run the engine on every world at once, so that they share their noise: as it is, and without normal noise."""
    watching = dataclasses.replace(problem, mechanism=watched(problem))
    rows = np.zeros(len(ROWS), dtype=np.int64)
    block = prepared(watching, {}, given_of(watching, {}, 1), rows, [setup_of(watching, SEED)], CLIENTS)
    norm = float(terms(problem).norm[0])
    loud = ran(block, norm)
    with monkeypatch.context() as patch:
        patch.setattr(setup, "Noise", Silent)
        return loud, ran(block, norm)


def ran(block, norm) -> Ran:
    """Run a block once."""
    seen = Worlds(block, norm, block.terms.sampling)
    Watch.seen.clear()
    run(block, seen)
    entered, beside, uploads = [], [], []
    for t in range(ROUNDS):
        entered.append(torch.stack([Watch.seen[t][c][0] for c in range(CLIENTS)], 1))
        beside.append([Watch.seen[t][c][1:] for c in range(CLIENTS)])
        uploads.append(torch.stack([seen.uploaded[t][c] for c in range(CLIENTS)], 1))
    return Ran(entered, beside, uploads, seen.summed, seen.models_before, seen.came, block)


def refused(links) -> bool:
    try:
        Chain(links)
    except SettingError:
        return True
    return False

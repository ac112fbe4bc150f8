"""Canaries: clients with updates of the worst kind, and auditors who look for them in what a view sees.

Federations train with the engine's own code, so that its clipping, noise, sampling and sums are what is audited. Two
rows of a repeat are a pair of neighbours: in row 0 a client plants an update far longer than the clipping norm, in
row 1 it sends nothing, is absent, or plants the opposite. The rows share their noise; repeats share nothing, so that
each repeat is one independent sample of either neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from fedpareto.federation import blocks
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.observer import Observer
from fedpareto.federation.problem import Federation
from fedpareto.federation.run import run
from fedpareto.noise import Noise

DIRECTION = torch.tensor([0.5, -0.5, 0.5, 0.5])  # known to the auditor; it has a part in every parameter
LONG = 100.0  # how many norms a canary is long
AT_ONCE = 250  # repeats of a block


def records():
    """Return a data set as small as can be: what clients train is replaced by what is planted."""
    x, y = np.zeros((20, 1), np.float32), np.arange(20) % 2
    return x, y, x[:2], y[:2]


@dataclass(frozen=True)
class Tiny:
    """A model of four parameters that starts so far along the direction."""

    start: float = 0.0

    def build(self, shape, classes):
        made = nn.Linear(1, 2)
        with torch.no_grad():
            made.weight.copy_(self.start * DIRECTION[:2, None])
            made.bias.copy_(self.start * DIRECTION[2:])
        return made


@dataclass(frozen=True)
class Case:
    """A federation, who looks on, and what the canary does. Values are in norms along the direction."""

    name: str
    view: str
    problem: Federation
    neighbour: str = "zeroed"  # or absent, or opposite
    came: str = "drawn"  # or forced: with the colluders, in every round; or everyone
    rest: float = 0.0  # what every other client plants
    colluders: tuple[int, ...] = ()  # who tell their noise
    canaries: tuple[int, ...] = (0,)  # whose uploads are audited one by one; more than one for the server alone
    secret: bool = False  # whether the auditor may not use who took part
    exact: bool = False  # whether the statistic is Gaussian with the same spread in both worlds
    length: float = LONG

    @property
    def out(self) -> float:
        """What the canary's neighbour plants."""
        return -1.0 if self.neighbour == "opposite" or self.parameters else 0.0

    @property
    def poisson(self) -> bool:
        return self.problem.training.sampling == "poisson"

    @property
    def parameters(self) -> bool:
        """Whether noise hides parameters: then the model starts at the far end, and all but the canary stay there."""
        return getattr(self.problem.mechanism, "of", "update") == "parameters"

    def claim(self) -> float:
        """Return the ε that the search shows."""
        return float(self.problem.columns({}, 1, (self.view,))[f"epsilon_{self.view}"][0])

    def stated(self) -> float:
        """Return the lesser of that and the statement's, which takes seconds."""
        return min(self.claim(), self.problem.guarantee({}, self.view).epsilon)

    def delta(self) -> float:
        return self.problem.privacy.delta(self.problem.data.clients)


class Auditor(Observer):
    """Plants canaries and adds up, round by round, the log-likelihood ratio of what its view sees."""

    def __init__(self, case: Case, seeds: Sequence[int], start: torch.Tensor) -> None:
        self.case, self.seeds, self.before = case, seeds, start
        columns = case.problem.columns({}, 1, ())
        self.sigma, self.norm, self.expected = (float(columns[name][0]) for name in ("sigma", "norm", "cohort"))
        self.clients = case.problem.data.clients
        self.cohorts: tuple[Cohort, ...] = ()
        self.scores = np.zeros((len(seeds), len(case.canaries), 2))

    def cohort(self, repeat, round, cohort):
        case = self.case
        came = cohort.order[: cohort.count[0]].tolist()
        if case.came == "everyone":
            came = cohort.order.tolist()
        elif case.came == "forced":
            must = [0, *case.colluders]
            others = [k for k in cohort.order.tolist() if k not in must]
            if not case.poisson:
                came = must + others[: len(came) - len(must)]
            else:  # where some collude, the fewest to hide among
                came = must if case.colluders else must + [k for k in came if k != 0]
        gone = case.neighbour == "absent" and 0 in came
        if gone:
            came = [k for k in came if k != 0] + [0]
        left = [k for k in cohort.order.tolist() if k not in came]
        return Cohort(np.array(came + left), np.array([len(came), len(came) - gone]))

    def updates(self, repeat, round, clients, updates):
        planted = self._plant(self.case.rest, round).expand_as(updates).clone()
        for place, client in enumerate(clients.tolist()):
            if client in self.case.canaries:
                planted[0, place] = self._plant(1.0, round)
                planted[1, place] = self._plant(self.case.out, round)
        return planted

    def _plant(self, value: float, round: int) -> torch.Tensor:
        """Return an update that clipping makes `value` norms long; the sign changes from round to round."""
        if self.case.parameters:
            return (value + 1.0) * LONG * self.norm * DIRECTION
        return value * self.case.length * self.norm * self._along(round) if value else torch.zeros(len(DIRECTION))

    def _along(self, round: int) -> torch.Tensor:
        """Return the direction of a round: noise that rounds share would cancel out of the statistic."""
        return DIRECTION * (-1) ** round

    def uploads(self, repeat, round, clients, takes_part, upload):
        if self.case.view != "server":
            return
        sent = upload.values
        if self.case.parameters:
            sent = sent + self.before[repeat, :, None]
        seen = (sent.double() @ self._along(round).double()).numpy()  # [2,M]
        spread = self._own(int(takes_part[0].sum()))
        for place, client in enumerate(clients.tolist()):
            if client in self.case.canaries and takes_part[0, place]:
                self.scores[repeat, self.case.canaries.index(client)] += self._known(seen[:, place], 0.0, spread**2)

    def sums(self, round, sums, cohorts):
        self.cohorts = tuple(cohorts)
        if self.case.view == "secagg":
            self._see(round, sums)

    def models(self, round, models):
        if self.case.view == "release":
            self._see(round, (models - self.before).double() * self.expected)
        self.before = models

    def _see(self, round: int, sums: torch.Tensor) -> None:
        """Add what the sums [S,2,P] of a round tell."""
        along = self._along(round).double()
        seen = (sums.double() @ along).numpy()  # [S,2]
        for s, cohort in enumerate(self.cohorts):
            count = cohort.count[0]
            came = cohort.order[:count].tolist()
            x = seen[s]
            if self.case.parameters:
                x = x + count * (self.before[s].double() @ along).numpy()
            told = [k for k in came if k in self.case.colluders]
            own = self._own(count)
            if told:
                x = x - own * float((Noise(self.seeds[s], round, told).normal(len(along)).double() @ along).sum())
            if self.case.secret:
                self.scores[s, 0] += self._secret(x, len(told))
            elif 0 in came:
                self.scores[s, 0] += self._known(x, self.case.rest * (count - 1), own**2 * (count - len(told)))

    def _own(self, count: float) -> float:
        """Return the noise of each of so many clients."""
        return self.sigma * (self.expected / max(count, 1)) ** 0.5 if self.case.poisson else self.sigma

    def _known(self, x: np.ndarray, rest: float, variance: float) -> np.ndarray:
        """Return the log-likelihood ratio of a round in which the canary is known to be."""
        return self._against(x, rest + 1.0, rest + self.case.out, variance)

    def _secret(self, x: np.ndarray, told: int) -> np.ndarray:
        """Return that of a round in which it may be: a ratio of mixtures."""
        case, m, clients = self.case, self.expected, self.clients
        q, variance, before, beside = m / clients, self.sigma**2 * m, 0.0, 0.0
        if not case.poisson:
            q, variance = (m - told) / (clients - len(case.colluders)), self.sigma**2 * (m - told)
            before, beside = case.rest * m, case.rest * (m - 1)
        worlds = [self._against(x, beside + value, before, variance) for value in (1.0, case.out)]
        there, out = (np.logaddexp(np.log1p(-q), np.log(q) + world) for world in worlds)
        return there - out

    def _against(self, x: np.ndarray, one: float, other: float, variance: float) -> np.ndarray:
        """Return log N(x; one) − log N(x; other), both in norms."""
        return (one - other) * self.norm / variance * (x - (one + other) * self.norm / 2)


class Idle(Auditor):
    """Counts the rounds in which the model stays as it was, bit for bit: fewer with one more client to come."""

    def models(self, round, models):
        self.scores[:, 0] -= (models == self.before).all(2).numpy()
        self.before = models


def scores(case: Case, seeds: Sequence[int], auditor: type[Auditor] = Auditor) -> np.ndarray:
    """Train a pair of neighbours for each seed; return the statistic of every canary, [N,2]: in, out."""
    problem, found, made = case.problem, [], {}
    columns = problem.columns({}, 2, ())
    room = problem.data.clients if case.poisson or case.came == "everyone" else int(columns["cohort"][0])
    for i in range(0, len(seeds), AT_ONCE):
        some = list(seeds[i : i + AT_ONCE])
        repeats = tuple(blocks.setup_of(problem, seed) for seed in some)
        if len(some) not in made:
            made[len(some)] = blocks.prepared(problem, {}, columns, np.arange(2), repeats, room)
        # cohorts and noise follow the seeds; the data dealt and the first model do not matter here, or are the same
        block = replace(made[len(some)], repeats=repeats)
        looking = auditor(case, some, block.initial)
        run(block, looking)
        found.append(looking.scores.reshape(-1, 2))
    return np.concatenate(found)

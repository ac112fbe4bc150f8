"""Canaries: clients with updates of the worst kind, and auditors who look for them in what a view sees.

Federations train with the engine's own code, so that its clipping, noise, sampling and sums are what is audited. Two
rows of a repeat are a pair of neighbours: in row 0 a client plants an update far longer than the clipping norm, in
row 1 it sends nothing, is absent, or plants the opposite. The rows share their noise; repeats share nothing, so that
each repeat is one independent sample of either neighbour. Several clients may be canaries at once where what is seen
of one does not depend on the others: the server sees each upload by itself, and in sums canaries lie in orthogonal
directions, where the noise is independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.linalg import hadamard
from torch import nn

from fedpareto.federation import blocks
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.observer import Observer
from fedpareto.federation.problem import Federation
from fedpareto.federation.run import run
from fedpareto.noise import Noise

# orthogonal, known to the auditor, and with a part in every one of 16 parameters; one for each client
DIRECTIONS = torch.from_numpy(hadamard(16) / 4.0).float()
LONG = 100.0  # how many norms a canary is long
AT_ONCE = 250  # repeats of a block


def records():
    """Return a data set as small as can be: what clients train is replaced by what is planted."""
    x, y = np.zeros((20, 1), np.float32), np.arange(20) % 2
    return x, y, x[:2], y[:2]


@dataclass(frozen=True)
class Tiny:
    """A model of 16 parameters that starts so far along the first direction."""

    start: float = 0.0

    def build(self, shape, classes):
        made = nn.Linear(1, 8)
        with torch.no_grad():
            made.weight.copy_(self.start * DIRECTIONS[0, :8, None])
            made.bias.copy_(self.start * DIRECTIONS[0, 8:])
        return made


@dataclass(frozen=True)
class Case:
    """A federation, who looks on, and what canaries do. Values are in norms along a direction."""

    name: str
    view: str
    problem: Federation
    neighbour: str = "zeroed"  # or absent, or opposite
    came: str = "drawn"  # or forced: with the colluders, in every round; or everyone
    rest: float = 0.0  # what every other client plants, if there is one canary
    colluders: tuple[int, ...] = ()  # who tell their noise
    canaries: tuple[int, ...] = (0,)
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
        planted = self._plant(self.case.rest, round, 0).expand_as(updates).clone()
        for place, client in enumerate(clients.tolist()):
            if client in self.case.canaries:
                planted[0, place] = self._plant(1.0, round, client)
                planted[1, place] = self._plant(self.case.out, round, client)
        return planted

    def _plant(self, value: float, round: int, client: int) -> torch.Tensor:
        """Return an update that clipping makes `value` norms long."""
        along = self._along(round, client)
        if self.case.parameters:
            return (value + 1.0) * LONG * self.norm * along
        return value * self.case.length * self.norm * along if value else torch.zeros_like(along)

    def _along(self, round: int, client: int) -> torch.Tensor:
        """Return a client's direction; it turns from round to round, so that noise shared by rounds would cancel out."""
        return DIRECTIONS[0 if self.case.parameters else client] * (-1) ** round

    def uploads(self, repeat, round, clients, takes_part, upload):
        if self.case.view != "server":
            return
        sent = upload.values.double()
        if self.case.parameters:
            sent = sent + self.before[repeat, :, None]
        variance = self._own(int(takes_part[0].sum())) ** 2
        for place, client in enumerate(clients.tolist()):
            if client in self.case.canaries and takes_part[0, place]:
                seen = (sent[:, place] @ self._along(round, client).double()).numpy()  # [2]
                self.scores[repeat, self.case.canaries.index(client)] += self._known(seen, 0.0, variance)

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
        along = torch.stack([self._along(round, k) for k in self.case.canaries]).double().T  # [P,C]
        seen = (sums.double() @ along).numpy()  # [S,2,C]
        for s, cohort in enumerate(self.cohorts):
            count = cohort.count[0]
            came = cohort.order[:count].tolist()
            x = seen[s]
            if self.case.parameters:
                x = x + count * (self.before[s].double() @ along).numpy()
            told = [k for k in came if k in self.case.colluders]
            own = self._own(count)
            if told:
                x = x - own * (Noise(self.seeds[s], round, told).normal(len(along)).double() @ along).sum(0).numpy()
            for i, client in enumerate(self.case.canaries):
                if self.case.secret:
                    self.scores[s, i] += self._secret(x[:, i], len(told))
                elif client in came:
                    rest = self.case.rest * (count - 1)
                    self.scores[s, i] += self._known(x[:, i], rest, own**2 * (count - len(told)))

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

"""Canaries: clients with updates of the worst kind, and an auditor who looks for them.

Two rows of a repeat are a pair of neighbours: in the first a canary plants an update far longer
than the clipping norm, in the second it sends nothing, or the opposite. Rows share their noise,
repeats share nothing, so that each repeat is one independent sample of either neighbour. Several
clients are canaries at once where what is seen of one does not depend on the others: the server
sees each upload by itself, and in sums canaries lie in orthogonal directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import hadamard
from torch import Tensor

from fedpareto.audit.base import Points
from fedpareto.audit.sampled import Rounds
from fedpareto.contract import share_of_noise, stays_secret
from fedpareto.federation import Average, Observer
from fedpareto.federation.blocks import device_of
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.split import Indices
from fedpareto.mechanisms import Randomization, Upload, hides_updates, links_of, noise_comes_last
from fedpareto.noise import Noise
from fedpareto.space import FloatArray

SIZE = 64  # parameters of the stand-in: directions that are orthogonal
# known to the auditor, with a part in every parameter; the last is for those who are no canaries
DIRECTIONS = torch.from_numpy(hadamard(SIZE) / SIZE**0.5).double()
MOST = SIZE - 1


@dataclass(frozen=True)
class Game:
    """Who comes, who plants what, and what the auditor may use. Updates are in clipping norms."""

    view: str
    canaries: tuple[int, ...]
    colluders: tuple[int, ...] = ()  # who tell their noise
    came: str = "drawn"  # or first: the first of all clients, as many as a round has; or everyone
    secret: bool = False  # whether the auditor may not use who took part
    out: float = 0.0  # what a canary's neighbour plants; it plants 1
    rest: float = 0.0  # what every other client plants along the canary's direction
    length: float = 100.0  # how many times longer an update is before it is clipped


def game(points: Points, view: str) -> Game:
    """Return how canaries are played against a view, as the claim counts it.

    That is with the neighbour and the rounds for which the ε of this view is stated.
    """
    problem = points.problem
    mechanism, privacy = problem.mechanism, problem.privacy
    poisson = problem.training.sampling == "poisson"
    centred = hides_updates(mechanism)
    last = noise_comes_last(mechanism)
    wide = privacy.adjacency == "replace" or privacy.unit == "record" or not centred
    lost = 0 if view == "server" else privacy.lost
    colluders = tuple(range(lost))
    out = -1.0 if wide else 0.0
    length = _length(points, centred)
    first = tuple(range(lost, min(problem.data.clients, lost + MOST)))
    if view != "release":
        few = poisson and lost  # the fewest to hide among
        came = "everyone" if poisson and not few else "first"
        return Game(view, first[:1] if few else first, colluders, came, out=out, length=length)
    hidden = (privacy.dropouts, privacy.colluders, last, centred)
    if not stays_secret(problem.training.sampling, *hidden):
        return Game(view, first, colluders, out=out, length=length)
    if poisson:
        return Game(view, first, secret=True, out=out, length=length)
    # another client in its place, and all others as far from the canary as can be
    return Game(view, first[:1], colluders, "drawn", True, -1.0, -1.0, length)


def _length(points: Points, centred: bool) -> float:
    """Return how many norms a canary is long."""
    links = links_of(points.problem.mechanism)
    if any(isinstance(link, Randomization) and link.clipping == "printed" for link in links):
        return 1.0  # what is longer is scaled down further
    return 100.0 if centred else 1e4  # so long that the model it is added to does not turn it


class Auditor(Observer):
    """Plants canaries and adds up the log-likelihood ratio of what its view sees, round by round.

    Rows of a block are pairs of neighbours, two for each point.
    """

    def __init__(self, points: Points, game: Game, seeds: Sequence[int]) -> None:
        self.points, self.game, self.seeds = points, game, seeds
        columns = {name: np.repeat(v, 2) for name, v in points.columns.items()}
        self.sigma, self.norm, self.expected = (columns[n] for n in ("sigma", "norm", "cohort"))
        self.rounds = columns["rounds"]
        self.device = device_of(points.problem)
        self.clients = points.problem.data.clients
        self.poisson = points.problem.training.sampling == "poisson"
        self.of_parameters = not hides_updates(points.problem.mechanism)
        self.averages = isinstance(points.problem.server, Average)
        rows = len(self.sigma)
        self.inside = np.arange(rows) % 2 == 0
        self.before = torch.zeros(len(seeds), rows, SIZE, dtype=torch.float64)
        self.cohorts: tuple[Cohort, ...] = ()
        self.scores = np.zeros((len(seeds), len(game.canaries), rows))
        self.seen = np.zeros(self.scores.shape, dtype=bool)  # whether the canary ever came

    def cohort(self, repeat: int, round: int, cohort: Cohort) -> Cohort:
        count = cohort.count
        if self.game.came == "drawn":
            return cohort
        order = np.arange(self.clients)
        if self.game.came == "everyone":
            count = np.full_like(count, self.clients)
        elif self.poisson:
            count = np.full_like(count, len(self.game.colluders) + 1)
        return Cohort(order, count)

    def updates(self, repeat: int, round: int, clients: Indices, updates: Tensor) -> Tensor:
        game, norm = self.game, torch.from_numpy(self.norm)[:, None, None]
        planted = torch.zeros(updates.shape, dtype=torch.float64)
        elsewhere = game.length if self.of_parameters else 0.0
        values = np.where(self.inside, 1.0, game.out)
        for place, client in enumerate(clients.tolist()):
            if client in game.canaries:
                value = torch.from_numpy(values)[:, None] * self._along([client], round)
                planted[:, place] = game.length * value
            elif game.rest:
                planted[:, place] = game.length * game.rest * self._along(game.canaries, round)
            else:
                planted[:, place] = elsewhere * DIRECTIONS[-1]
        return (planted * norm).to(updates)

    def _along(self, clients: Sequence[int], round: int) -> Tensor:
        """Return the directions [C,P] of canaries.

        They turn from round to round, so that noise shared by rounds would cancel out.
        """
        places = [self.game.canaries.index(k) for k in clients]
        return DIRECTIONS[places] * (-1.0) ** round

    def uploads(
        self, repeat: int, round: int, clients: Indices, takes_part: Tensor, upload: Upload
    ) -> None:
        if self.game.view != "server":
            return
        sent = upload.values.double().cpu()
        if self.of_parameters:
            sent = sent + self.before[repeat, :, None]
        who = [(m, k) for m, k in enumerate(clients.tolist()) if k in self.game.canaries]
        along = self._along([k for _, k in who], round)
        x = torch.einsum("rmp,mp->mr", sent[:, [m for m, _ in who]], along).numpy() / self.norm
        there = takes_part.cpu().numpy()[:, [m for m, _ in who]].T
        z = self._own(self.cohorts_of(repeat, round)) / self.norm
        self._add(repeat, round, [self.game.canaries.index(k) for _, k in who], x, z, there)

    def cohorts_of(self, repeat: int, round: int) -> FloatArray:
        """Return how many come to a round of each row."""
        if self.game.came == "everyone":
            return np.full(len(self.sigma), float(self.clients))
        if self.poisson and self.game.came == "first":
            return np.full(len(self.sigma), float(len(self.game.colluders) + 1))
        return self.expected

    def sums(self, round: int, sums: Tensor, cohorts: Sequence[Cohort]) -> None:
        self.cohorts = tuple(cohorts)
        if self.game.view == "secagg" or (self.game.view == "release" and not self.averages):
            self._see(round, sums.double().cpu())

    def models(self, round: int, models: Tensor) -> None:
        after = models.double().cpu()
        if self.game.view == "release" and self.averages:
            self._see(round, (after - self.before) * torch.from_numpy(self.expected)[:, None])
        self.before = after

    def _see(self, round: int, sums: Tensor) -> None:
        """Add what the sums [S,R,P] of a round tell."""
        along = self._along(self.game.canaries, round)  # [C,P]
        every = range(len(self.game.canaries))
        seen = torch.einsum("srp,cp->scr", sums, along).numpy()
        models = torch.einsum("srp,cp->scr", self.before, along).numpy()
        for s, cohort in enumerate(self.cohorts):
            place = np.argsort(cohort.order)[:, None] < cohort.count  # [K,R]
            told = place[list(self.game.colluders)].sum(0)
            x = seen[s] - self._told(s, round, cohort, along)
            if self.of_parameters:
                x = x + cohort.count * models[s]
            there = place[list(self.game.canaries)]
            if self.game.secret:
                self._add_secret(s, round, x / self.norm, told)
                continue
            z = self._own(cohort.count) * np.sqrt(np.maximum(cohort.count - told, 1)) / self.norm
            self._add(s, round, every, x / self.norm, z, there)

    def _told(self, s: int, round: int, cohort: Cohort, along: Tensor) -> FloatArray:
        """Return the noise that colluders tell, along directions [C,R]."""
        total = np.zeros((len(along), len(self.sigma)))
        for client in self.game.colluders:
            noise = Noise(self.seeds[s], round, [client], self.device).normal(SIZE)
            drawn = noise.double().cpu() @ along.T  # [1,C]
            came = np.flatnonzero(cohort.order == client)[0] < cohort.count
            total += drawn.T.numpy() * self._own(cohort.count) * came
        return total

    def _own(self, count: NDArray[Any]) -> FloatArray:
        """Return the noise of each of so many clients, [R]."""
        if not self.poisson:
            return self.sigma
        own: FloatArray = self.sigma * share_of_noise(self.expected, np.maximum(count, 1))
        return own

    def _add(
        self,
        s: int,
        round: int,
        canaries: Sequence[int],
        x: FloatArray,
        z: FloatArray,
        there: NDArray[np.bool_],
    ) -> None:
        """Add the ratio of what is seen of canaries, x [C,R] in norms at noise z, where there."""
        rest = self.game.rest * (self.expected - 1)
        one, other = rest + 1.0, rest + self.game.out
        ratio = (one - other) / np.square(z) * (x - (one + other) / 2)
        counts = there & (round < self.rounds)
        self.scores[s, list(canaries)] += np.where(counts, ratio, 0.0)
        self.seen[s, list(canaries)] |= counts

    def _add_secret(self, s: int, round: int, x: FloatArray, told: FloatArray) -> None:
        """Add the ratio of a round in which a canary may be, x [C,R]."""
        for r, hidden in enumerate(told):
            terms = self.secret_rounds(r, int(hidden))
            z = self.sigma[r] * (self.expected[r] - hidden) ** 0.5 / self.norm[r]
            if round < self.rounds[r]:
                self.scores[s, :, r] += terms.scores(x[:, r], z)
                self.seen[s, :, r] = True

    def secret_rounds(self, row: int, told: int = 0) -> Rounds:
        """Return what the rounds of a row show where nobody knows who took part."""
        m, T = float(self.expected[row]), int(self.rounds[row])
        rest = self.game.rest
        share = (m - told) / (self.clients - len(self.game.colluders))
        return Rounds(share, T, rest * (m - 1) + 1.0, rest * (m - 1) + self.game.out, rest * m)

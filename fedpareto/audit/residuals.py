"""What each view sees beyond updates that are planted: the noise that is really added."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpareto.audit.base import Points
from fedpareto.audit.chances import Draws
from fedpareto.contract import share_of_noise
from fedpareto.federation import Observer
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.split import Indices
from fedpareto.mechanisms import Randomization, Upload
from fedpareto.space import FloatArray

LENGTHS = (0.0, 3.0, 0.5, 100.0, 1e20)  # of planted updates, in norms: most are to be clipped
LOOKED_AT = 8  # clients of a round whose uploads are looked at


@lru_cache(maxsize=4000)
def direction(client: int, round: int, size: int) -> FloatArray:
    """Return the direction [P] of what a client plants in a round."""
    drawn = np.random.default_rng([client, round]).standard_normal(size)
    return np.asarray(drawn / np.linalg.norm(drawn))


class Residuals(Observer):
    """Plants updates and takes down what each view sees beyond their clipped sum."""

    def __init__(self, points: Points, view: str, size: int) -> None:
        columns = points.columns
        self.view, self.size = view, size
        self.sigma, self.norm, self.expected = (columns[n] for n in ("sigma", "norm", "cohort"))
        self.rounds, self.clients = columns["rounds"], points.problem.data.clients
        self.poisson = points.problem.training.sampling == "poisson"
        mechanism = points.problem.mechanism
        self.zeros = not isinstance(mechanism, Randomization)  # what others make of it is theirs
        printed = isinstance(mechanism, Randomization) and mechanism.clipping == "printed"
        self.power = 2 if printed else 1
        R = len(self.sigma)
        self.rows: list[list[FloatArray]] = [[] for _ in range(R)]
        self.labels: list[list[tuple[int, int, int]]] = [[] for _ in range(R)]
        self.along: list[list[float]] = [[] for _ in range(R)]
        self.came: list[list[NDArray[np.bool_]]] = [[] for _ in range(R)]
        self.waiting: dict[tuple[int, int, int], FloatArray] = {}
        self.before: Tensor | None = None

    def length(self, client: int, round: int) -> float:
        """Return how long an update is, in norms."""
        return 0.0 if self.zeros else LENGTHS[(client + round) % len(LENGTHS)]

    def updates(self, repeat: int, round: int, clients: Indices, updates: Tensor) -> Tensor:
        planted = np.stack(
            [self.length(k, round) * direction(k, round, self.size) for k in clients.tolist()]
        )
        each = self.norm[:, None, None] * planted
        return torch.from_numpy(each.astype(np.float32)).to(updates.device)

    def clipped(self, row: int, client: int, round: int) -> FloatArray:
        """Return what clipping leaves of what a client plants."""
        length = self.length(client, round)
        short = length / max(1.0, length**self.power)
        return np.asarray(self.norm[row] * short * direction(client, round, self.size))

    def uploads(
        self, repeat: int, round: int, clients: Indices, takes_part: Tensor, upload: Upload
    ) -> None:
        if self.view != "server":
            return
        sent, part = upload.values.double().cpu().numpy(), takes_part.cpu().numpy()
        for m, client in enumerate(clients.tolist()[:LOOKED_AT]):
            for r in np.flatnonzero(part[:, m] & (round < self.rounds)):
                beyond = sent[r, m] - self.clipped(int(r), client, round)
                self.waiting[int(r), repeat, client] = beyond

    def sums(self, round: int, sums: Tensor, cohorts: Sequence[Cohort]) -> None:
        for s, cohort in enumerate(cohorts):
            for r in np.flatnonzero(round < self.rounds):
                came = cohort.order[: cohort.count[r]]
                there = np.zeros(self.clients, dtype=bool)
                there[came] = True
                self.came[int(r)].append(there)
                if self.view == "secagg":
                    total = sums[s, r].double().cpu().numpy()
                    self._add_sum(int(r), s, round, came.tolist(), total)
        if self.view == "server":
            self._add_uploads(round, cohorts)
        self.cohorts = cohorts

    def models(self, round: int, models: Tensor) -> None:
        if self.view != "release":
            return
        after = models.double().cpu()
        before = torch.zeros_like(after) if self.before is None else self.before
        for s, cohort in enumerate(self.cohorts):
            for r in np.flatnonzero(round < self.rounds):
                total = (after[s, r] - before[s, r]).numpy() * self.expected[r]
                self._add_sum(int(r), s, round, cohort.order[: cohort.count[r]].tolist(), total)
        self.before = after

    def _add_uploads(self, round: int, cohorts: Sequence[Cohort]) -> None:
        """Take down the uploads of a round, now that it is known who came."""
        for (r, s, client), beyond in self.waiting.items():
            own = self.sigma[r]
            if self.poisson:
                own = own * share_of_noise(self.expected[r], cohorts[s].count[r])
            z = beyond / own
            self.rows[r].append(z)
            self.labels[r].append((s, round, client))
            if self.length(client, round) > 1:
                self.along[r].append(float(z @ direction(client, round, self.size)))
        self.waiting.clear()

    def _add_sum(
        self, row: int, repeat: int, round: int, came: Sequence[int], total: FloatArray
    ) -> None:
        """Take down what a sum holds beyond the clipped updates of who came."""
        for client in came:
            total = total - self.clipped(row, client, round)
        self.rows[row].append(total / (self.sigma[row] * self.expected[row] ** 0.5))
        self.labels[row].append((repeat, round, -1))

    def draws(self, row: int) -> Draws:
        """Return the noise of one point, in units of what is stated."""
        labels = np.array(self.labels[row], dtype=np.int64)
        names = ("training", "round", "client")
        return Draws(np.stack(self.rows[row]), dict(zip(names, labels.T, strict=True)))

"""Three searches by training, and what each costs (Gu 2024, V-D, Tables II and III).

The trainings are given, not run: every round of every training is known, and each search counts
what it would have used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.errors import SettingError
from fedpareto.front import nondominated
from fedpareto.space import FloatArray
from fedpareto.theory.inputs import TOLERANCE, numbers
from fedpareto.theory.law import Rows, table


@dataclass(frozen=True)
class Spending:
    """What a search spent: federations trained, rounds in all, and steps of clients in all."""

    trainings: int
    rounds: int
    client_steps: float = 0.0  # mini-batch steps of all clients together

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            self.trainings + other.trainings,
            self.rounds + other.rounds,
            self.client_steps + other.client_steps,
        )

    def seconds(self, seconds_per_round: float) -> float:
        """Return the time it takes, one training after another (Gu 2024, Eq. 4)."""
        return self.rounds * float(numbers("seconds_per_round", seconds_per_round, above=0))


@dataclass(frozen=True)
class Runs:
    """Trainings to search among: every setting with every seed, measured after every round."""

    sigma: FloatArray  # [n]
    sample_ratio: FloatArray  # [n]
    # [n,seeds,T] test loss after each round; nan where a training diverged
    loss: FloatArray = field(repr=False)
    leakage: FloatArray = field(repr=False)  # [n,T]
    round_steps: FloatArray = field(repr=False)  # [n] mini-batch steps of a round's clients

    @classmethod
    def of(
        cls,
        sigma: ArrayLike,
        sample_ratio: ArrayLike,
        loss: ArrayLike,
        leakage: ArrayLike | None = None,
        round_steps: ArrayLike = 0.0,
    ) -> Runs:
        """Return runs of the settings sigma [n] and sample_ratio [n], after checking them.

        sample_ratio may be one number.
        leakage [n,T] is √(qT)/σ (Eq. 8) unless given. round_steps [n], or one number, is how many
        mini-batch steps the clients of a round take together.
        """
        losses = np.asarray(loss, dtype=np.float64)
        s = numbers("sigma", sigma, above=0)
        q = numbers("sample_ratio", sample_ratio, above=0, most=1)
        if (
            losses.ndim != 3
            or 0 in losses.shape
            or s.shape != losses.shape[:1]
            or q.shape not in ((), s.shape)
        ):
            raise SettingError(
                "runs: must have sigma [n], sample_ratio [n] or one, and loss [n,seeds,T] with "
                f"nothing empty, found {s.shape}, {q.shape} and {losses.shape}."
            )
        q = np.broadcast_to(q, s.shape)
        rounds = np.arange(1, losses.shape[2] + 1)
        if leakage is None:
            leak = np.sqrt(q[:, None] * rounds) / s[:, None]
        else:
            leak = numbers("leakage", leakage, infinite=True)
        if leak.shape != (losses.shape[0], losses.shape[2]):
            raise SettingError(
                f"leakage: must have a number for each setting and round, {losses[:, 0].shape}, "
                f"found {leak.shape}."
            )
        steps = np.broadcast_to(numbers("round_steps", round_steps, least=0), s.shape)
        return cls(s, q, losses, leak, steps)

    def joined(self, other: Runs) -> Runs:
        """Return these runs and others of as many seeds and rounds."""
        names = ("sigma", "sample_ratio", "loss", "leakage", "round_steps")
        both = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names}
        return Runs(**both)

    def spent(self, rounds: NDArray[np.int64]) -> Spending:
        """Return what it takes to train each setting for so many rounds [n], with every seed."""
        seeds = self.loss.shape[1]
        steps = float((rounds * self.round_steps).sum()) * seeds
        return Spending(int((rounds > 0).sum()) * seeds, int(rounds.sum()) * seeds, steps)

    @property
    def mean(self) -> FloatArray:
        """Return the mean test loss over the seeds [n,T]; infinite where a training diverged."""
        mean = self.loss.mean(axis=1)
        return np.where(np.isnan(mean), np.inf, mean)

    def points(self, rows: NDArray[np.int64], rounds: NDArray[np.int64]) -> Rows:
        """Return a table of what settings [p] measured after rounds [p]."""
        return table(
            rounds=rounds,
            sigma=self.sigma[rows],
            sample_ratio=self.sample_ratio[rows],
            loss=self.mean[rows, rounds - 1],
            leakage=self.leakage[rows, rounds - 1],
        )


@dataclass(frozen=True)
class Found:
    """What a search found, and what it cost."""

    points: Rows  # rounds, sigma, sample_ratio, loss, leakage
    cost: Spending


def full_grid(runs: Runs) -> Found:
    """Train everything to the end and keep the non-dominated points (Gu 2024, Algorithm 2)."""
    n, _, T = runs.loss.shape
    y = np.stack([runs.mean.ravel(), runs.leakage.ravel()], axis=1)
    measured = np.flatnonzero(np.isfinite(y).all(axis=1))
    rows, rounds = np.divmod(measured[nondominated(y[measured])], T)
    return Found(runs.points(rows, rounds + 1), runs.spent(np.full(n, T)))


def with_budget(runs: Runs, limits: float | Sequence[float]) -> Found:
    """Find the least loss under each leakage limit ("training with budget", Gu 2024, Eq. 5).

    Every setting trains for as long as the largest limit allows; smaller limits cost nothing more.
    A limit that no setting keeps, or under which all diverge, finds nothing.
    """
    found = []
    given = np.atleast_1d(numbers("limits", limits, above=0))
    T = runs.loss.shape[2]
    for limit in given:
        loss = np.where(runs.leakage <= limit * (1 + TOLERANCE), runs.mean, np.inf)
        if np.isfinite(loss.min()):
            found.append(int(np.argmin(loss)))
    rows, rounds = np.divmod(np.array(found, dtype=np.int64), T)
    allowed = (runs.leakage <= given.max() * (1 + TOLERANCE)).sum(axis=1)  # [n] rounds
    return Found(runs.points(rows, rounds + 1), runs.spent(allowed))


def until_convergence(
    runs: Runs, *, tolerance: float = 0.01, patience: int = 5, whole_front: bool = False
) -> Found:
    """Train every setting until it converges and keep the one that leaks least.

    This is "training until convergence" of Gu 2024, V-D. A setting has converged when its loss has
    not fallen by more than the share `tolerance` for `patience` rounds; leakage counts every round
    trained. With whole_front all converged points that none dominates are kept (Table III).
    """
    least_fall = float(numbers("tolerance", tolerance, least=0))
    stop = np.array([_converged(loss, least_fall, patience) for loss in runs.mean])
    all_points = runs.points(np.arange(len(stop)), stop)
    points = all_points[np.isfinite(all_points["loss"])]
    if whole_front:
        points = points[nondominated(np.stack([points["loss"], points["leakage"]], axis=1))]
    else:
        points = points[np.lexsort((points["loss"], points["leakage"]))[:1]]
    return Found(points, runs.spent(stop))


def _converged(loss: FloatArray, tolerance: float, patience: int) -> int:
    """Return the round [1, T] after which training stops, for the losses [T] of one setting."""
    best = np.inf
    since = 0
    for t, value in enumerate(loss, 1):
        if np.isfinite(best):
            better = value < best * (1 - tolerance)
        else:
            better = np.isfinite(value)
        if better:
            best = value
            since = 0
        else:
            since += 1
        if since >= patience:
            return t
    return len(loss)


def law_cost(
    pre: Spending, rounds: int, settings: int = 1, seeds: int = 1, round_steps: float = 0.0
) -> Spending:
    """Return the cost of the low-cost design: the pre-experiments, then one training for each σ.

    Table II has one σ, Table III several. round_steps is how many mini-batch steps the clients of
    a round of the real federation take together.
    """
    trainings = settings * seeds
    return pre + Spending(trainings, trainings * rounds, trainings * rounds * round_steps)

"""How much to train: which trials once more, and which runs not to their end. It follows from the rows alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedpareto.front import nondominated
from fedpareto.history import History
from fedpareto.optimizers.composite import Composite, known, learn
from fedpareto.problem import Objective, Problem, feasible, limits
from fedpareto.settings import least
from fedpareto.space import FloatArray

SURE = 2.0  # standard errors, or deviations, by which something may be better than it looks
AHEAD = 12  # points that stand for the rest of a run
ROUNDING = 1e-9  # of a value, below which its spread is not noise
Hopeless = Callable[[FloatArray, int, FloatArray], NDArray[np.bool_]]  # points [n,d], a round t, what runs showed [n,t,m] → [n]


def worth_repeating(problem: Problem, history: History, y: FloatArray, runs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which rows of y [n,m], means of so many runs [n], are on the front or could be, were they two standard errors better.

    So long as the noise is not known, all that was measured is; without noise, nothing.
    """
    noise = noise_of(problem, history)
    measured = np.asarray(np.isfinite(y).all(axis=1))
    if np.isnan(noise).any() or not noise.any():
        return measured & bool(np.isnan(noise).any())
    lucky = y - SURE * noise / np.sqrt(runs)[:, None]
    return measured & reaching(problem.objectives, front_of(problem.objectives, history), lucky)


def noise_of(problem: Problem, history: History) -> FloatArray:
    """Return the standard deviation [m] of one training, pooled over all trials; 0 where an objective is known, nan where nothing tells."""
    told = np.isfinite(history.spread).all(axis=1)
    freedom, spread = history.runs[told] - 1, history.spread[told]
    spread = np.where(spread > ROUNDING * np.abs(history.y[told]), spread, 0.0)
    pooled = np.sqrt((freedom[:, None] * spread**2).sum(axis=0) / freedom.sum()) if told.any() else np.full(history.y.shape[1], np.nan)
    return np.where(np.isnan(known(problem, history.x[:1])).any(axis=0), pooled, 0.0) if len(history) else pooled


def front_of(objectives: Sequence[Objective], history: History) -> FloatArray:
    """Return the front [k,m] of all that was measured within limits, on the way too."""
    y = np.vstack([history.y, history.free_y])
    y = y[feasible(objectives, y)]
    return y[nondominated(y)]


def reaching(objectives: Sequence[Objective], front: FloatArray, y: FloatArray) -> NDArray[np.bool_]:
    """Say which rows of y [n,m] are within limits and not beaten by the front [k,m]; to equal it is not enough."""
    beaten = np.any(np.all(front[None] <= y[:, None], axis=2), axis=1)
    return np.asarray((y <= limits(objectives)).all(axis=1) & ~beaten)


def hopeless(problem: Problem, history: History, checkpoints: int) -> Hopeless:
    """Return what says which runs under way are hopeless: nothing ahead is expected to reach the front, were it two deviations better.

    Each run is judged by itself, after the model was told what it showed. Where trials are trained more than once, one that showed a
    point of the front is not hopeless.
    """
    model = learn(problem, history, checkpoints)
    objectives, share = problem.objectives, 1 / float(history.runs.max())
    front = front_of(objectives, history)

    def judge(x: FloatArray, t: int, shown: FloatArray) -> NDArray[np.bool_]:
        return np.array([not _reaches(row, t, y) for row, y in zip(x, shown, strict=True)], dtype=np.bool_)

    def _reaches(point: FloatArray, t: int, shown: FloatArray) -> bool:
        first, judged = _least(problem), np.isfinite(shown).all(axis=1)
        rounds = 1 + np.flatnonzero(judged & (np.arange(1, t + 1) >= first))
        if len(rounds) == 0 or (share < 1 and reaching(objectives, front, shown[rounds - 1]).any()):
            return True  # it showed nothing yet; or a point of the front, which is to be the mean of all its trainings
        told = rounds[np.unique(np.linspace(0, len(rounds) - 1, max(2, checkpoints)).astype(np.int64))]
        ahead = np.unique(np.linspace(t + 1, _last(problem, point), AHEAD).astype(np.int64))
        now: Composite = model.told(_along(problem, point, told), shown[told - 1], share)
        mean, sd = now.predict(_along(problem, point, ahead))
        return bool(reaching(objectives, model.drawn_in(front), mean - SURE * sd).any())

    return judge


def _least(problem: Problem) -> int:
    return int(least(problem.space.variables[_place(problem)]))


def _last(problem: Problem, point: FloatArray) -> int:
    """Return the last round of a point [d]."""
    return int(problem.space.variables[_place(problem)].decode(float(point[_place(problem)])))


def _place(problem: Problem) -> int:
    return problem.space.names.index(problem.free)  # type: ignore[attr-defined]


def _along(problem: Problem, point: FloatArray, rounds: NDArray[np.int64]) -> FloatArray:
    """Return a point [d] at other values [k] of the free variable, [k,d]."""
    x = np.tile(point, (len(rounds), 1))
    x[:, _place(problem)] = [problem.space.variables[_place(problem)].encode(int(r)) for r in rounds]
    return x

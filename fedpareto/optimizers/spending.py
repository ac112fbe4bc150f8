"""How much to train: which trials once more. It follows from the rows alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedpareto.front import nondominated
from fedpareto.history import SURE, History, pooled
from fedpareto.optimizers.composite import known
from fedpareto.problem import Judge, Problem, feasible, judges, limits
from fedpareto.space import FloatArray

ROUNDING = 1e-9  # of a value, below which its spread is not noise


def worth_repeating(problem: Problem, history: History, tried: History) -> NDArray[np.bool_]:
    """Say which rows tried [n] may be on the front but for noise.

    They would be on it were they two standard errors better. So long as the noise is not known,
    these are all that was measured; without noise, none.
    """
    noise = noise_of(problem, history)
    measured = ~tried.failed
    if np.isnan(noise).any() or not noise.any():
        return measured & bool(np.isnan(noise).any())
    lucky = tried.judged - SURE * noise / np.sqrt(tried.runs)[:, None]
    return measured & reaching(judges(problem), front_of(problem, history), lucky)


def noise_of(problem: Problem, history: History) -> FloatArray:
    """Return the standard deviation [m+c] of one training, pooled over all trials.

    It is 0 of what is known, and nan where nothing was trained twice.
    """
    repeated = np.isfinite(history.spread).all(axis=1)
    found = np.full(history.spread.shape[1], np.nan)
    if repeated.any():
        spread = history.spread[repeated]
        spread = np.where(spread > ROUNDING * np.abs(history.judged[repeated]), spread, 0.0)
        found = pooled(spread, history.runs[repeated])
    if len(history) == 0:
        return found
    learned = np.isnan(known(problem, history.x[:1])).any(axis=0)
    return np.where(learned, found, 0.0)


def front_of(problem: Problem, history: History) -> FloatArray:
    """Return the front [k,m] of all that was measured within limits, on the way too."""
    y = np.vstack([history.judged, history.free_judged])
    y = y[feasible(judges(problem), y)][:, : history.y.shape[1]]
    return y[nondominated(y)]


def reaching(asked: Sequence[Judge], front: FloatArray, y: FloatArray) -> NDArray[np.bool_]:
    """Say which rows of y [n,m+c] are within limits, not beaten or equalled by a front [k,m]."""
    goals = y[:, : front.shape[1]]
    beaten = np.any(np.all(front[None] <= goals[:, None], axis=2), axis=1)
    return np.asarray((y <= limits(asked)).all(axis=1) & ~beaten)

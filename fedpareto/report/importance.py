"""Which setting moves what: Sobol' indices of a random forest that is fitted to the trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.optimizers.random import start
from fedpareto.report.choose import Point
from fedpareto.report.points import View
from fedpareto.space import FloatArray
from fedpareto.threads import one_thread

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestRegressor

FEWEST = 20  # trials, for a forest to say anything
MOST = 1500  # trials that it learns from: more change little, and a live page waits for it
TREES = 64
DRAWN = 1024  # pairs of points of the space that indices are estimated from
LEAST = 0.3  # of what the forest did not see, the share that it must explain
WIDE = 100.0  # values that span more than this are taken by their logarithm, as the page draws them


@dataclass(frozen=True)
class Importance:
    """How much of a measure's spread over the whole space comes from each setting.

    The indices are those of Sobol' over the whole space, as in fANOVA (Hutter et al. 2014): alone
    is the share of a setting by itself (first order), total the share with all that it takes part
    in. They are the forest's, which is a guess, so explained stands beside them.
    """

    measure: str
    alone: dict[str, float]
    total: dict[str, float]
    explained: float  # of the spread of trials that a tree did not see (out-of-bag R²)
    log: bool  # whether the measure was taken by its logarithm

    @property
    def holds(self) -> bool:
        """Whether the forest explains enough to be believed."""
        return self.explained >= LEAST


def importances(seen: View) -> list[Importance]:
    """Return the importance of settings for each objective and limit that differs between trials.

    There is none with fewer than 20 trials, or fewer than two settings.
    """
    first: dict[int, Point] = {}
    for point in seen.points:  # a trial stands before its earlier rounds
        first.setdefault(point.trial, point)
    ends = list(first.values())
    names = seen.study.problem.space.names
    if len(ends) < FEWEST or len(names) < 2 or not set(names) <= set(ends[0].settings):
        return []
    every = max(1, -(-len(ends) // MOST))
    kept = ends[::every]
    x = seen.study.problem.space.encode(_columns(kept, names), len(kept))
    found = []
    with one_thread():
        for measure, name in {o.measure: o.name for o in seen.judges}.items():
            y = np.array([p.judged[name] for p in kept])
            finite = np.isfinite(y)
            if finite.sum() >= FEWEST and np.ptp(y[finite]) > 0:
                found.append(_importance(measure, names, x[finite], y[finite]))
    return found


def _columns(points: Sequence[Point], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [p.settings[name] for p in points] for name in names}


def _importance(measure: str, names: Sequence[str], x: FloatArray, y: FloatArray) -> Importance:
    """Return the importance of settings at points x [n,d] for the values y [n] of a measure."""
    from sklearn.ensemble import RandomForestRegressor

    log = bool(y.min() > 0 and y.max() / y.min() > WIDE)
    forest = RandomForestRegressor(TREES, min_samples_leaf=2, oob_score=True, random_state=0)
    forest.fit(x, np.log(y) if log else y)
    alone, total = _indices(forest, x.shape[1])
    return Importance(
        measure,
        dict(zip(names, alone.tolist(), strict=True)),
        dict(zip(names, total.tolist(), strict=True)),
        float(forest.oob_score_),
        log,
    )


def _indices(forest: RandomForestRegressor, d: int) -> tuple[FloatArray, FloatArray]:
    """Return the first-order and total indices [d] of what a forest predicts over the cube.

    Jansen's estimators: Saltelli et al. 2010, Table 2 (c) and (f), Computer Physics Communications
    181, over a Sobol sequence.
    """
    drawn = start("sobol", 2 * d, DRAWN, seed=0)
    a, b = drawn[:, :d], drawn[:, d:]
    at_a, at_b = forest.predict(a), forest.predict(b)
    spread = np.var(np.concatenate([at_a, at_b]))
    alone, total = np.zeros(d), np.zeros(d)
    if spread == 0:
        return alone, total
    for j in range(d):
        mixed = a.copy()
        mixed[:, j] = b[:, j]
        at_mixed = forest.predict(mixed)
        alone[j] = 1 - np.mean((at_b - at_mixed) ** 2) / (2 * spread)
        total[j] = np.mean((at_a - at_mixed) ** 2) / (2 * spread)
    total = np.clip(total, 0.0, 1.0)
    return np.clip(alone, 0.0, total), total


def as_data(seen: View) -> list[dict[str, Any]]:
    """Return the importance of settings as plain data, the form of the page."""
    return [
        {
            "measure": found.measure,
            "log": found.log,
            "explained": round(max(0.0, found.explained), 3),
            "holds": found.holds,
            "alone": {name: round(v, 3) for name, v in found.alone.items()},
            "total": {name: round(v, 3) for name, v in found.total.items()},
        }
        for found in importances(seen)
    ]

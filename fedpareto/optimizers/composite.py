"""What would be measured at a point: known objectives exactly, the others as learned."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedpareto.front import nondominated
from fedpareto.history import History
from fedpareto.optimizers.surrogate import Surrogate, filled, fit
from fedpareto.problem import Knows, Problem, judges, limits, reference
from fedpareto.space import FloatArray

MOST = 2000  # trials that are learned from: the time grows with the cube of their number
ROWS = 400  # at most, that are learned from on the way of all runs together


def known(problem: Problem, x: FloatArray) -> FloatArray:
    """Return what is known without a run at the points x [n,d]: objectives and limits, [n,m+c].

    What has to be measured is nan. What is known but has no value at a point (no ε without noise)
    is infinite there.
    """
    y = np.full((len(x), len(judges(problem))), np.nan)
    if not isinstance(problem, Knows) or len(x) == 0:
        return y
    columns = problem.known(problem.space.decode(x))
    for j, judge in enumerate(judges(problem)):
        if judge.measure in columns:
            column = np.asarray(columns[judge.measure], dtype=np.float64)
            y[:, j] = np.where(np.isnan(column), np.inf, column)
    return y


@dataclass(frozen=True, eq=False)
class Composite:
    """All objectives of a problem, and the limits beside them, as one model."""

    problem: Problem
    learned: dict[int, Surrogate]  # objective or limit → its process

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation [n,m+c] of objectives and limits at x [n,d].

        What is known has no deviation.
        """
        mean = known(self.problem, x)
        sd = np.zeros_like(mean)
        for j, surrogate in self.learned.items():
            mean[:, j], sd[:, j] = surrogate.predict(x)
        return mean, sd

    def front(self, x: FloatArray) -> FloatArray:
        """Return the front [k,m], within limits, of what is expected at the points x [n,d]."""
        y, held = self._within(x)
        return y[held][nondominated(y[held])]

    def best(self, x: FloatArray) -> FloatArray:
        """Return the points [k,d] of that front, or all of x [n,d] where none is within limits."""
        y, held = self._within(x)
        return x[held][nondominated(y[held])] if held.any() else x

    def _within(self, x: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the objectives [n,m] expected at x [n,d], and which rows are within limits."""
        y = self.predict(x)[0]
        held = np.asarray((y <= limits(judges(self.problem))).all(axis=1))
        return y[:, : len(self.problem.objectives)], held

    def believe(self, x: FloatArray) -> Composite:
        """Return the model as if its means had been measured at x [n,d]."""
        return replace(
            self, learned={j: surrogate.believe(x) for j, surrogate in self.learned.items()}
        )


def telling(history: History) -> History:
    """Return the trials to learn from: all, or the front and as many others, spread over time."""
    if len(history) <= MOST:
        return history
    _say_few(len(history))
    measured = np.flatnonzero(~history.failed)
    front = measured[nondominated(history.judged[measured])][-MOST // 2 :]
    others = np.setdiff1d(np.arange(len(history)), front)
    spread = np.linspace(0, len(others) - 1, MOST - len(front)).astype(np.int64)
    return history.only(np.sort(np.concatenate([front, others[spread]])))


def _say_few(trials: int) -> None:
    """Say, once in a process, that not all trials are learned from."""
    if not _said:
        _said.append(trials)
        log = logging.getLogger("fedpareto")
        line = "of %d trials, processes learn from %d: the front, and others spread over all"
        log.warning(line, trials, MOST)


_said: list[int] = []


def learn(problem: Problem, history: History, checkpoints: int = 0) -> Composite:
    """Fit a process to each objective and limit that is not known.

    It learns from every trial and from a few checkpoints of each run.
    """
    given, limit = known(problem, history.x[:1]), limits(judges(problem))
    bound = np.fmax(reference(judges(problem)), np.where(np.isfinite(limit), limit, -np.inf))
    measured, on_the_way = filled(history.judged), history.free_judged
    free = spaced(history, min(checkpoints, ROWS // max(1, len(history))))
    x = np.vstack([history.x, history.free_x[free]])
    run = np.concatenate([np.arange(len(history)), history.free_of[free]])
    learned = {}
    for j in np.flatnonzero(np.isnan(given).any(axis=0)):
        y = np.concatenate([measured[:, j], on_the_way[free, j]])
        keep = np.isfinite(y)
        learned[int(j)] = fit(
            problem.space,
            x[keep],
            compressed(y[keep], bound[j]),
            warp=True,
            runs=history.runs[run[keep]],
        )
    return Composite(problem, learned)


def compressed(y: FloatArray, bound: float) -> FloatArray:
    """Return y [n] with what lies beyond the bound drawn in by a logarithm.

    How bad a useless point is need not be learned well.
    """
    bound = max(bound, float(np.quantile(y, 0.25)))
    unit = bound - float(y.min())
    if unit <= 0:
        return y
    return np.where(y > bound, bound + unit * np.log1p((np.maximum(y, bound) - bound) / unit), y)


def spaced(history: History, count: int, even: bool = False) -> NDArray[np.int64]:
    """Return which rows [e] of what runs showed on the way to use, so many of each run.

    They lie evenly, or closer together at a run's beginning.
    """
    rows = [np.empty(0, dtype=np.int64)]
    if count == 0:
        return rows[0]
    for trial in np.unique(history.free_of):
        mine = np.flatnonzero(history.free_of == trial)
        off = np.abs(history.free_x[mine] - history.x[trial])
        apart = off.sum(axis=1)  # from the run's end, in the one variable in which they differ
        shortest_first = mine[np.argsort(-apart, kind="stable")]
        places = np.geomspace(1, len(mine) + 1, count + 1)[:-1]
        if even:
            places = np.linspace(1, len(mine), count)
        rows.append(shortest_first[np.unique(places.astype(np.int64)) - 1])
    return np.concatenate(rows)

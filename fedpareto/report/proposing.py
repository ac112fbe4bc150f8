"""About how long an optimizer's own work takes, by a few proposals from rows that are made up."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from fedpareto.history import History
from fedpareto.optimizers import Finishes, Random
from fedpareto.problem import Problem, free_variable, judges, reference
from fedpareto.space import FloatArray
from fedpareto.study import Study
from fedpareto.threads import one_thread

FEWEST = 10  # proposals left, below which a few could not be timed to any use
MANY = 40  # proposals left, from which on two places are timed
LONG = 5.0  # seconds of a proposal after which no other is tried
ON_THE_WAY = 10  # rows that a made-up run tells of shorter ones
# Where the mean of two proposals is that of all, if their cost grows by a cubic law: Gauss's places
PLACES = (0.5 - 12**-0.5, 0.5 + 12**-0.5)


def proposing_seconds(
    study: Study, begun: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return about how long it takes to propose the trials that follow those begun.

    Nothing measured is looked at: rows are made up, as many as there will be. 0 for few proposals.
    """
    size = study.optimizer.batch
    first = -(-begun // size)
    left = -(-study.budget // size) - first
    if left < FEWEST:
        return 0.0
    took: list[float] = []
    for place in PLACES if left >= MANY else (0.5,):
        took.append(_timed(study, first + round(place * left), clock))
        if took[-1] > LONG:
            break
    return left * sum(took) / len(took)


def _timed(study: Study, batches: int, clock: Callable[[], float]) -> float:
    """Return the seconds of a proposal that follows so many batches.

    It is asked again with one batch more, and the quicker counts: the first of a process loads
    modules, and an optimizer may go on from what it selected before.
    """
    took = _once(study, batches, clock)
    return took if took > LONG else min(took, _once(study, batches + 1, clock))


def _once(study: Study, batches: int, clock: Callable[[], float]) -> float:
    problem = study.problem
    optimizer = study.optimizer
    history = made_up(problem, optimizer.batch, batches)
    with one_thread():
        began = clock()
        if isinstance(optimizer, Finishes):
            optimizer.finished(problem, history, study.seed)
        optimizer.propose(problem, history, optimizer.batch, study.seed)
        return clock() - began


def made_up(problem: Problem, size: int, batches: int) -> History:
    """Return a history whose objectives trade one another off, each least in a corner of its own.

    Like a search that goes well, it has a front of many points, most of them within the limits.
    """
    n = size * batches
    drawn = Random(batch=n).propose(problem, History.empty(len(problem.space), 0), n, 0)
    x = problem.space.snap(drawn)
    m = len(problem.objectives)
    y = _traded_off(problem, x)
    batch = np.repeat(np.arange(batches), size)
    history = History(x, y[:, :m], batch, limited=y[:, m:])
    free = free_variable(problem)
    return history if free is None else _told(problem, history, problem.space.names.index(free))


def _traded_off(problem: Problem, x: FloatArray) -> FloatArray:
    """Return values [n,m+c] between 0 and a little above what is still of use."""
    worst = reference(judges(problem))
    d = max(1, x.shape[1])
    corners = np.array([[(i >> j) % 2 for j in range(x.shape[1])] for i in range(len(worst))])
    away = np.sqrt(((x[:, None] - corners.reshape(len(worst), -1)) ** 2).sum(axis=2) / d)
    return np.asarray(1.2 * away * worst)


def _told(problem: Problem, history: History, free: int) -> History:
    """Return the history with what its runs showed on the way."""
    of = np.repeat(np.arange(len(history)), ON_THE_WAY)
    x = history.x[of]
    x[:, free] *= np.tile(np.arange(ON_THE_WAY) / ON_THE_WAY, len(history))
    x = problem.space.snap(x)
    y = _traded_off(problem, x)
    m = history.y.shape[1]
    return History(
        history.x,
        history.y,
        history.batch,
        x,
        y[:, :m],
        of,
        limited=history.limited,
        free_limited=y[:, m:],
    )

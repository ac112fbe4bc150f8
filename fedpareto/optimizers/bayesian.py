"""Bayesian optimization by expected hypervolume improvement that learns only what is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedpareto.front import hypervolume
from fedpareto.history import History
from fedpareto.noise import derive, rng
from fedpareto.optimizers.candidates import climb, pool
from fedpareto.optimizers.composite import Composite, known, learn, spaced, telling
from fedpareto.optimizers.improvement import boxes, expected_improvement, probability_within
from fedpareto.optimizers.random import start
from fedpareto.optimizers.spending import worth_repeating
from fedpareto.optimizers.surrogate import torch_alone
from fedpareto.problem import Problem, free_variable, judges, limits, reference
from fedpareto.settings import least, setting
from fedpareto.space import FloatArray

DESIGN = 4096  # points that the first batch is chosen from
LEADERS = 64  # of the candidates, that the search for the best goes on from
BINS = 8  # into which each known objective is cut
PATH = 12  # points that stand for all that a run tells on the way
WORTHWHILE = (
    0.1  # a run goes on while its end is expected to add this share of the best point's gain
)


@dataclass(frozen=True)
class Bayesian:
    """Learn what has to be measured, use what is known, and propose what adds most to the front.

    Leakage, ε and bytes that follow from the settings (`known` of the problem) are never modelled,
    and their limits hold before any training (Olofsson et al. 2019). Every other objective has a
    Gaussian process, which also learns from checkpoints along a run.
    """

    asks_known: ClassVar[bool] = True
    batch: int = setting(5, help="points proposed at once", at_least=1, at_most=1000, search=False)
    start: int = setting(
        5,
        help="points chosen before anything is learned, spread over what is known",
        at_least=1,
        at_most=10_000,
        search=False,
    )
    candidates: int = setting(
        3000,
        help="points among which each next one is sought",
        at_least=10,
        at_most=1_000_000,
        search=False,
    )
    checkpoints: int = setting(
        20,
        help="at most, rounds of a run that are learned from, beside its last",
        at_least=0,
        at_most=1000,
        search=False,
    )
    tolerance: float = setting(
        0.0,
        help="stop when the next point is expected to raise the hypervolume by less than this "
        "fraction of it; "
        "0: never",
        at_least=0,
        at_most=1,
        search=False,
    )
    repeat_all: bool = setting(
        True,
        help="train every trial as often as the study's repeats say; false: again only while "
        "noise may hide that it is on the front",
        search=False,
    )

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        if len(problem.space) == 0:
            return np.empty((n, 0))
        if len(history) < self.start or history.failed.all():
            made = design(problem, n + len(history.pending), seed, len(history), self.start)
            return apart(made, history.pending)
        with torch_alone(seed):
            return self._chosen(problem, history, n, seed)[0]

    def finished(self, problem: Problem, history: History, seed: int) -> bool:
        """Say whether the next point is expected to add less than the tolerance to the front."""
        if self.tolerance == 0 or len(problem.space) == 0:
            return False
        if len(history) < self.start or history.failed.all():
            return False
        with torch_alone(seed):
            _, gains, found = self._chosen(problem, history, 1, seed)
        return found > 0 and max(gains) < self.tolerance * found

    def worth_repeating(
        self,
        problem: Problem,
        history: History,
        tried: History,
    ) -> NDArray[np.bool_]:
        """Say which of the points tried [n] to train again.

        They are all of the first ones, so that the noise is known, then those where it matters.
        """
        if self.repeat_all or len(history) < self.start:
            return np.ones(len(tried), dtype=np.bool_)
        return worth_repeating(problem, history, tried)

    def _chosen(
        self, problem: Problem, history: History, n: int, seed: int
    ) -> tuple[FloatArray, list[float], float]:
        """Return the next points [n,d], what each is expected to gain, and the hypervolume so far.

        Each is the best once those before it are believed to be as predicted.
        """
        told = telling(history)
        model = learn(problem, told, self.checkpoints)
        draw = rng(seed, "bayesian", len(history))
        seen = np.vstack([told.x[~told.failed], told.free_x[spaced(told, PATH, even=True)]])
        found = hypervolume(model.front(seen), reference(problem.objectives))
        for point in history.pending:  # what is under way is believed to be as predicted
            path = on_the_way(problem, point)
            model = model.believe(path)
            seen = np.vstack([seen, path])
        front = model.front(seen)
        options = pool(
            problem.space,
            model.best(seen),
            self.candidates,
            derive(seed, "pool", len(history)),
            draw,
        )
        taken = history.tried
        gains: list[float] = []
        for _ in range(n):
            score = _Score(model, front, taken, options)
            point = _prolonged(problem, climb(problem.space, score.leaders, score, draw), score)
            gains.append(float(score.gain(point[None])[0]))
            path = on_the_way(problem, point)
            taken = np.vstack([taken, point])
            seen = np.vstack([seen, path])
            model = model.believe(path)
            front = model.front(seen)
        return taken[history.asked :], gains, found


class _Score:
    """What each point is worth now.

    Where none is expected to add anything, those most likely to come within bounds lead.
    """

    def __init__(
        self, model: Composite, front: FloatArray, taken: FloatArray, options: FloatArray
    ) -> None:
        asked = judges(model.problem)
        corner = reference(model.problem.objectives)
        self.model = model
        self.taken = {row.tobytes() for row in taken}
        self.limits = limits(asked)
        self.bounds = np.minimum(self.limits, reference(asked))
        self.lower, self.upper = boxes(front, corner)
        gain = self.gain(options)
        self.nothing_to_gain = not (gain > 0).any()
        worth = self(options) if self.nothing_to_gain else self._last_if_taken(options, gain)
        self.leaders = options[np.argsort(-worth, kind="stable")[:LEADERS]]

    def gain(self, x: FloatArray) -> FloatArray:
        """Return the hypervolume [n] that each point of x [n,d] is expected to add."""
        mean, sd = self.model.predict(x)
        return expected_improvement(mean, sd, self.limits, self.lower, self.upper)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the worth [n] of x [n,d]; a point proposed before comes last."""
        if not self.nothing_to_gain:
            return self._last_if_taken(x, self.gain(x))
        mean, sd = self.model.predict(x)
        return self._last_if_taken(x, probability_within(mean, sd, self.bounds))

    def _last_if_taken(self, x: FloatArray, worth: FloatArray) -> FloatArray:
        """Return the worth [n] of x [n,d], lowered to -inf for points proposed before."""
        again = np.array([row.tobytes() in self.taken for row in x], dtype=bool)
        return np.where(again, -np.inf, worth)


def on_the_way(problem: Problem, point: FloatArray) -> FloatArray:
    """Return the point [d] and, where a run tells shorter ones, a few of those: [k,d]."""
    free = free_variable(problem)
    if free is None:
        return point[None]
    place = problem.space.names.index(free)
    low = problem.space.variables[place].encode(least(problem.space.variables[place]))
    path = np.tile(point, (PATH, 1))
    path[:, place] = np.linspace(low, point[place], PATH)
    return np.unique(problem.space.snap(path), axis=0)


def _prolonged(problem: Problem, point: FloatArray, score: _Score) -> FloatArray:
    """Return the point [d] with its run made longer, as long as its end is still worth something.

    A longer run tells the shorter ones too, where the problem can.
    """
    free = free_variable(problem)
    if free is None or score.nothing_to_gain:
        return point
    place = problem.space.names.index(free)
    longer = np.tile(point, (PATH, 1))
    longer[:, place] = np.linspace(point[place], 1.0, PATH)
    longer = problem.space.snap(longer)
    worth = score(longer)
    return np.asarray(longer[np.flatnonzero(worth >= WORTHWHILE * worth[0])[-1]])


def design(problem: Problem, n: int, seed: int, skip: int = 0, total: int = 0) -> FloatArray:
    """Return n first points [n,d] of `total`, after `skip` others, before anything is learned.

    They are spread over what is known within limits, and over the cube. Where a long run tells what
    short ones would, runs have at least half their length. Where nothing is known it is a Sobol
    sequence.
    """
    space = problem.space
    free = np.array([v.name == free_variable(problem) for v in space.variables])
    x = start("sobol", len(space), DESIGN, seed)
    x = space.snap(np.where(free, (1 + x) / 2, x))
    y = known(problem, x)
    known_here = np.asarray(~np.isnan(y).any(axis=0))
    if not known_here.any():
        return start("sobol", len(space), n, seed, skip)
    y = y[:, known_here]
    asked = [o for o, t in zip(judges(problem), known_here, strict=True) if t]
    bounds = np.minimum(limits(asked), reference(asked))
    excess = np.maximum(y - bounds, 0.0).sum(axis=1)
    nearest = float(np.sort(excess)[min(skip + n, len(x)) - 1])  # where too few are within
    inside = excess <= max(0.0, nearest)
    x = x[inside]
    y = np.where(np.isfinite(y[inside]), y[inside], np.finfo(np.float64).max / 4)
    return _spread(_unit(y), x, max(total, skip + n), seed)[skip : skip + n]


def apart(x: FloatArray, others: FloatArray) -> FloatArray:
    """Return x [n,d] without the one nearest to each of others [p,d]."""
    for point in others:
        x = np.delete(x, np.argmin(((x - point) ** 2).sum(axis=1)), axis=0)
    return x


def _unit(y: FloatArray) -> FloatArray:
    """Return y [n,m] with each column scaled to [0, 1]."""
    low, high = y.min(axis=0), y.max(axis=0)
    return np.asarray((y - low) / np.where(high > low, high - low, 1.0))


def _spread(y: FloatArray, x: FloatArray, n: int, seed: int) -> FloatArray:
    """Return n rows of x [k,d] spread over y [k,m] first, and over x as well.

    They are the nearest to the centres of as many clusters.
    """
    from sklearn.cluster import KMeans

    where = np.hstack([y / np.sqrt(y.shape[1]), 0.3 * x / np.sqrt(x.shape[1])])
    if len(np.unique(where, axis=0)) < n:
        return x[np.arange(n) % len(x)]
    _, bin_, count = np.unique(
        np.minimum((y * BINS).astype(np.int64), BINS - 1),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    # Every part of what is known weighs the same, however much of the cube leads there.
    even = 1 / count[bin_]
    clusters = KMeans(n, n_init=2, random_state=derive(seed, "design") % 2**32)
    centres = clusters.fit(where, sample_weight=even).cluster_centers_
    return x[[int(np.argmin(((where - c) ** 2).sum(axis=1))) for c in centres]]

"""Bayesian optimization that learns only what is not known: expected hypervolume improvement over known and learned objectives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpareto.front import hypervolume, nondominated
from fedpareto.history import History
from fedpareto.noise import derive, rng
from fedpareto.optimizers.candidates import climb, pool
from fedpareto.optimizers.composite import Composite, known, learn
from fedpareto.optimizers.improvement import boxes, expected_improvement, probability_within
from fedpareto.optimizers.random import start
from fedpareto.optimizers.surrogate import torch_alone
from fedpareto.problem import Problem, limits, reference
from fedpareto.settings import setting
from fedpareto.space import FloatArray

DESIGN = 4096  # points that the first batch is chosen from


@dataclass(frozen=True)
class Bayesian:
    """Learn what has to be measured, use what is known as it is, and propose what adds most to the front.

    Leakage, ε and bytes that follow from the settings (`known` of the problem) are never modelled, and their limits hold before any
    training (Olofsson et al. 2019). Every other objective has a Gaussian process, which also learns from checkpoints along a run.
    """

    batch: int = setting(5, help="points proposed at once", at_least=1, at_most=1000, search=False)
    start: int = setting(5, help="points chosen before anything is learned, spread over what is known", at_least=1, at_most=10_000,
                         search=False)
    candidates: int = setting(3000, help="points among which each next one is sought", at_least=10, at_most=1_000_000, search=False)
    checkpoints: int = setting(20, help="at most, rounds of a run that are learned from, beside its last", at_least=0, at_most=1000, search=False)
    tolerance: float = setting(0.0, help="stop when the next point is expected to add less than this share to the hypervolume; 0: never",
                               at_least=0, at_most=1, search=False)

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        if len(problem.space) == 0:
            return np.empty((n, 0))
        if len(history) < self.start or history.failed.all():
            return design(problem, n, seed, skip=len(history))
        with torch_alone(seed):
            return self._chosen(problem, history, n, seed)[0]

    def finished(self, problem: Problem, history: History, seed: int) -> bool:
        """Say whether the next point is expected to add less than the tolerance to the hypervolume found so far."""
        if self.tolerance == 0 or len(problem.space) == 0 or len(history) < self.start or history.failed.all():
            return False
        with torch_alone(seed):
            _, gains, found = self._chosen(problem, history, 1, seed)
        return found > 0 and max(gains) < self.tolerance * found

    def _chosen(self, problem: Problem, history: History, n: int, seed: int) -> tuple[FloatArray, list[float], float]:
        """Return points [n,d], each the best once those before it are believed to be as predicted; their gains; the hypervolume so far."""
        model = learn(problem, history, self.checkpoints)
        draw = rng(seed, "bayesian", len(history))
        x = history.x[~history.failed]
        corner, within = reference(problem.objectives), limits(problem.objectives)
        mean = model.predict(x)[0]
        held = (mean <= within).all(axis=1)
        best = x[held][nondominated(mean[held])] if held.any() else x
        options = pool(problem.space, best, self.candidates, derive(seed, "pool", len(history)), draw)
        taken, gains = history.x, []
        found = hypervolume(mean[held], corner)
        for _ in range(n):
            front = model.predict(np.vstack([x, taken[len(history) :]]))[0]
            score = _Score(model, front[(front <= within).all(axis=1)], taken, options)
            point = climb(problem.space, score.sorted(options), score, draw)
            gains.append(float(score.gain(point[None])[0]))
            taken = np.vstack([taken, point])
            model = model.believe(point[None])
        return taken[len(history) :], gains, found


class _Score:
    """What each point is worth now; where none is expected to add anything, those most likely to come within bounds lead."""

    def __init__(self, model: Composite, front: FloatArray, taken: FloatArray, options: FloatArray) -> None:
        objectives = model.problem.objectives
        self.model, self.taken = model, {row.tobytes() for row in taken}
        self.limits, self.bounds = limits(objectives), np.minimum(limits(objectives), reference(objectives))
        self.lower, self.upper = boxes(front, reference(objectives))
        self.hopeless = not (self.gain(options) > 0).any()

    def gain(self, x: FloatArray) -> FloatArray:
        """Return the hypervolume [n] that each point of x [n,d] is expected to add."""
        mean, sd = self.model.predict(x)
        return expected_improvement(mean, sd, self.limits, self.lower, self.upper)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the worth [n] of x [n,d]; a point proposed before comes last."""
        worth = probability_within(*self.model.predict(x), self.bounds) if self.hopeless else self.gain(x)
        again = np.array([row.tobytes() in self.taken for row in x], dtype=bool)
        return np.where(again, -np.inf, worth)

    def sorted(self, x: FloatArray, keep: int = 64) -> FloatArray:
        """Return the best of x [n,d], best first."""
        return x[np.argsort(-self(x), kind="stable")[:keep]]


def design(problem: Problem, n: int, seed: int, skip: int = 0) -> FloatArray:
    """Return n first points [n,d], after `skip` others: spread over what is known within limits, and over the cube.

    Without known objectives it is a Sobol sequence.
    """
    space = problem.space
    x = space.snap(start("sobol", len(space), DESIGN, seed))
    y = known(problem, x)
    told = np.asarray(~np.isnan(y).any(axis=0))
    if not told.any():
        return start("sobol", len(space), n, seed, skip)
    y, objectives = y[:, told], [o for o, t in zip(problem.objectives, told, strict=True) if t]
    excess = np.maximum(y - np.minimum(limits(objectives), reference(objectives)), 0.0).sum(axis=1)
    inside = excess <= max(0.0, float(np.sort(excess)[min(skip + n, len(x)) - 1]))  # the nearest, where too few are within
    x, y = x[inside], np.where(np.isfinite(y[inside]), y[inside], np.finfo(np.float64).max / 4)
    return _spread(_unit(y), x, skip + n)[skip:]


def _unit(y: FloatArray) -> FloatArray:
    """Return y [n,m] with each column scaled to [0, 1]."""
    low, high = y.min(axis=0), y.max(axis=0)
    return np.asarray((y - low) / np.where(high > low, high - low, 1.0))


def _spread(y: FloatArray, x: FloatArray, n: int) -> FloatArray:
    """Return n rows of x [k,d], each as far as possible from those before it, in y [k,m] first and in x as well."""
    where = np.hstack([y / np.sqrt(y.shape[1]), 0.3 * x / np.sqrt(x.shape[1])])
    chosen = [int(np.argmin(((where - np.median(where, axis=0)) ** 2).sum(axis=1)))]
    gap = np.full(len(x), np.inf)
    while len(chosen) < n:
        gap = np.minimum(gap, ((where - where[chosen[-1]]) ** 2).sum(axis=1))
        chosen.append(int(np.argmax(gap)))
    return np.asarray(x[chosen])

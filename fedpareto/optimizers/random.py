"""Search at random: uniform points, or a scrambled Sobol sequence that fills the cube evenly."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import scipy

from fedpareto.history import History
from fedpareto.noise import derive, rng
from fedpareto.problem import Problem
from fedpareto.settings import setting
from fedpareto.space import Float, FloatArray, Space


@dataclass(frozen=True)
class Random:
    """Propose points without looking at what was measured."""

    sequence: str = setting(
        "sobol",
        help="sobol fills the cube evenly; uniform draws each point on its own",
        options=("sobol", "uniform"),
        search=False,
    )
    batch: int = setting(
        20, help="points proposed at once", at_least=1, at_most=100_000, search=False
    )

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        return start(self.sequence, len(problem.space), n, seed, skip=history.asked)


def first(space: Space, sequence: str, n: int, seed: int, skip: int = 0) -> FloatArray:
    """Return n points [n,d] of a first generation, after `skip`.

    A variable with a mean and a spread has them from a normal distribution cut to its range.
    """
    x = start(sequence, len(space), n, seed, skip)
    for j, variable in enumerate(space.variables):
        if isinstance(variable, Float) and variable.mean is not None:
            x[:, j] = _around(variable, x[:, j])
    return x


def _around(variable: Float, u: FloatArray) -> FloatArray:
    """Return the places in [0, 1] of the quantiles u [n] of a variable's first distribution."""
    assert variable.mean is not None
    assert variable.spread is not None
    ends = (np.array([variable.low, variable.high]) - variable.mean) / variable.spread
    below, above = scipy.special.ndtr(ends)
    values = variable.mean + variable.spread * scipy.special.ndtri(below + u * (above - below))
    inside = np.clip(values, variable.low, variable.high)
    return np.array([variable.encode(float(value)) for value in inside])


def start(sequence: str, d: int, n: int, seed: int, skip: int = 0) -> FloatArray:
    """Return n points [n,d] of a sequence, after the first `skip`."""
    if sequence == "uniform" or d == 0 or d > scipy.stats.qmc.Sobol.MAXDIM:
        return rng(seed, "random", skip).random((n, d))
    engine = scipy.stats.qmc.Sobol(
        d,
        scramble=True,
        rng=derive(seed, "sobol"),
        bits=max(30, math.ceil(math.log2(skip + n + 1))),
    )
    if skip:
        engine.fast_forward(skip)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it would like a power of two
        return np.asarray(engine.random(n))

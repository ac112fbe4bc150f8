"""A grid (Gu 2024, Algorithm 2): every combination of a few values per variable."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedpareto.history import History
from fedpareto.optimizers.random import start
from fedpareto.problem import Problem, free_variable
from fedpareto.settings import setting
from fedpareto.space import Choice, FloatArray, Space, Variable


@dataclass(frozen=True)
class Grid:
    """Measure every combination of a few values of each variable.

    Where one run tells all shorter ones, each run has its full length. Points come in an order that
    jumps about the grid, so that part of it is spread too. After the last, a Sobol sequence goes
    on.
    """

    points: int = setting(
        5,
        help="values per variable; a choice has all of its own",
        at_least=1,
        at_most=100_000,
        search=False,
    )
    batch: int = setting(
        20, help="points proposed at once", at_least=1, at_most=100_000, search=False
    )

    def propose(self, problem: Problem, history: History, n: int, seed: int) -> FloatArray:
        space = problem.space
        done = history.asked
        free = free_variable(problem)
        values = [self._values(v, free) for v in space.variables]
        total = math.prod(len(v) for v in values)
        rows = _jumping(done, min(done + n, total), total)
        x = np.empty((len(rows), len(space)))
        for i, row in enumerate(rows):
            x[i] = [v[p] for v, p in zip(values, _places(row, values), strict=True)]
        rest = start("sobol", len(space), n - len(rows), seed, skip=max(0, done - total))
        return np.vstack([x, _at_largest(space, rest, free)])

    def _values(self, variable: Variable, free: str | None) -> FloatArray:
        """Return the places of a variable's values on the grid, in the unit interval."""
        if variable.name == free:
            return np.ones(1)
        if isinstance(variable, Choice):
            return (np.arange(variable.size) + 0.5) / variable.size
        places = np.linspace(0, 1, self.points) if self.points > 1 else np.array([0.5])
        return np.unique([variable.encode(variable.decode(float(u))) for u in places])  # type: ignore[arg-type]


def _at_largest(space: Space, x: FloatArray, free: str | None) -> FloatArray:
    return np.where([v.name == free for v in space.variables], 1.0, x)


def _jumping(begin: int, end: int, total: int) -> list[int]:
    """Return the begin-th to the end-th of `total` places, in an order that jumps about.

    Each step is about 0.618 × total, and every place comes once.
    """
    step = max(1, round(total * (math.sqrt(5) - 1) / 2))
    while math.gcd(step, total) > 1:
        step += 1
    return [i * step % total for i in range(begin, end)]


def _places(row: int, values: list[FloatArray]) -> list[int]:
    """Return the place of a row of the grid on each variable."""
    out = []
    for v in values:
        row, place = divmod(row, len(v))
        out.append(place)
    return out

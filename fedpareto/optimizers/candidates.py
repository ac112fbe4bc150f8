"""Points to choose from in a space of mixed variables, always rounded to real settings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpareto.optimizers.random import start
from fedpareto.space import Choice, Float, FloatArray, Space

Draw = np.random.Generator
Score = Callable[[FloatArray], FloatArray]  # x [n,d] → [n], larger is better


def mutated(space: Space, x: FloatArray, n: int, width: float, draw: Draw) -> FloatArray:
    """Return n neighbours [n,d] of the points x [k,d].

    Some variables are moved by about `width`; a choice is drawn again.
    """
    d = len(space)
    parents = x[draw.integers(len(x), size=n)]
    moves = draw.random((n, d)) < max(0.5, 1.5 / d)
    moves[np.arange(n), draw.integers(d, size=n)] = True
    scale = np.array(
        [width if v.size is None else max(width, 0.7 / v.size) for v in space.variables]
    )
    moved = parents + draw.normal(size=(n, d)) * scale * 10.0 ** -draw.uniform(0, 1.5, size=(n, 1))
    # What leaves the cube is reflected at its walls.
    moved = np.where(moved < 0, -moved, np.where(moved > 1, 2 - moved, moved))
    again = np.array([isinstance(v, Choice) for v in space.variables], dtype=bool)
    moved[:, again] = draw.random((n, int(again.sum())))
    return space.snap(np.where(moves, moved, parents))


def pool(space: Space, best: FloatArray, n: int, seed: int, draw: Draw) -> FloatArray:
    """Return about n distinct points: two thirds a Sobol sequence, the rest around `best` [k,d]."""
    spread = space.snap(start("sobol", len(space), n - n // 3 if len(best) else n, seed))
    near = mutated(space, best, n // 3, 0.2, draw) if len(best) else np.empty((0, len(space)))
    return np.unique(np.vstack([spread, near]), axis=0)


def climb(
    space: Space,
    x: FloatArray,
    score: Score,
    draw: Draw,
    rounds: int = 6,
    children: int = 128,
    keep: int = 8,
) -> FloatArray:
    """Return the best point [d] found from x [n,d], best first, by mutating a few repeatedly."""
    value = score(x)
    for i in range(
        rounds if any(isinstance(v, Float) or v.size > 2 for v in space.variables) else 0
    ):
        best = np.argsort(-value, kind="stable")[:keep]
        x = np.vstack([x[best], mutated(space, x[best], children, 0.2 * 0.5**i, draw)])
        value = np.concatenate([value[best], score(x[len(best) :])])
    return np.asarray(x[np.argmax(value)])

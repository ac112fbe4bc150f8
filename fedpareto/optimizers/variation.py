"""Crossover and mutation in the unit cube, of numbers, bits and choices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedpareto.space import Choice, FloatArray, Space

Draw = np.random.Generator


def discrete(space: Space) -> NDArray[np.bool_]:
    """[d], which variables take two values only, or one of a few listed."""
    return np.array([v.size == 2 or isinstance(v, Choice) for v in space.variables], dtype=bool)


def offspring(
    space: Space,
    first: FloatArray,
    second: FloatArray,
    draw: Draw,
    crossover: float,
    crossover_index: float,
    mutation: float,
    mutation_index: float,
) -> FloatArray:
    """Return children [2n,d] of the parents first [n,d] and second [n,d]."""
    bits = discrete(space)
    children = np.concatenate(simulated_binary(first, second, draw, crossover, crossover_index))
    children[:, bits] = np.concatenate(
        single_point(first[:, bits], second[:, bits], draw, crossover)
    )
    mutated = polynomial(children, draw, mutation, mutation_index)
    mutated[:, bits] = flip(children[:, bits], draw, mutation)
    for j, variable in enumerate(space.variables):
        if bits[j] and variable.size != 2:
            mutated[:, j] = redrawn(children[:, j], draw, mutation, variable.size or 1)
    return mutated


def distinct(
    space: Space, n: int, seen: FloatArray, breed: Callable[[int], FloatArray]
) -> FloatArray:
    """Return n children [n,d], none twice or among those seen [k,d], as far as the space allows.

    breed returns two children for each pair asked for.
    """
    known: set[bytes] = set()
    children: list[FloatArray] = []
    for attempt in range(50):
        bred = space.snap(breed((n - len(children) + 1) // 2))
        known |= {row.tobytes() for row in among(bred, seen)}
        for child in bred:
            fresh = child.tobytes() not in known
            if len(children) < n and (fresh or attempt == 49):
                known.add(child.tobytes())
                children.append(child)
        if len(children) == n:
            break
    return np.array(children).reshape(n, len(space))


def among(x: FloatArray, seen: FloatArray) -> FloatArray:
    """Return those rows of seen [k,d] that may be rows of x [n,d]: all that are, hardly another."""
    wanted, found = (_hashed(rows) for rows in (x, seen))
    return seen[np.isin(found, wanted)]


def _hashed(x: FloatArray) -> NDArray[np.uint64]:
    """Return a number [n] for each row of x [n,d], equal for equal ones."""
    odd = np.cumprod(np.full(x.shape[1], 6364136223846793005, np.uint64))
    return np.asarray(np.ascontiguousarray(x).view(np.uint64) @ odd)


def simulated_binary(
    first: FloatArray, second: FloatArray, draw: Draw, probability: float, index: float
) -> tuple[FloatArray, FloatArray]:
    """Cross pairs by SBX bounded to the cube (Deb and Agrawal 1995).

    Each variable takes part with probability ½.
    """
    n, d = first.shape
    low, high = np.minimum(first, second), np.maximum(first, second)
    gap = high - low
    takes_part = (draw.random((n, 1)) < probability) & (draw.random((n, d)) < 0.5) & (gap > 1e-14)
    u = draw.random((n, d))
    safe = np.where(gap > 1e-14, gap, 1.0)
    below = 0.5 * (low + high - _spread(u, 1 + 2 * low / safe, index) * gap)
    above = 0.5 * (low + high + _spread(u, 1 + 2 * (1 - high) / safe, index) * gap)
    swap = draw.random((n, d)) < 0.5
    one = np.where(takes_part, np.where(swap, above, below), first)
    two = np.where(takes_part, np.where(swap, below, above), second)
    return np.clip(one, 0, 1), np.clip(two, 0, 1)


def _spread(u: FloatArray, room: FloatArray, index: float) -> FloatArray:
    """Return SBX's spread factor for a uniform u and the room to the bound."""
    alpha = 2.0 - room ** -(index + 1)
    inner = u <= 1 / alpha
    base = np.where(inner, u * alpha, 1 / np.where(inner, 1.0, 2.0 - u * alpha))
    return np.asarray(base ** (1 / (index + 1)))


def polynomial(x: FloatArray, draw: Draw, probability: float, index: float) -> FloatArray:
    """Mutate each variable with this probability by Deb's bounded polynomial mutation."""
    u, power = draw.random(x.shape), 1 / (index + 1)
    left = (2 * u + (1 - 2 * u) * (1 - x) ** (index + 1)) ** power - 1
    right = 1 - (2 * (1 - u) + 2 * (u - 0.5) * x ** (index + 1)) ** power
    with np.errstate(invalid="ignore"):
        moved = np.clip(x + np.where(u <= 0.5, left, right), 0, 1)
    return np.where(draw.random(x.shape) < probability, moved, x)


def single_point(
    first: FloatArray, second: FloatArray, draw: Draw, probability: float
) -> tuple[FloatArray, FloatArray]:
    """Swap everything after one cut per pair."""
    n, d = first.shape
    cut = draw.integers(0, max(d, 1), size=(n, 1))
    swap = (np.arange(d) >= cut) & (draw.random((n, 1)) < probability)
    return np.where(swap, second, first), np.where(swap, first, second)


def flip(x: FloatArray, draw: Draw, probability: float) -> FloatArray:
    """Flip each bit with this probability."""
    return np.where(draw.random(x.shape) < probability, 1 - x, x)


def redrawn(x: FloatArray, draw: Draw, probability: float, size: int) -> FloatArray:
    """Give each of x [n], one of `size` values, another of them with this probability."""
    place = np.minimum((x * size).astype(np.int64), size - 1)
    other = (place + draw.integers(1, size, size=x.shape)) % size
    return np.where(draw.random(x.shape) < probability, (other + 0.5) / size, x)

"""How many parameters models have, for many widths at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from fedpareto.federation.models import MODELS, Model
from fedpareto.settings import fixed, largest, least, searched
from fedpareto.space import FloatArray, Values, Variable


@functools.lru_cache(maxsize=4096)
def size_of(model: Model, shape: tuple[int, ...], classes: int) -> tuple[int, int]:
    """Return how many parameters a model has, and how many of them are weights of linear layers."""
    import torch
    from torch import nn

    with torch.device("meta"):  # takes no memory
        module = model.build(shape, classes)
    weights = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Linear)}
    held = list(module.parameters())
    return sum(p.numel() for p in held), sum(p.numel() for p in held if id(p) in weights)


def sizes(model: Model, values: Values, n: int, shape: tuple[int, ...], classes: int) -> FloatArray:
    """Return both numbers of `size_of` for the model of each of n rows of settings, [2,n]."""
    variables = searched(model)
    rows = [tuple(values[v.name][i] for v in variables) for i in range(n)]
    distinct = list(set(rows))
    if type(model) in MODELS.values() and len(distinct) > 2 ** len(variables):
        return _between(model, variables, np.array(rows, dtype=np.float64), shape, classes)
    held = {row: _size(model, variables, row, shape, classes) for row in distinct}
    return np.array([held[row] for row in rows], dtype=np.float64).reshape(n, 2).T


def _size(
    model: Model,
    variables: Sequence[Variable],
    row: Sequence[int],
    shape: tuple[int, ...],
    classes: int,
) -> tuple[int, int]:
    """Return the size of the model with the values of one row in place of its variables."""
    chosen = dict(zip([v.name for v in variables], row, strict=True))
    return size_of(fixed(model, lambda v: chosen[v.name]), shape, classes)  # type: ignore[arg-type]


def _between(
    model: Model,
    variables: Sequence[Variable],
    rows: FloatArray,
    shape: tuple[int, ...],
    classes: int,
) -> FloatArray:
    """Return the sizes of rows [n,d], interpolated between the ends of every width.

    This is exact for our own models: a layer's size is the product of its two widths, so a model's
    size is linear in each width.
    """
    ends = [(int(least(v)), int(largest(v))) for v in variables]
    # [d,n]
    share = np.array([(rows[:, i] - low) / (high - low) for i, (low, high) in enumerate(ends)])
    out = np.zeros((2, len(rows)))
    for corner in itertools.product((0, 1), repeat=len(ends)):
        weight = np.prod([s if c else 1 - s for s, c in zip(share, corner, strict=True)], axis=0)
        row = [ends[i][c] for i, c in enumerate(corner)]
        held = _size(model, variables, row, shape, classes)
        out += np.array(held)[:, None] * weight
    return np.rint(out)

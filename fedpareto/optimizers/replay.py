"""Selection replayed batch by batch, from where the last replay of the same rows stood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedpareto.history import History
from fedpareto.space import FloatArray

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class _Stood:
    """What was alive after some batches."""

    settings: object = None  # of the optimizer
    rows: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 0), np.int64))  # bits
    batches: int = 0
    alive: Rows = field(default_factory=lambda: np.empty(0, np.int64))


def replayed(
    settings: object, history: History, judged: FloatArray, select: Callable[[Rows], Rows]
) -> Rows:
    """Return the rows of a history that are alive after its last batch.

    select says which of some rows survive, by settings and judged [n,k] alone. Rows that failed are
    never among them. A process that proposes batch after batch selects from each once.
    """
    failed = history.failed
    judged = np.column_stack([judged, history.batch, failed]).astype(np.float64)
    rows = np.ascontiguousarray(judged).view(np.int64)
    begun = _begun(settings, rows)
    alive = begun.alive
    edges = np.searchsorted(history.batch, np.arange(begun.batches, history.batches + 1))
    for first, end in pairwise(edges):
        born = first + np.flatnonzero(~failed[first:end])
        alive = select(np.concatenate([alive, born]))
    _last[:] = [_Stood(settings, rows, history.batches, alive)]
    return alive


def _begun(settings: object, rows: NDArray[np.int64]) -> _Stood:
    """Return where the last replay stood, or the beginning, if it was of other rows."""
    for last in _last:
        same = last.settings == settings and last.rows.shape[1] == rows.shape[1]
        if same and np.array_equal(last.rows, rows[: len(last.rows)]):
            return last
    return _Stood()


_last: list[_Stood] = []

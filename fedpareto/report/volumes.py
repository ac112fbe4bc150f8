"""How the hypervolume of a study grows, trial after trial."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpareto.front import hypervolume, nondominated
from fedpareto.history import History
from fedpareto.problem import Judge, feasible, reference
from fedpareto.space import FloatArray

MOST_VOLUMES = 2000  # hypervolumes that are computed for a curve


def hypervolumes(known: History, asked: Sequence[Judge]) -> list[float]:
    """Return the hypervolume after each row, of all so far that holds every limit.

    What runs showed on the way counts too.
    """
    rows = [row[None] for row in known.judged]
    if len(known.free_of):  # in the order of trials
        edges = np.searchsorted(known.free_of, np.arange(1, len(known)))
        ways = np.split(known.free_judged, edges)
        rows = [np.vstack([row, way]) for row, way in zip(rows, ways, strict=True)]
    return growth(rows, asked, reference(asked[: known.y.shape[1]]))


def growth(rows: Sequence[FloatArray], asked: Sequence[Judge], corner: FloatArray) -> list[float]:
    """Return the hypervolume up to a corner [m] after each of some sets of rows [·,m+c].

    Only rows that hold every limit count.
    """
    front = np.empty((0, len(corner)))
    curve = []
    volume = 0.0
    # Of many trials, the volume is computed after every few, and at the end.
    pace = max(1, len(rows) // MOST_VOLUMES)
    for i, new in enumerate(rows, 1):
        new = new[feasible(asked, new)][:, : len(corner)]
        beaten = np.all(front[None] <= new[:, None], axis=2)  # [new, front]
        fresh = new[~np.any(beaten, axis=1)]
        if len(fresh):
            both = np.vstack([front, fresh])
            front = both[nondominated(both)]
        if (len(fresh) and pace == 1) or (pace > 1 and (i % pace == 0 or i == len(rows))):
            volume = hypervolume(front, corner)
        curve.append(volume)
    return curve

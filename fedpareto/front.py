"""Fronts: dominance, ranks, crowding, hypervolume and the knee, mostly computed by moocore."""

from __future__ import annotations

import moocore
import numpy as np
from numpy.typing import NDArray

from fedpareto.space import FloatArray


def nondominated(y: FloatArray) -> NDArray[np.bool_]:
    """Say which rows of y [n,m] no other row dominates; of equal rows, all are kept."""
    if len(y) == 0:
        return np.zeros(0, dtype=bool)
    return np.asarray(moocore.is_nondominated(y, keep_weakly=True), dtype=bool)


def ranks(y: FloatArray) -> NDArray[np.int64]:
    """Return the rank of each row of y [n,m]: 0 on the front, 1 on the front of the rest, etc."""
    if len(y) == 0:
        return np.zeros(0, dtype=np.int64)
    return np.asarray(moocore.pareto_rank(y), dtype=np.int64)


def crowding(y: FloatArray) -> FloatArray:
    """Return the crowding distance of each row of y [n,m] (Deb 2002); infinite at the ends."""
    n, m = y.shape
    distance = np.zeros(n)
    for j in range(m):
        order = np.argsort(y[:, j], kind="stable")
        column = y[order, j]
        distance[order[[0, -1]]] = np.inf
        span = column[-1] - column[0]
        if span > 0 and n > 2:
            distance[order[1:-1]] += (column[2:] - column[:-2]) / span
    return distance


def hypervolume(y: FloatArray, reference: FloatArray) -> float:
    """Return the volume that the rows of y [n,m] dominate, up to the reference point [m]."""
    inside = y[(y < reference).all(axis=1)]
    if len(inside) == 0:
        return 0.0
    if y.shape[1] == 1:
        return float(reference[0] - inside.min())
    return float(moocore.hypervolume(inside, ref=reference))


def share_of_box(volume: float, reference: FloatArray) -> float:
    """Return a hypervolume in units of the box between 0 and the reference point [m].

    It is nan where a component of the reference is not above 0: then there is no such box.
    """
    corner = np.asarray(reference, dtype=np.float64)
    return float(volume / corner.prod()) if (corner > 0).all() else float("nan")


def knee(y: FloatArray, reference: FloatArray) -> int:
    """Return the row of the front y [n,m] that is nearest to its ideal point.

    Distances are in units of the way from the ideal point to the reference.
    """
    ideal = y.min(axis=0)
    way = reference - ideal
    scaled = (y - ideal) / np.where(way > 0, way, 1.0)
    return int(np.argmin((scaled**2).sum(axis=1)))

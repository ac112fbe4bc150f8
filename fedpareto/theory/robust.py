"""Robust linear regression: outliers get no weight, and coefficients come with intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from fedpareto.space import FloatArray

# The reach of Tukey's bisquare in standard deviations: a point further off has no weight.
REACH = 6.0
# With fewer spare groups than this an outlier cannot be recognised: plain least squares.
ENOUGH = 5


def fit(
    columns: FloatArray, y: FloatArray, group: NDArray[np.int64], level: float = 0.95
) -> tuple[FloatArray, FloatArray]:
    """Return coefficients [p] and half widths [p] of their intervals for y [n] ≈ columns [n,p].

    An M-estimate with Tukey's bisquare, started at least absolute deviations. Points of one group
    [n] need not be independent: the interval is the jackknife's, which leaves out one group at a
    time; there must be more than p groups.
    """
    p = columns.shape[1]
    groups = np.unique(group)
    # [1+G,n]: all points, then all but one group's
    keep = np.concatenate([np.ones((1, len(y))), group != groups[:, None]])
    spare = len(groups) - p
    if spare < ENOUGH:
        beta = _weighted(columns, y, keep)
    else:
        start = _least_absolute(columns, y)
        size = np.sort(np.abs(y - columns @ start))[p - 1 :]  # the line goes through p points
        scale = 1.4826 * float(np.median(size)) * (1 + 2.5 / spare) + 1e-12
        beta = _bisquare(columns, y, keep, start, scale)
    without = beta[1:]
    squares = ((without - without.mean(axis=0)) ** 2).sum(axis=0)
    spread = np.sqrt((len(groups) - 1) / len(groups) * squares)
    return beta[0], student.ppf((1 + level) / 2, spare) * spread


def _least_absolute(columns: FloatArray, y: FloatArray) -> FloatArray:
    """Return the line of least absolute deviations, by reweighting."""
    beta = _weighted(columns, y, np.ones((1, len(y))))[0]
    for _ in range(50):
        size = np.abs(y - columns @ beta)
        beta = _weighted(columns, y, 1 / np.maximum(size, 1e-6 * size.max() + 1e-12)[None])[0]
    return np.asarray(beta)


def _bisquare(
    columns: FloatArray, y: FloatArray, keep: FloatArray, start: FloatArray, scale: float
) -> FloatArray:
    """Return the bisquare fits [r,p] to the points kept, one for each row of keep [r,n]."""
    beta = np.repeat(start[None], len(keep), axis=0)
    for _ in range(100):
        share = np.minimum(np.abs(y - beta @ columns.T) / (REACH * scale), 1.0)
        before = beta
        beta = _weighted(columns, y, keep * (1 - share**2) ** 2)
        if np.abs(beta - before).max() <= 1e-9 * scale:
            break
    return beta


def _weighted(columns: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weighted least-squares fits [r,p], one for each row of weight [r,n]."""
    p = columns.shape[1]
    products = (columns[:, :, None] * columns[:, None, :]).reshape(-1, p * p)
    square = (weight @ products).reshape(-1, p, p)
    # points all in one place: any line will do
    square += 1e-13 * np.trace(square, axis1=1, axis2=2)[:, None, None] * np.eye(p)
    right = weight @ (columns * y[:, None])
    return np.asarray(np.linalg.solve(square, right[..., None])[..., 0])

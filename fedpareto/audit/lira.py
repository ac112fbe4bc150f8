"""The likelihood-ratio attack (Carlini 2022), and how well any attack tells members from others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from fedpareto.space import FloatArray

MANY = 64  # models with a record, or without, from which its own spread is taken
RATES = (0.001, 0.01)  # of false alarms, at which it is said how many members are found


def likelihood_ratios(seen: FloatArray, member: NDArray[np.bool_]) -> FloatArray:
    """Return the log ratio of likelihoods [S,n] that each model trained on each record.

    seen [S,n] is what models show of records, nan where nothing; member [S,n] says which model
    trained on which. Each model in turn is attacked with all others for shadows.
    """
    there = np.isfinite(seen)
    x = np.where(there, seen, 0.0)
    ratio = np.zeros(x.shape)
    for sign, group in ((1.0, member & there), (-1.0, ~member & there)):
        count, total, squares = group.sum(0), (group * x).sum(0), (group * x**2).sum(0)
        n = np.maximum(count - group, 1.0)
        mean = (total - group * x) / n
        spread = np.maximum((squares - group * x**2) / n - mean**2, 0.0)
        if count.min() < MANY:  # the same for all records
            spread = np.full_like(spread, (spread * (n > 1)).sum() / max((n > 1).sum(), 1))
        spread = np.maximum(spread, 1e-12 * max(1.0, float(np.abs(x).max())) ** 2)
        ratio += sign * (-0.5 * np.log(spread) - 0.5 * (x - mean) ** 2 / spread)
    return np.where(there, ratio, np.nan)


def auc(scores: FloatArray, member: NDArray[np.bool_]) -> float:
    """Return the area under the curve: how often a member scores above another record."""
    n, m = int(member.sum()), int((~member).sum())
    if not n or not m:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[member].sum() - n * (n + 1) / 2) / (n * m))


def roc(scores: FloatArray, member: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Return the shares of others and of members that score at least each threshold, falling."""
    order = np.argsort(-scores, kind="stable")
    found, wrong = np.cumsum(member[order]), np.cumsum(~member[order])
    last = np.append(np.diff(scores[order]) != 0, True)  # of equal scores all are above or none
    ends = (wrong[last] / max(1, wrong[-1]), found[last] / max(1, found[-1]))
    return np.append(0.0, ends[0]), np.append(0.0, ends[1])


def found_at(curve: tuple[FloatArray, FloatArray], rate: float) -> float:
    """Return how many members are found where at most this share of others is taken for one."""
    wrong, found = curve
    return float(found[wrong <= rate].max())


def told(scores: FloatArray, member: NDArray[np.bool_]) -> dict[str, object]:
    """Return AUC, how many members are found at few false alarms, and the curve in few points."""
    kept = np.isfinite(scores)
    scores, member = scores[kept], member[kept]
    curve = roc(scores, member)
    wrong = np.unique(np.round(np.geomspace(1e-4, 1.0, 41), 6))
    points = [[float(w), round(found_at(curve, w), 5)] for w in wrong]
    rates = {f"tpr_at_{rate:g}": found_at(curve, rate) for rate in RATES}
    return {"auc": auc(scores, member), **rates, "roc": points}

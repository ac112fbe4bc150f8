"""Expected hypervolume improvement, in closed form, of objectives known exactly or Gaussian.

What a point at y adds to the hypervolume is, over the boxes [l, u] that split what the front leaves
undominated below the reference, Σ Π_j (u_j − max(l_j, y_j))₊. Objectives are independent, so the
expectation is Σ Π_j (ψ_j(u_j) − ψ_j(l_j)) with ψ_j(t) = E[(t − y_j)₊ 1{y_j ≤ limit_j}] (Yang et al.
2019, with limits). An objective known exactly has ψ(t) = (t − y)₊, so with one that is learned and
the others known this is the sum over cells of Olofsson et al. 2019; a limit on a known objective
holds exactly.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import scipy

from fedpareto.front import crowding, nondominated
from fedpareto.space import FloatArray

INCUMBENTS = {1: 1, 2: 1000, 3: 1000, 4: 30, 5: 12}  # by objectives; more boxes would take seconds
AT_ONCE = 4_000_000  # numbers held at a time


def boxes(y: FloatArray, reference: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return boxes that split what y [n,m] leaves undominated below the reference [m].

    They are given by their lower corners [c,m] and upper corners [c,m].
    """
    inside = y[(y < reference).all(axis=1)]
    front = np.unique(inside[nondominated(inside)], axis=0)
    if len(front) == 0:
        return np.full((1, len(reference)), -np.inf), reference[None]
    if len(reference) == 1:
        return np.full((1, 1), -np.inf), front[:1]
    if len(reference) == 3:
        low, high = sweep(-front, -reference)
        return -high, -low
    import torch
    from botorch.utils.multi_objective.box_decompositions import FastNondominatedPartitioning

    room = INCUMBENTS.get(len(reference), 8)
    if len(front) > room:
        front = front[np.argsort(-crowding(front), kind="stable")[:room]]
    # BoTorch maximises, so all is negated.
    split = FastNondominatedPartitioning(torch.from_numpy(-reference), torch.from_numpy(-front))
    upper, lower = -split.get_hypercell_bounds().numpy()
    return lower, upper


def sweep(front: FloatArray, corner: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return boxes that split what no row of front [n,3] dominates above the corner [3].

    They are given by two corners each, [c,3] and [c,3]; here, more is better. The third objective
    falls. Above each strip of the first, up to the next edge, the second is free from some height
    on; a point raises the strips that it covers, and what they were until then are boxes: at most
    2n + 1.
    """
    left, right, height, top = [float(corner[0])], [np.inf], [float(corner[1])], [np.inf]
    boxes: list[tuple[float, ...]] = []
    for x, y, z in front[np.argsort(-front[:, 2], kind="stable")].tolist():
        j = i = bisect_left(right, x)  # the strip that x lies in
        if x <= left[j] or y <= height[j]:
            continue
        while i > 0 and height[i - 1] < y:
            i -= 1
        boxes += [
            (left[k], height[k], z, min(right[k], x), np.inf, top[k])
            for k in range(i, j + 1)
            if top[k] > z
        ]
        edge = left[i]
        if right[j] > x:  # what lies beyond x stays as it is
            left[j], j = x, j - 1
        left[i : j + 1], right[i : j + 1], height[i : j + 1], top[i : j + 1] = [edge], [x], [y], [z]
    boxes += [
        (a, h, float(corner[2]), b, np.inf, t)
        for a, b, h, t in zip(left, right, height, top, strict=True)
        if t > corner[2]
    ]
    corners = np.array(boxes).reshape(-1, 2, 3)
    return corners[:, 0], corners[:, 1]


def expected_improvement(
    mean: FloatArray, sd: FloatArray, limits: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Return the hypervolume [k] that each point is expected to add, by its mean and sd [k,m+c].

    A point that breaks one of the limits [m+c] adds nothing; sd is 0 where something is known. The
    c last columns are limits alone, and no sides of the boxes [m].
    """
    chunk = max(1, AT_ONCE // len(lower))
    parts = [
        _expected(mean[i : i + chunk], sd[i : i + chunk], limits, lower, upper)
        for i in range(0, len(mean), chunk)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _expected(
    mean: FloatArray, sd: FloatArray, limits: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    m = lower.shape[1]
    volume = np.ones((len(mean), len(lower)))
    for j in range(m):
        edges, place = np.unique(np.concatenate([lower[:, j], upper[:, j]]), return_inverse=True)
        below = _shortfall(edges, mean[:, j : j + 1], sd[:, j : j + 1], limits[j])  # [k,e]
        at_lower, at_upper = place[: len(lower)], place[len(lower) :]
        volume *= np.maximum(below[:, at_upper] - below[:, at_lower], 0.0)
    within = probability_within(mean[:, m:], sd[:, m:], limits[m:])
    return np.asarray(volume.sum(axis=1) * np.exp(within))


def _shortfall(t: FloatArray, mean: FloatArray, sd: FloatArray, limit: float) -> FloatArray:
    """Return E[(t − y)₊ 1{y ≤ limit}], [k,e], of a normal y with mean and sd [k,1], for t [e]."""
    cut = np.minimum(t, limit)
    exact = np.where((mean <= limit) & (mean < t), t - mean, 0.0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        z = (cut - mean) / sd
        density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
        smooth = (
            (cut - mean) * scipy.special.ndtr(z) + sd * density + (t - cut) * scipy.special.ndtr(z)
        )
    return np.where(np.isneginf(t), 0.0, np.where(sd > 0, np.maximum(smooth, 0.0), exact))


def probability_within(mean: FloatArray, sd: FloatArray, bounds: FloatArray) -> FloatArray:
    """Return the logarithm [k] of the probability that all objectives keep their bounds [m].

    mean and sd [k,m] say what is expected of each point.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.where(
            sd > 0,
            (bounds - mean) / sd,
            np.where(mean <= bounds, np.inf, -1e3 * (1 + mean - bounds)),
        )
    return np.asarray(np.maximum(scipy.special.log_ndtr(np.maximum(z, -1e150)), -1e300).sum(axis=1))

"""How likely it is that independent standard normal numbers look as they do here, check by check.

Where one check tests many things, its smallest chance is multiplied by their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import fft, special, stats

from fedpareto.space import FloatArray

UNLIKELY = 1e-6  # as likely as a normal number beyond 4.9 standard deviations


@dataclass(frozen=True)
class Draws:
    """Noise in units of what is stated, [n,P], and whose it is, name → [n]."""

    values: FloatArray
    labels: Mapping[str, NDArray[np.int64]]


def noise_chances(found: Draws) -> dict[str, float]:
    """Return how likely it is that independent standard normal numbers are as far off as these."""
    z, (n, P) = found.values, found.values.shape
    squares = np.square(z)
    # normal and independent where z is, whatever the signs; zeros, which normal numbers never are,
    # stay finite
    size = np.clip(special.ndtri(2 * special.ndtr(np.abs(z)) - 1), -9, 9)
    chances = {
        "mean": of_normal(z.sum() / z.size**0.5),
        "mean of a row": of_normal(z.sum(1) / P**0.5),
        "mean of a coordinate": of_normal(z.sum(0) / n**0.5),
        "variance": of_squares(squares.sum(), z.size),
        "variance of a row": of_squares(squares.sum(1), P),
        "variance of a coordinate": of_squares(squares.sum(0), n),
        "shape": float(stats.kstest(z.ravel(), "norm", method="asymp").pvalue),
        "kurtosis": of_normal((np.square(squares).mean() - 3) * (z.size / 96) ** 0.5),
        "tails": of_count((np.abs(z) > 4).sum(), z.size, 2 * special.ndtr(-4.0)),
        "rows alike": of_pairs(z),
        "rows alike in size": of_pairs(size),
        "coordinates alike": of_pairs(z.T),
        "coordinates alike in size": of_pairs(size.T),
        "coordinates at a distance": _of_distances(z),
    }
    return chances | {f"sums over each {name}": _of_sums(found, name) for name in found.labels}


def of_normal(z: Any) -> float:
    """Return the chance that one of some standard normal numbers is as far from 0 as any here."""
    return float(np.size(z) * 2 * special.ndtr(-np.max(np.abs(z))))


def of_squares(total: Any, count: int) -> float:
    """Return the chance of the least likely of some sums of so many squares of normal numbers."""
    tail = np.minimum(stats.chi2.cdf(total, count), stats.chi2.sf(total, count))
    return float(np.size(total) * 2 * np.min(tail))


def of_count(k: Any, n: int, chance: float) -> float:
    """Return the chance of the least likely of some counts among n, each by this chance."""
    tail = np.minimum(stats.binom.cdf(k, n, chance), stats.binom.sf(np.asarray(k) - 1, n, chance))
    return float(np.size(k) * 2 * np.min(tail))


def cosines(rows: FloatArray) -> float:
    """Return the largest cosine between two of some rows, without its sign."""
    unit = torch.nn.functional.normalize(torch.from_numpy(rows).float().contiguous(), dim=1)
    most = 0.0
    for i in range(0, len(rows), 256):
        some = unit[i : i + 256] @ unit[i:].T
        some.fill_diagonal_(0)
        least, largest = some.aminmax()
        most = max(most, -float(least), float(largest))
    return most


def of_pairs(rows: FloatArray) -> float:
    """Return the chance that two of some independent rows have an angle as far from a right one."""
    n, P = rows.shape
    if n < 2:
        return 1.0
    most = min(cosines(rows), 1 - 1e-6)
    return float(n * (n - 1) * stats.t.sf(most * ((P - 1) / (1 - most**2)) ** 0.5, P - 1))


def _of_distances(z: FloatArray) -> float:
    """Return the chance that coordinates some distance apart, counted in a circle, agree so."""
    n, P = z.shape
    spectrum = (np.abs(fft.rfft(z, axis=1)) ** 2).sum(0)
    apart = fft.irfft(spectrum, P)[1 : (P + 1) // 2]
    return of_normal(apart / (n * P) ** 0.5)


def _of_sums(found: Draws, name: str) -> float:
    """Return the chance of the variance of sums of the rows that differ in this label alone."""
    others = np.stack([column for other, column in found.labels.items() if other != name])
    order = np.lexsort(others)
    new = np.append(True, (np.diff(others[:, order]) != 0).any(0))
    starts = np.flatnonzero(new)
    counts = np.diff(np.append(starts, len(order)))
    sums = np.add.reduceat(found.values[order], starts, axis=0) / counts[:, None] ** 0.5
    several = sums[counts > 1]
    return of_squares(np.square(several).sum(), several.size) if several.size else 1.0


def cohort_chances(present: NDArray[np.bool_], ratio: float) -> dict[str, float]:
    """Return how likely it is that cohorts [trainings,T,K] drawn anew are as far off as these.

    Each client is in two such cohorts by the chance ratio². In cohorts of fixed size, clients in
    both are less spread than clients by chance, so that this errs to the safe side.
    """
    trainings, T, _ = present.shape
    if ratio >= 1:
        return {}
    often = present.sum(1)  # [trainings,K]
    spread = ((often - T * ratio) ** 2).sum() / (T * ratio * (1 - ratio))
    common = [(a & b).sum() for a, b in combinations(present, 2)]
    both = of_count(common, present[0].size, ratio**2) if common else 1.0
    return {
        "how often a client comes": of_count(often.sum(0), trainings * T, ratio),
        "cohorts of rounds alike": of_squares(spread, often.size),
        "cohorts of trainings alike": both,
    }

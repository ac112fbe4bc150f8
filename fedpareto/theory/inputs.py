"""Checks of the numbers that the formulas of the theory take."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray

# Relative. With it ⌊10/(25·0.1²)⌋ is 40 and not 39, and numbers this close count as equal.
TOLERANCE = 1e-12

TO_DO = {
    "k": "Estimate it from experimental Pareto points with estimate_k.",
    "clients": "It counts all clients, asked or not.",
    "rounds": "Count rounds from 1.",
    "rounds_max": "Allow at least one round.",
    "sigma_max": "Raise it, or leave it out for noise without a limit.",
    "sample_ratio": "It is the share of the clients that a round asks.",
}


def numbers(
    name: str,
    given: ArrayLike,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    infinite: bool = False,
) -> FloatArray:
    """Return the numbers as an array, after checking each of them against the limits."""
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise SettingError(
            f"{name}: must be a number or an array of numbers, found {given!r}."
        ) from None
    holds = ~np.isnan(array) if infinite else np.isfinite(array)
    words = ["" if infinite else "finite"]
    for limit, rule, kept in (
        (above, "above", np.greater),
        (least, "at least", np.greater_equal),
        (most, "at most", np.less_equal),
    ):
        if limit is not None:
            holds = holds & kept(array, limit)
            words.append(f"{rule} {limit:g}")
    if not np.all(holds):
        found = array[~holds].flat[0]
        rule = " and ".join(word for word in words if word)
        raise SettingError(
            f"{name}: must be {rule}, found {found:g}. {TO_DO.get(name, '')}".rstrip()
        )
    return array


def whole(name: str, given: ArrayLike) -> NDArray[np.int64]:
    """Return whole numbers as an array, after checking that each is at least 1."""
    array = numbers(name, given, least=1, most=1e15)
    broken = array[array != np.floor(array)]
    if broken.size:
        raise SettingError(
            f"{name}: must be a whole number, found {broken.flat[0]:g}. "
            f"{TO_DO.get(name, '')}".rstrip()
        )
    return array.astype(np.int64)


def noise_share(k: ArrayLike, clients: ArrayLike, sample_ratio: ArrayLike) -> FloatArray:
    """Return a = k/(qK): how much a unit of σ² adds to f1 (Gu 2024, Eq. 8)."""
    rate = numbers("k", k, above=0)
    K = numbers("clients", clients, least=1)
    q = numbers("sample_ratio", sample_ratio, above=0, most=1)
    asked = q * K
    if np.any(asked < 1 - 1e-9):
        ratio, of = (float(a[asked < 1 - 1e-9].flat[0]) for a in np.broadcast_arrays(q, K))
        raise SettingError(
            f"sample_ratio: must ask for at least one client, found {ratio:g} of {of:g} clients. "
            f"Raise it to {1 / of:g}."
        )
    return np.asarray(rate / asked)


def box(sigma_min: ArrayLike, sigma_max: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest σ, after checking them; without a limit it is infinity."""
    if sigma_max is None:
        sigma_max = np.inf
    low = numbers("sigma_min", sigma_min, least=0)
    high = numbers("sigma_max", sigma_max, above=0, infinite=True)
    if np.any(low > high):
        least, most = (end[low > high].flat[0] for end in np.broadcast_arrays(low, high))
        raise SettingError(
            f"sigma_min: must be at most sigma_max, found {least:g} and {most:g}. Change one of "
            "them."
        )
    return low, high

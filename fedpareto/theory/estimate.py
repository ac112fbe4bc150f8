"""Estimate k, how much noise costs, from Pareto points found by training (Gu 2024, V-D)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray
from fedpareto.theory.inputs import TOLERANCE, box, noise_share, numbers, whole
from fedpareto.theory.law import BoolArray
from fedpareto.theory.robust import fit

FEWEST = 3
WIDEST = 690.0  # e to this power is still a finite number


@dataclass(frozen=True)
class Estimate:
    """An estimate of k from Pareto points, and whether the points follow the law."""

    k: float
    interval: tuple[float, float]  # 95 %
    slope: float  # of log σ² against log T: −1 if the law holds, nan if all T are equal
    slope_interval: tuple[float, float]  # 95 %
    used: int  # points used
    left_out: int  # points left out
    trainings: int  # that the used points came from
    message: str

    @property
    def fits(self) -> bool:
        """Say whether the slope may be −1."""
        return not (self.slope_interval[0] > -1 or self.slope_interval[1] < -1)

    def as_plain(self) -> dict[str, Any]:
        """Return the estimate as a dictionary that JSON can hold; nan and infinity become None."""
        return {
            "k": self.k,
            "k_interval": list(self.interval),
            "slope": _finite(self.slope),
            "slope_interval": [_finite(end) for end in self.slope_interval],
            "fits": self.fits,
            "used": self.used,
            "left_out": self.left_out,
            "trainings": self.trainings,
            "message": self.message,
        }


def estimate_k(
    rounds: ArrayLike,
    sigma: ArrayLike,
    clients: ArrayLike,
    sample_ratio: ArrayLike,
    *,
    rounds_max: int | None = None,
    sigma_min: float | None = None,
    sigma_max: float | None = None,
) -> Estimate:
    """Estimate k of kσ²T = qK (Gu 2024, Theorem 2) from Pareto points: rounds [n] and sigma [n].

    Points that are optimal only because the search box ends there are left out. Points with equal σ
    and sample ratio come from one training and are not independent: the 95 % interval counts
    trainings, not points.
    """
    columns = (
        whole("rounds", rounds),
        numbers("sigma", sigma, least=0),
        noise_share(1.0, clients, sample_ratio),
        np.asarray(sample_ratio, dtype=np.float64),
    )
    T, s, share, q = _one_each(*columns)
    training = _same(s, q)
    inside = interior(T, s, q, rounds_max=rounds_max, sigma_min=sigma_min, sigma_max=sigma_max)
    used = int(inside.sum())
    x = np.log(T[inside])
    y = 2 * np.log(s[inside]) + np.log(share[inside])
    group = training[inside]
    trainings = len(np.unique(group))
    if trainings < FEWEST:
        raise SettingError(
            f"estimate_k: must have Pareto points of at least {FEWEST} trainings inside the search "
            f"box, found {used} points of {trainings}, and {len(T) - used} held by its edge. "
            "Search more values of σ, a wider range of them, or more rounds."
        )
    (minus,), (half,) = fit(np.ones((used, 1)), x + y, group)  # the law: x + y = −log k
    slope, ends = _slope(x, y, group)
    k, low, high = np.exp(np.clip([-minus, -minus - half, -minus + half], -WIDEST, WIDEST)).tolist()
    interval = (low, high)
    message = _message(k, interval, slope, ends)
    return Estimate(k, interval, slope, ends, used, len(T) - used, trainings, message)


def interior(
    rounds: ArrayLike,
    sigma: ArrayLike,
    sample_ratio: ArrayLike = 1.0,
    *,
    rounds_max: int | None = None,
    sigma_min: float | None = None,
    sigma_max: float | None = None,
) -> BoolArray:
    """Say which Pareto points [n] do not owe their place to the edge of the search box.

    These are the points whose possible dominators all lie inside the box. Dominators of (T, σ) are
    found along T/σ² = constant: with T ± 1, or, where σ is tried on a grid, with the next σ tried.
    On a grid a T is used only if all its points are inside: the law runs between them.
    """
    T, s, q = _one_each(
        whole("rounds", rounds),
        numbers("sigma", sigma, least=0),
        np.asarray(sample_ratio, dtype=np.float64),
    )
    last = np.inf
    if rounds_max is not None:
        last = float(whole("rounds_max", rounds_max))
    if sigma_min is None:
        sigma_min = 0.0
    low, high = box(sigma_min, sigma_max)
    with np.errstate(over="ignore", invalid="ignore"):
        inside = (s > low * (1 + TOLERANCE)) & (s < high * (1 - TOLERANCE)) & (T > 1) & (last > T)
        inside &= s**2 * (T + 1) <= high**2 * T * (1 + TOLERANCE)
        inside &= s**2 * (T - 1) >= low**2 * T * (1 - TOLERANCE)
    if len(T) < 2 * len(np.unique(_same(s, q))):
        return np.asarray(inside)
    up, down = _steps(s, q)
    inside &= (T * up <= last) & (T * down >= 1)
    held = np.bincount(_same(T, q), weights=~inside) > 0
    return np.asarray(~held[_same(T, q)])


def _steps(sigma: FloatArray, sample_ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the factors from each σ² to the next larger and the next smaller one tried.

    Only points with the same sample ratio are compared; the factor is 1 at the ends.
    """
    up = np.ones(len(sigma))
    down = np.ones(len(sigma))
    for q in np.unique(sample_ratio):
        mine = sample_ratio == q
        tried = np.unique(sigma[mine])
        at = np.searchsorted(tried, sigma[mine])
        up[mine] = (tried[np.minimum(at + 1, len(tried) - 1)] / sigma[mine]) ** 2
        down[mine] = (tried[np.maximum(at - 1, 0)] / sigma[mine]) ** 2
    return up, down


def _same(*columns: Any) -> NDArray[np.int64]:
    """Return a number for each row [n]; rows with equal columns [n] get the same number."""
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def _one_each(*columns: Any) -> Any:
    """Return the columns as arrays of one length; single numbers are repeated."""
    try:
        return [np.atleast_1d(column) for column in np.broadcast_arrays(*columns)]
    except ValueError:
        raise SettingError(
            "estimate_k: rounds, sigma, clients and sample_ratio must have one number a point, "
            f"found {', '.join(str(np.size(c)) for c in columns)}."
        ) from None


def _slope(
    x: FloatArray, y: FloatArray, group: NDArray[np.int64]
) -> tuple[float, tuple[float, float]]:
    """Return the slope of y [n] against x [n] and its interval."""
    if np.ptp(x) < 1e-9:
        return math.nan, (math.nan, math.nan)
    (_, slope), (_, half) = fit(np.stack([np.ones(len(x)), x - x.mean()], axis=1), y, group)
    return float(slope), (float(slope - half), float(slope + half))


def _message(
    k: float, interval: tuple[float, float], slope: float, ends: tuple[float, float]
) -> str:
    found = f"k = {k:.3g} (95 %: {interval[0]:.3g} to {interval[1]:.3g})."
    if math.isnan(slope):
        return f"{found} All points have the same rounds: they cannot say whether the law holds."
    slopes = f"log σ² falls with log T at slope {slope:.2f} (95 %: {ends[0]:.2f} to {ends[1]:.2f})"
    if ends[0] > -1 or ends[1] < -1:
        return (
            f"{found} The law does not fit: {slopes}, and not at -1. Do not carry k to other "
            "rounds than those tried."
        )
    return f"{found} The law fits: {slopes}, which allows -1."


def _finite(number: float) -> float | None:
    """Return the number, or None if it is nan or infinite."""
    return number if math.isfinite(number) else None

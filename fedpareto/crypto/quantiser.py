"""Turn an update into whole numbers and back: clip, scale, round at random without bias."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.crypto.codec import Numbers
from fedpareto.errors import SettingError

Reals = NDArray[np.float64]


@lru_cache(maxsize=1024)
def clip_ratio(magnitude: float) -> float:
    """Return the clip, in standard deviations, that quantises a normal variable with least error.

    Quantised values lie between -magnitude and magnitude, Q.

    The mean squared error has two parts (Zhang 2020, BatchCrypt, section 4.3, after Banner 2019):
    what clipping at α cuts off, 2[(1 + α²)Φ(-α) - αφ(α)], and what rounding at random adds, Δ²/6
    with Δ = α/Q. Its derivative vanishes where α/(12Q²) = φ(α) - αΦ(-α); the left side rises and
    the right side falls, so bisection finds it.
    """
    if not magnitude > 0:
        raise SettingError(f"clip_ratio: the magnitude must be above 0, found {magnitude}.")
    low = 0.0
    high = 40.0
    while low < (middle := (low + high) / 2) < high:
        cut = (
            math.exp(-middle * middle / 2) / math.sqrt(2 * math.pi)
            - middle * math.erfc(middle / math.sqrt(2)) / 2
        )
        if middle / (12 * magnitude**2) < cut:
            low = middle
        else:
            high = middle
    return low


def clip_of(values: ArrayLike, magnitude: float) -> Reals:
    """Return the best clip [...] of each update [..., V].

    It is clip_ratio times the root mean square, and never above the largest value.
    """
    x = _finite("clip_of", values)
    ratio = clip_ratio(magnitude)
    largest = np.abs(x).max(axis=-1, initial=0.0)
    if not x.shape[-1]:
        return np.asarray(largest)
    # squares of tiny or huge numbers would not fit
    scaled = x / np.where(largest > 0, largest, 1.0)[..., None]
    rms = np.sqrt(np.mean(scaled**2, axis=-1))
    return np.asarray(largest * np.minimum(ratio * rms, 1.0))


def quantise(values: ArrayLike, clip: ArrayLike, magnitude: int, uniform: ArrayLike) -> Numbers:
    """Return whole numbers from -magnitude to magnitude that stand for values from -clip to clip.

    scaled = clamp(values, -clip, clip)·magnitude/clip; low = floor(scaled); low + (uniform < scaled
    - low). The draws, from [0, 1) and of the values' shape, are the caller's, so that a simulation
    and a deployment can round alike. A clip of 0 makes everything 0. clip may be one number or
    broadcast against the values.
    """
    x = _finite("quantise", values)
    a = _checked_clip(clip)
    u = np.asarray(uniform, np.float64)
    if u.shape != x.shape or not ((u >= 0) & (u < 1)).all():
        raise SettingError(
            f"quantise: the draws must lie in [0, 1) and have the shape {x.shape} of the values, "
            f"found {u.shape}."
        )
    scaled = np.clip(x, -a, a) / np.where(a > 0, a, 1.0) * magnitude
    low = np.floor(scaled)
    return (low + (u < scaled - low)).astype(np.int64)


def dequantise(sums: Numbers, clip: ArrayLike, magnitude: int, terms: int) -> Reals:
    """Return the mean update that the sum of `terms` quantised ones stands for."""
    return np.asarray(sums, np.float64) * (_checked_clip(clip) / (magnitude * terms))


def _finite(where: str, values: ArrayLike) -> Reals:
    x = np.asarray(values, np.float64)
    if not np.isfinite(x).all():
        raise SettingError(
            f"{where}: values must be finite, found {int((~np.isfinite(x)).sum())} that are not. "
            "Lower the learning rate."
        )
    return x


def _checked_clip(clip: ArrayLike) -> Reals:
    a = np.asarray(clip, np.float64)
    if not (np.isfinite(a) & (a >= 0)).all():
        raise SettingError("clip: must be finite and at least 0, found one that is not.")
    return a

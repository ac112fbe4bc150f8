"""The exact (ε, δ) of the Gaussian mechanism: Balle and Wang 2018, Theorem 8.

A noise multiplier z is the standard deviation of the noise over the sensitivity. T rounds with the
same z are one round with z / √T. Every δ and ε here is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray

ROUND_UP = 1 + 1e-12
STEPS = 110
UNIT = 2.3e-16  # what one operation may be off by, relatively


def gaussian_delta(noise_multiplier: ArrayLike, epsilon: ArrayLike) -> FloatArray:
    """Return the least δ for ε, rounded up: Φ(1/2z − εz) − e^ε Φ(−1/2z − εz)."""
    z, epsilon = np.broadcast_arrays(
        checked("gaussian_delta", "noise_multiplier", noise_multiplier),
        checked("gaussian_delta", "epsilon", epsilon),
    )
    usable = (z > 0) & np.isfinite(z) & np.isfinite(epsilon)
    safe = np.where(usable, z, 1.0)
    at = np.where(usable, epsilon, 0.0)
    half = 0.5 / safe
    a = half - at * safe + 4 * UNIT * (half + at * safe)
    delta = _delta(a, safe)
    otherwise = np.where((z == 0) & np.isfinite(epsilon), 1.0, 0.0)
    return np.where(usable, np.clip(delta, 0.0, 1.0), otherwise)


def gaussian_epsilon(noise_multiplier: ArrayLike, delta: ArrayLike) -> FloatArray:
    """Return the least ε for δ, rounded up; inf where there is no noise."""
    z, delta = np.broadcast_arrays(
        checked("gaussian_epsilon", "noise_multiplier", noise_multiplier),
        checked_delta("gaussian_epsilon", delta),
    )
    at_zero = scipy.special.erf(0.5 / np.sqrt(2.0) / np.maximum(z, 1e-150))  # δ(0) = 2 Φ(1/2z) − 1
    none = at_zero * (1 + 8 * UNIT) <= delta
    usable = (z > 1e-150) & ~none
    safe = np.where(usable, z, 1e-3)
    a = _root(safe, delta)
    epsilon = np.maximum(0.5 / safe - a, 0.0) / safe * ROUND_UP
    return np.where(usable, epsilon, np.where(none, 0.0, np.inf))


def _root(z: FloatArray, delta: FloatArray) -> FloatArray:
    """Return a = 1/2z − εz at which δ is reached, rounded down, by Newton's method from below.

    log δ is concave in a, so Newton's steps pass the root by no more than rounding.
    """
    # Φ(a) ≥ δ(a), and ε ≥ 0
    low = np.minimum(scipy.special.ndtri(delta), 0.5 / z)
    high = 0.5 / z
    a = low
    wanted = np.log(delta)
    for _ in range(STEPS):
        value = np.maximum(_delta(a, z), 1e-300)
        holds = value <= delta
        low = np.where(holds, a, low)
        high = np.where(holds, high, a)
        slope = np.maximum(_density(a) * _mills(1.0 / z - a), 1e-300)
        step = (wanted - np.log(value)) * value * z / slope
        done = np.abs(step) <= np.maximum(1e-14, 1e-15 * z) * (1 + np.abs(a))
        if done.all():
            break
        ahead = a + step
        ahead = np.where((ahead > low) & (ahead < high), ahead, 0.5 * (low + high))
        a = np.where(done, a, ahead)
    gap = 3e-14 * (1 + np.abs(a))
    a = a - gap
    for _ in range(STEPS):
        holds = _delta(a, z) <= delta
        if holds.all():
            break
        a = np.where(holds, a, a - gap)
        gap = 2 * gap
    return np.asarray(a)


@lru_cache(maxsize=200_000)
def revealed_epsilon(noise_multiplier: float, ratio: float, rounds: int, delta: float) -> float:
    """Return ε as if it were known in which rounds the client took part.

    δ(ε) = Σ Bin(n; T, q) δ_{z/√n}(ε). Knowing more never lowers ε, so this bounds the ε of secret
    samples from above. It is close if the noise is small.
    """
    bdtr, bdtrc = scipy.special.bdtr, scipy.special.bdtrc
    most = max(1, int(np.argmax(bdtrc(np.arange(rounds + 1), rounds, ratio) <= 1e-3 * delta)))
    # between two counts the larger stands for both
    n = np.unique(np.linspace(1, most, min(most, 256)).astype(int))
    # from whichever end is the smaller, as a difference of numbers near 1 says nothing of a tail
    below = np.diff(bdtr(n, rounds, ratio), prepend=bdtr(0, rounds, ratio))
    above = -np.diff(bdtrc(n, rounds, ratio), prepend=bdtrc(0, rounds, ratio))
    shares = np.where(bdtr(n, rounds, ratio) < 0.5, below, above)
    beyond = float(bdtrc(most, rounds, ratio))
    z = noise_multiplier / np.sqrt(n)
    low = 0.0
    high = float(gaussian_epsilon(noise_multiplier / np.sqrt(most), delta * (1 - 2e-3)))
    for _ in range(40):
        middle = 0.5 * (low + high)
        if shares @ gaussian_delta(z, middle) + beyond <= delta * (1 - 1e-9):
            high = middle
        else:
            low = middle
    return high


def gaussian_multiplier(epsilon: ArrayLike, delta: ArrayLike) -> FloatArray:
    """Return the least noise multiplier that holds (ε, δ), rounded up."""
    epsilon, delta = np.broadcast_arrays(
        checked("gaussian_multiplier", "epsilon", epsilon),
        checked_delta("gaussian_multiplier", delta),
    )
    safe = np.where(np.isfinite(epsilon), epsilon, 1.0)
    low = np.full(safe.shape, np.log(1e-12))
    high = np.full(safe.shape, np.log(1e16))
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        z = np.exp(middle)
        holds = _delta(0.5 / z - safe * z, z) <= delta
        low = np.where(holds, low, middle)
        high = np.where(holds, middle, high)
    return np.where(np.isfinite(epsilon), np.exp(high) * (1 + 1e-11), 0.0)


def _delta(a: FloatArray, z: FloatArray) -> FloatArray:
    """Return δ at a = 1/2z − εz without overflow, rounded up.

    It uses e^ε Φ(−1/2z − εz) = φ(a) R(1/z − a), where R is the Mills ratio. If there is much noise,
    two numbers that are almost the same are subtracted, and their rounding counts.
    """
    density = _density(a)
    second = _mills(1.0 / z - a)
    near = _mills(np.maximum(-a, 0.0))
    first = np.where(a < 0, density * near, scipy.special.ndtr(a))
    value = np.where(a < 0, density * (near - second), first - density * second)
    rounding = 8 * (first + density * second) + (8 + a * a) * np.abs(value)
    return np.asarray(value + UNIT * rounding)


def _density(a: FloatArray) -> FloatArray:
    """Return the density φ of the standard normal distribution."""
    return np.asarray(np.exp(-0.5 * a * a) / np.sqrt(2 * np.pi))


def _mills(y: FloatArray) -> FloatArray:
    """Return the Mills ratio Φ(−y)/φ(y)."""
    return np.asarray(np.sqrt(np.pi / 2) * scipy.special.erfcx(y / np.sqrt(2.0)))


def sampled_epsilon(
    own: FloatArray,
    rows: tuple[FloatArray, ...],
    price: Callable[[float, float, int, float], float],
) -> FloatArray:
    """Return the lesser of ε without sampling and what `price` says of each row that samples.

    own is the noise multiplier of the unsampled mechanism; rows are z, q, T and δ, which are asked
    for where a share q below 1 is drawn and ε is neither 0 nor infinite without that.
    """
    _, q, T, delta = rows
    unsampled = gaussian_epsilon(own / np.sqrt(T), delta)
    asked = (q < 1) & (unsampled > 0) & np.isfinite(unsampled)
    found = np.full(unsampled.shape, np.inf)
    columns = (column[asked].tolist() for column in rows)
    found[asked] = [price(z, q, int(T), d) for z, q, T, d in zip(*columns, strict=True)]
    return np.asarray(np.minimum(unsampled, found))


def least_multiplier(holds: Callable[[float], bool], high: float) -> float:
    """Return the least noise multiplier that holds, rounded up; high is one that does."""
    low = 0.5 * high
    while low > 1e-12 and holds(low):
        high = low
        low = 0.5 * low
    while high > low * (1 + 1e-7):
        middle = math.sqrt(low * high)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def checked(where: str, name: str, value: ArrayLike) -> FloatArray:
    """Return the numbers as an array, after checking that each is at least 0; inf is allowed."""
    array = np.asarray(value, dtype=np.float64)
    if not (array >= 0).all():
        raise SettingError(f"{where}: {name} must be at least 0, found {array}.")
    return array


def checked_delta(where: str, delta: ArrayLike) -> FloatArray:
    """Return δ as an array, after checking that each lies strictly between 0 and 1."""
    array = np.asarray(delta, dtype=np.float64)
    if not ((array > 0) & (array < 1)).all():
        raise SettingError(
            f"{where}: delta must lie between 0 and 1, both excluded, found {array}. 1e-5 is usual."
        )
    return array

"""An upper bound on ε of T rounds with secret sampling, fast enough for every trial of a search.

One round is a dominating pair of distributions (P, Q). Its privacy loss is put on an even grid by
connecting the dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): each cell's mass goes to
its two ends so that the masses under P and under Q both stay the same, which can only raise δ. The
T-fold sum is one FFT of the loss tilted by e^{θL}, with θ from the Rényi bound of a coarse grid:
then what wraps around from below is at most e^{−θ·window}, counted as δ, and what wraps from above
is at most the Chernoff bound e^{K(θ)−θ·top}, added to δ. Rounding of the FFT is added to every bin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import ArrayLike

from fedpareto.privacy.gaussian import (
    UNIT,
    gaussian_multiplier,
    least_multiplier,
    revealed_epsilon,
    sampled_epsilon,
)
from fedpareto.space import FloatArray

PAIRS = ("poisson", "poisson_replace", "fixed")
# how much of ε the grid may add
FAST = 2.5e-4
PRECISE = 4e-6
# below this noise multiplier revealed_epsilon is close enough: ε is in the thousands
LEAST = 0.05
MOST = 1 << 21  # bins of one FFT
TILTS = np.geomspace(0.01, 600.0, 40)  # θ tried, in units of one over the range of the loss


@dataclass(frozen=True)
class Direction:
    """One ordered pair (P, Q): its survival functions of the loss, and the losses worth a grid."""

    survival: Callable[[FloatArray], tuple[FloatArray, FloatArray]]  # ε → P(L > ε), Q(L > ε)
    low: float
    high: float
    # survival is asked at ε ≥ 0 alone, and the rest mirrors it: P(L = −ε) = e^{−ε} P(L = ε)
    symmetric: bool = False
    from_top: bool = False  # the grid starts from high, where the bulk of the loss lies


def release_epsilon(
    noise_multiplier: ArrayLike,
    ratio: ArrayLike,
    rounds: ArrayLike,
    delta: ArrayLike,
    pair: str = "poisson",
    accuracy: float = FAST,
) -> FloatArray:
    """Return an upper bound on ε of T rounds of the Gaussian mechanism on secret samples.

    noise_multiplier: the noise on the sum, over the clipping norm. ratio: the share of the clients
    in a sample. pair: "poisson" for a client that is there or zeroed out; "poisson_replace" and
    "fixed" (m clients without replacement) for a client replaced by any other. accuracy: the
    relative excess the grid is chosen for. The bound is never above what holds without sampling.
    """
    given = (noise_multiplier, ratio, rounds, delta)
    rows = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in given))
    own = rows[0] if pair == "poisson" else rows[0] / 2

    def price(z: float, q: float, T: int, delta: float) -> float:
        return _amplified(z, q, T, delta, pair, accuracy)

    return sampled_epsilon(own, tuple(rows), price)


def release_multiplier(
    epsilon: float, ratio: float, rounds: int, delta: float, pair: str = "poisson"
) -> float:
    """Return the least noise multiplier that holds ε by `release_epsilon`, rounded up."""

    def holds(z: float) -> bool:
        return bool(release_epsilon(z, ratio, rounds, delta, pair) <= epsilon)

    sensitivity = 1 if pair == "poisson" else 2
    # what is enough without sampling
    enough = float(gaussian_multiplier(epsilon, delta)) * sensitivity * math.sqrt(rounds)
    return enough if ratio == 1 else least_multiplier(holds, enough)


@lru_cache(maxsize=200_000)
def _amplified(z: float, q: float, rounds: int, delta: float, pair: str, accuracy: float) -> float:
    """Return an upper bound on ε of T rounds, each on a secret sample of a share q < 1."""
    own = z if pair == "poisson" else z / 2
    least = rounds * q * scipy.special.erf(1 / (2 * math.sqrt(2) * own)) * (1 + 8 * UNIT)
    if least <= delta:  # δ(0) adds up over rounds
        return 0.0
    if own < LEAST:
        return revealed_epsilon(own, q, rounds, delta)
    found = 0.0
    for d in directions(z, q, pair, accuracy * delta / rounds):
        if rounds == 1:
            epsilon = _single(d, delta)
        else:
            epsilon = _composed(d, rounds, delta, accuracy, found)
        found = max(found, epsilon)
    return found


def _single(d: Direction, delta: float) -> float:
    """Return ε of one round in one direction, from δ(ε) = P(L > ε) − e^ε Q(L > ε), rounded up."""
    low = 0.0
    high = max(d.high, 0.0)
    for _ in range(7):
        grid = np.linspace(low, high, 201)
        p, q = d.survival(grid)
        second = np.exp(grid) * q
        holds = p - second + _rounding(p, second, grid) <= delta
        at = int(np.argmax(np.append(holds[:-1], True)))
        low = grid[max(at - 1, 0)]
        high = grid[at]
    return float(high)


def _rounding(p: FloatArray, second: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Return how far δ(ε) may be off by rounding; a tail's error grows with its logarithm."""
    tail = 1 - np.log(np.maximum(p, 1e-300))
    return np.asarray(8 * UNIT * (p * tail + second * (tail + epsilon)))


def directions(z: float, q: float, pair: str, mass: float) -> tuple[Direction, ...]:
    """Return the ordered pairs that dominate one round; the round's ε is the largest over them.

    Losses of probability `mass` at the top are left out.

    "fixed": Balle, Barthe, Gaboardi 2018 and Zhu, Dong, Wang 2022, sampling without replacement,
    with sensitivity 2c. "poisson_replace": (1−q)N(0) + qN(±1), as dp-accounting's REPLACE_ONE.
    """
    shift = (2 if pair == "fixed" else 1) / z
    ndtri = scipy.special.ndtri
    farthest = -float(ndtri(mass))
    far = min(farthest, max(-float(ndtri(min(0.5, mass / 2 / q))), -float(ndtri(mass / 2)) - shift))
    if pair == "fixed":
        most = _mixed(2.0 / z**2 + 2 * far / z, q)
        return (Direction(lambda e: _removed(e, z / 2, q), 0.0, most, symmetric=True),)
    top = 0.5 / z**2 + far / z
    bottom = -0.5 / z**2 - max(farthest, 7.0) / z
    if pair == "poisson_replace":
        most = _mixed(top, q) - _mixed(bottom - 1 / z**2, q)
        return (Direction(lambda e: _replaced(e, z, q), 0.0, most, symmetric=True),)
    if bottom > -12:
        most = -_mixed(bottom, q)
    else:
        most = -math.log1p(-q) * (1 + 1e-15)  # the loss is never above −log(1 − q)
    return (
        Direction(lambda e: _removed(e, z, q), _mixed(bottom, q), _mixed(top, q)),
        Direction(lambda e: _added(e, z, q), -_mixed(7 / z - 0.5 / z**2, q), most, from_top=True),
    )


def _mixed(u: float, q: float) -> float:
    """Return log(1 − q + q e^u): the loss of the mixture where the Gaussian's own is u."""
    return float(np.logaddexp(math.log1p(-q), math.log(q) + u))


def _unmixed(epsilon: FloatArray, q: float) -> FloatArray:
    """Return u with log(1 − q + q e^u) = ε, −∞ below its range."""
    with np.errstate(divide="ignore", over="ignore"):
        u = np.log1p(np.maximum(np.expm1(np.minimum(epsilon, 700.0)) / q, -1.0))
    return np.where(epsilon > 700, epsilon - math.log(q), u)


def _removed(epsilon: FloatArray, z: float, q: float) -> tuple[FloatArray, FloatArray]:
    """Return P(L > ε) and Q(L > ε) for P = (1−q)N(0) + qN(1) and Q = N(0)."""
    u = z * _unmixed(epsilon, q)
    half = 0.5 / z
    without = scipy.special.ndtr(-u - half)
    return (1 - q) * without + q * scipy.special.ndtr(half - u), without


def _added(epsilon: FloatArray, z: float, q: float) -> tuple[FloatArray, FloatArray]:
    """Return P(L > ε) and Q(L > ε) for P = N(0) and Q = (1−q)N(0) + qN(1)."""
    u = z * _unmixed(-epsilon, q)
    half = 0.5 / z
    without = scipy.special.ndtr(u + half)
    return without, (1 - q) * without + q * scipy.special.ndtr(u - half)


def _replaced(epsilon: FloatArray, z: float, q: float) -> tuple[FloatArray, FloatArray]:
    """Return P(L > ε) and Q(L > ε), ε ≥ 0, for P = (1−q)N(0) + qN(1) and Q = (1−q)N(0) + qN(−1)."""
    # x / z² = ε/2 + arsinh((1−q) sinh(ε/2) / (q k)), k = e^{−1/2z²}; past 300 the arsinh is a sum
    # of logs
    half = 0.5 * epsilon
    scale = math.log((1 - q) / q) + 0.5 / z**2
    with np.errstate(divide="ignore"):
        logs = scale + half + np.log(-np.expm1(-epsilon) / 2)
    small = np.arcsinh(np.exp(np.minimum(logs, 300.0)))
    x = z * (half + np.where(logs > 300, logs + math.log(2), small))
    shared = (1 - q) * scipy.special.ndtr(-x)
    return shared + q * scipy.special.ndtr(1 / z - x), shared + q * scipy.special.ndtr(-1 / z - x)


@dataclass(frozen=True)
class Loss:
    """The distribution of one round's loss on a grid: first + j·step has probability mass[j]."""

    first: float
    step: float
    mass: FloatArray  # [n + 1]
    infinite: float  # the probability that is left, of an infinite loss

    def losses(self) -> FloatArray:
        """Return the losses of the grid [n + 1]."""
        return np.asarray(self.first + self.step * np.arange(len(self.mass), dtype=np.float64))


def on_grid(d: Direction, step: float) -> Loss:
    """Return a direction's loss on a grid, by connecting the dots."""
    cells = max(1, math.ceil((d.high - d.low) / step))
    first = d.low
    if d.from_top:
        first = d.high - cells * step
    edges = first + step * np.arange(cells + 1, dtype=np.float64)
    p, q = d.survival(edges)
    mass = np.zeros(cells + 1)
    infinite = float(p[-1])
    cell = p[:-1] - p[1:]
    up = np.clip((cell - np.exp(edges[:-1]) * (q[:-1] - q[1:])) / -math.expm1(-step), 0.0, cell)
    mass[:-1] += cell - up
    mass[1:] += up
    if d.symmetric:
        mirrored = (mass * np.exp(-edges))[:0:-1]
        mass[0] = max(0.0, 1.0 - infinite - mass[1:].sum() - mirrored.sum())
        return Loss(-step * cells, step, np.concatenate([mirrored, mass]), infinite)
    mass[0] += max(0.0, 1.0 - float(p[0]))
    return Loss(first, step, mass, infinite)


@dataclass(frozen=True)
class Tilt:
    """Parameters of the FFT of the sum of T losses: tilted by e^{θS}, seen through a window."""

    theta: float
    bound: float  # ε by Rényi divergences, which the coarse grid makes a bound too
    top: float  # above it the sum has probability at most accuracy·δ
    window: float


def _tilt(loss: Loss, rounds: int, delta: float, accuracy: float) -> Tilt:
    """Choose θ = α − 1 for the shortest FFT.

    The bound is Canonne, Kamath, Steinke 2020, Proposition 12.
    """
    losses = loss.losses()
    theta = TILTS / (losses[-1] - losses[0])  # [40]
    one = np.log(np.exp(theta[:, None] * (losses - losses[-1])) @ loss.mass) + theta * losses[-1]
    total = rounds * one  # K(θ)
    left = delta + math.expm1(rounds * math.log1p(-loss.infinite))
    spare = np.log1p(theta) + theta * np.log1p(1 / theta)
    bound = float(np.min((total - math.log(left) - spare) / theta))
    tops = (total - math.log(accuracy * delta)) / theta
    # where e^{θS} leaves little: Chernoff with any larger θ
    with np.errstate(divide="ignore", invalid="ignore"):
        # [40, 40]
        rare = (total - total[:, None] - math.log(accuracy / 10)) / (theta - theta[:, None])
    rare = np.where(theta > theta[:, None], rare, rounds * losses[-1]).min(axis=1)
    windows = np.maximum(-math.log(accuracy * delta) / theta, tops - bound + 5 / theta)
    windows = np.maximum(windows, rare - bound + 4 / theta)
    best = int(np.argmin(windows * np.sqrt((theta + 1) / np.maximum(1 / theta, bound))))
    return Tilt(float(theta[best]), bound, float(tops[best]), float(windows[best]))


def _composed(d: Direction, rounds: int, delta: float, accuracy: float, reached: float) -> float:
    """Return ε of T rounds in one direction; if it is below `reached`, any such value will do."""
    if rounds * d.high <= reached or d.high - d.low < 1e-12 * abs(d.high):
        return max(rounds * d.high, 0.0)
    tilt = _tilt(on_grid(d, (d.high - d.low) / 256), rounds, delta, accuracy)
    if tilt.bound <= reached:
        return max(tilt.bound, 0.0)
    theta = tilt.theta
    window = tilt.window
    expected = tilt.bound
    for _ in range(6):
        # connecting the dots adds about T θ(θ+1) step²/12 to K(θ), so T (θ+1) step²/12 to ε
        step = math.sqrt(
            12 * accuracy * max(theta * expected, 0.05) / (rounds * theta * (theta + 1))
        )
        step = max(step, window / MOST, (d.high - d.low) / MOST)
        loss = on_grid(d, step)
        tilted = _tilted(loss, theta, rounds, max(16, math.ceil(window / step)))
        found = _read(tilted, tilt, loss, rounds, delta)
        if found is None:
            window *= 2
        elif found == 0:
            return 0.0
        elif found > 0.4 * expected:
            return min(found, tilt.bound)
        else:
            expected = found
    if found is None:
        found = tilt.bound
    return max(found, 0.0)


def _tilted(loss: Loss, theta: float, rounds: int, bins: int) -> tuple[FloatArray, float]:
    """Return the probabilities of the T-fold sum tilted by e^{θS}, and K(θ) = T log E[e^{θL}].

    Probabilities are folded modulo the bins and rounded up.
    """
    bins = scipy.fft.next_fast_len(bins, real=True)
    weights = loss.mass * np.exp(theta * loss.step * np.arange(1 - len(loss.mass), 1))
    mean = weights.sum()
    folded = np.zeros(-(-len(weights) // bins) * bins)
    folded[: len(weights)] = weights / mean
    waves = scipy.fft.rfft(folded.reshape(-1, bins).sum(axis=0))
    kept = np.abs(waves) > math.exp(-60 / rounds)  # what is left out is below e^{−60}
    powers = np.zeros_like(waves)
    powers[kept] = _power(waves[kept], rounds)
    error = 4e-16 * (rounds + 30) * (2 * np.abs(powers).sum() / bins) + math.exp(-60)
    last = loss.first + loss.step * (len(loss.mass) - 1)
    probabilities = np.maximum(scipy.fft.irfft(powers, bins), 0.0) + error
    return probabilities, rounds * (math.log(mean) + theta * last)


def _power(base: FloatArray, exponent: int) -> FloatArray:
    """Return an integer power by squaring: ten times faster than numpy's for complex numbers."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base = base * base
        exponent = exponent >> 1
    return result


def _read(
    tilted: tuple[FloatArray, float], tilt: Tilt, loss: Loss, rounds: int, delta: float
) -> float | None:
    """Return the least ε with δ(ε) ≤ δ, or None if it lies below the window under tilt.top."""
    wheel, total = tilted
    h = loss.step
    origin = rounds * loss.first
    last = math.ceil((tilt.top - origin) / h)
    first = max(last - len(wheel), math.floor((tilt.bound - 40 / tilt.theta - origin) / h))
    start = origin + first * h
    n = last - first
    # in units of e^{K − θ start}
    weights = wheel[np.arange(first, last) % len(wheel)] * np.exp(-tilt.theta * h * np.arange(n))
    unit = math.exp(tilt.theta * start - total)
    left = delta * (1 - 1e-9) + math.expm1(rounds * math.log1p(-loss.infinite))
    allowed = left * unit - math.exp(-tilt.theta * h * n)
    gain = -np.expm1(-h * np.arange(n + 1))  # 1 − e^{ε − S}

    def holds(k: int) -> bool:
        return bool(weights[k:] @ gain[: n - k] <= allowed)

    if holds(0):
        return 0.0 if start <= 0 else None
    low = 0
    high = n
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    if high == n:
        return math.inf
    # δ(ε) = Σ above − e^{ε − end} Σ above·e^{end − S} between the last two bins
    above = weights[high:]
    inside = math.log((above.sum() - allowed) / float(above @ (1 - gain[: n - high])))
    return max(0.0, (start + high * h + min(inside, 0.0)) * (1 + 1e-12))

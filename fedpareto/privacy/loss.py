"""The privacy loss of T rounds with secret sampling: an upper bound on ε, quick enough to price every trial of a search.

One round is a dominating pair of distributions (P, Q). Its privacy loss is put on an even grid by connecting the dots
(Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): each cell's mass goes to its two ends so that the masses under P and
under Q both stay the same, which can only raise δ. The T-fold sum is one FFT of the loss tilted by e^{θL}, with θ from
the Rényi bound of a coarse grid: then what wraps around from below is at most e^{−θ·window}, counted as δ, and what
wraps from above is at most the Chernoff bound e^{K(θ)−θ·top}, added to δ. Rounding of the FFT is added to every bin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import bdtr, bdtrc, erf, ndtr, ndtri

from fedpareto.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_multiplier
from fedpareto.space import FloatArray

PAIRS = ("poisson", "poisson_replace", "fixed")
FAST, PRECISE = 2.5e-4, 4e-6  # how much of ε the grid may add
LEAST = 0.05  # below this noise multiplier take revealed_epsilon: close enough, and ε is in the thousands
MOST = 1 << 21  # bins of one FFT
TILTS = np.geomspace(0.01, 600.0, 40)  # θ tried, in units of one over the range of the loss


@dataclass(frozen=True)
class Direction:
    """One ordered pair (P, Q): its survival functions of the loss, and the losses worth a grid."""

    survival: Callable[[FloatArray], tuple[FloatArray, FloatArray]]  # ε → P(L > ε), Q(L > ε)
    low: float
    high: float
    symmetric: bool = (
        False  # survival is asked at ε ≥ 0 alone, the rest mirrors it: P(L = −ε) = e^{−ε} P(L = ε)
    )
    from_top: bool = False  # the grid starts from high, where the bulk of the loss lies


def release_epsilon(
    noise_multiplier: ArrayLike,
    ratio: ArrayLike,
    rounds: ArrayLike,
    delta: ArrayLike,
    pair: str = "poisson",
    accuracy: float = FAST,
) -> FloatArray:
    """Return an upper bound on ε of T rounds of the Gaussian mechanism on a secret sample, a share `ratio` of the clients.

    noise_multiplier: of the noise on the sum, over the clipping norm. pair: "poisson" for a client that is there or zeroed
    out; "poisson_replace" and "fixed" (m clients without replacement) for a client replaced by any other. accuracy: the
    relative excess the grid is chosen for. Never above what holds without sampling.
    """
    z, q, T, delta = np.broadcast_arrays(
        *(np.asarray(v, dtype=np.float64) for v in (noise_multiplier, ratio, rounds, delta))
    )
    least = gaussian_epsilon((z if pair == "poisson" else z / 2) / np.sqrt(T), delta)
    asked = (q < 1) & (least > 0) & np.isfinite(least)
    rows = zip(*(v[asked].tolist() for v in (z, q, T, delta)), strict=True)
    found = np.full(z.shape, np.inf)
    found[asked] = [_amplified(*row, pair, accuracy) for row in rows]
    return np.asarray(np.minimum(least, found))


def release_multiplier(
    epsilon: float, ratio: float, rounds: int, delta: float, pair: str = "poisson"
) -> float:
    """Return the least noise multiplier that holds ε by `release_epsilon`, rounded up."""

    def holds(z: float) -> bool:
        return bool(release_epsilon(z, ratio, rounds, delta, pair) <= epsilon)

    high = (
        float(gaussian_multiplier(epsilon, delta))
        * (1 if pair == "poisson" else 2)
        * math.sqrt(rounds)
    )  # without sampling
    if ratio == 1:
        return high
    low = 0.5 * high
    while low > 1e-12 and holds(low):
        low, high = 0.5 * low, low
    while high > low * (1 + 1e-7):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@lru_cache(maxsize=200_000)
def _amplified(z: float, q: float, T: float, delta: float, pair: str, accuracy: float) -> float:
    rounds, own = int(T), z if pair == "poisson" else z / 2
    if rounds * q * erf(1 / (2 * math.sqrt(2) * own)) <= delta:  # δ(0) adds up over rounds
        return 0.0
    if own < LEAST:
        return revealed_epsilon(own, q, rounds, delta)
    found = 0.0
    for d in directions(z, q, pair, accuracy * delta / rounds):
        found = max(
            found,
            _single(d, delta) if rounds == 1 else _composed(d, rounds, delta, accuracy, found),
        )
    return found


def _single(d: Direction, delta: float) -> float:
    """Return ε of one round in one direction, from δ(ε) = P(L > ε) − e^ε Q(L > ε)."""
    low, high = 0.0, max(d.high, 0.0)
    for _ in range(7):
        grid = np.linspace(low, high, 201)
        p, q = d.survival(grid)
        at = int(np.argmax(np.append((p - np.exp(grid) * q <= delta)[:-1], True)))
        low, high = grid[max(at - 1, 0)], grid[at]
    return float(high)


def revealed_epsilon(noise_multiplier: float, ratio: float, rounds: int, delta: float) -> float:
    """Return ε if it were known in which rounds the client took part: δ(ε) = Σ Bin(n; T, q) δ_{z/√n}(ε).

    Knowing more never lowers ε, so this bounds the secret sample from above. Close where noise is small.
    """
    most = max(1, int(np.argmax(bdtrc(np.arange(rounds + 1), rounds, ratio) <= 1e-3 * delta)))
    n = np.unique(
        np.linspace(1, most, min(most, 256)).astype(int)
    )  # between two counts the larger stands for both
    shares = np.diff(bdtr(n, rounds, ratio), prepend=bdtr(0, rounds, ratio))
    beyond, z = float(bdtrc(most, rounds, ratio)), noise_multiplier / np.sqrt(n)
    low, high = 0.0, float(gaussian_epsilon(noise_multiplier / math.sqrt(most), delta * (1 - 2e-3)))
    for _ in range(40):
        middle = 0.5 * (low + high)
        holds = shares @ gaussian_delta(z, middle) + beyond <= delta
        low, high = (low, middle) if holds else (middle, high)
    return high


def directions(z: float, q: float, pair: str, mass: float) -> tuple[Direction, ...]:
    """Return the ordered pairs that dominate one round; ε is the largest over them. `mass` is left out above.

    "fixed": Balle, Barthe, Gaboardi 2018 and Zhu, Dong, Wang 2022, sampling without replacement, with sensitivity 2c.
    "poisson_replace": (1−q)N(0) + qN(±1), as dp-accounting's REPLACE_ONE.
    """
    shift, farthest = (2 if pair == "fixed" else 1) / z, -float(ndtri(mass))
    far = min(farthest, max(-float(ndtri(min(0.5, mass / 2 / q))), -float(ndtri(mass / 2)) - shift))
    if pair == "fixed":
        return (
            Direction(
                lambda e: _removed(e, z / 2, q),
                0.0,
                _mixed(2.0 / z**2 + 2 * far / z, q),
                symmetric=True,
            ),
        )
    top, bottom = 0.5 / z**2 + far / z, -0.5 / z**2 - max(farthest, 7.0) / z
    if pair == "poisson_replace":
        return (
            Direction(
                lambda e: _replaced(e, z, q),
                0.0,
                _mixed(top, q) - _mixed(bottom - 1 / z**2, q),
                symmetric=True,
            ),
        )
    most = (
        -_mixed(bottom, q) if bottom > -12 else -math.log1p(-q) * (1 + 1e-15)
    )  # past it there is nothing
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
    u, half = z * _unmixed(epsilon, q), 0.5 / z
    without = ndtr(-u - half)
    return (1 - q) * without + q * ndtr(half - u), without


def _added(epsilon: FloatArray, z: float, q: float) -> tuple[FloatArray, FloatArray]:
    u, half = z * _unmixed(-epsilon, q), 0.5 / z
    without = ndtr(u + half)
    return without, (1 - q) * without + q * ndtr(u - half)


def _replaced(epsilon: FloatArray, z: float, q: float) -> tuple[FloatArray, FloatArray]:
    # x / z² = ε/2 + arsinh((1−q) sinh(ε/2) / (q k)), k = e^{−1/2z²}; past 300 the arsinh is a sum of logs
    half = 0.5 * epsilon
    scale = math.log((1 - q) / q) + 0.5 / z**2
    with np.errstate(divide="ignore"):
        logs = scale + half + np.log(-np.expm1(-epsilon) / 2)
    x = z * (
        half + np.where(logs > 300, logs + math.log(2), np.arcsinh(np.exp(np.minimum(logs, 300.0))))
    )
    shared = (1 - q) * ndtr(-x)
    return shared + q * ndtr(1 / z - x), shared + q * ndtr(-1 / z - x)


@dataclass(frozen=True)
class Loss:
    """The loss of one round on a grid: first + j·step has probability mass[j]; the rest of it is infinite."""

    first: float
    step: float
    mass: FloatArray  # [n + 1]
    infinite: float

    def losses(self) -> FloatArray:
        return np.asarray(self.first + self.step * np.arange(len(self.mass), dtype=np.float64))


def on_grid(d: Direction, step: float) -> Loss:
    """Connect the dots of a direction's profile."""
    cells = max(1, math.ceil((d.high - d.low) / step))
    first = d.high - cells * step if d.from_top else d.low
    edges = first + step * np.arange(cells + 1, dtype=np.float64)
    p, q = d.survival(edges)
    mass, infinite = np.zeros(cells + 1), float(p[-1])
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
    """How to look at the sum of T losses: under e^{θS}, through a window of some length."""

    theta: float
    bound: float  # ε by Rényi divergences, which the coarse grid makes a bound too
    top: float  # above it the sum has probability at most accuracy·δ
    window: float


def _tilt(loss: Loss, rounds: int, delta: float, accuracy: float) -> Tilt:
    """Choose θ = α − 1 for the shortest FFT; the bound is Canonne, Kamath, Steinke 2020, Proposition 12."""
    losses = loss.losses()
    theta = TILTS / (losses[-1] - losses[0])  # [40]
    total = rounds * (
        np.log(np.exp(theta[:, None] * (losses - losses[-1])) @ loss.mass) + theta * losses[-1]
    )  # K(θ)
    left = delta + math.expm1(rounds * math.log1p(-loss.infinite))
    spare = np.log1p(theta) + theta * np.log1p(1 / theta)
    bound = float(np.min((total - math.log(left) - spare) / theta))
    tops = (total - math.log(accuracy * delta)) / theta
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # where e^{θS} leaves little: Chernoff with any larger θ
        rare = (total - total[:, None] - math.log(accuracy / 10)) / (
            theta - theta[:, None]
        )  # [40, 40]
    rare = np.where(theta > theta[:, None], rare, rounds * losses[-1]).min(axis=1)
    windows = np.maximum(
        np.maximum(-math.log(accuracy * delta) / theta, tops - bound + 5 / theta),
        rare - bound + 4 / theta,
    )
    best = int(np.argmin(windows * np.sqrt((theta + 1) / np.maximum(1 / theta, bound))))
    return Tilt(float(theta[best]), bound, float(tops[best]), float(windows[best]))


def _composed(d: Direction, rounds: int, delta: float, accuracy: float, reached: float) -> float:
    """Return ε of T rounds in one direction; anything lower will do where it is below `reached`."""
    if rounds * d.high <= reached or d.high - d.low < 1e-12 * abs(d.high):
        return max(rounds * d.high, 0.0)
    tilt = _tilt(on_grid(d, (d.high - d.low) / 256), rounds, delta, accuracy)
    if tilt.bound <= reached:
        return max(tilt.bound, 0.0)
    theta, window, expected = tilt.theta, tilt.window, tilt.bound
    for _ in range(6):
        # connecting the dots adds about T θ(θ+1) step²/12 to K(θ), so T (θ+1) step²/12 to ε
        step = math.sqrt(
            12 * accuracy * max(theta * expected, 0.05) / (rounds * theta * (theta + 1))
        )
        step = max(step, window / MOST, (d.high - d.low) / MOST)
        loss = on_grid(d, step)
        found = _read(
            _tilted(loss, theta, rounds, max(16, math.ceil(window / step))),
            tilt,
            loss,
            rounds,
            delta,
        )
        if found is None:
            window *= 2
        elif found > 0.4 * expected or found == 0:
            return min(found, tilt.bound) if found else 0.0
        else:
            expected = found
    return max(tilt.bound if found is None else found, 0.0)


def _tilted(loss: Loss, theta: float, rounds: int, bins: int) -> tuple[FloatArray, float]:
    """Return the T-fold sum's probabilities under e^{θS}, modulo the bins, rounded up; and K(θ) = T log E[e^{θL}]."""
    bins = next_fast_len(bins, real=True)
    weights = loss.mass * np.exp(theta * loss.step * np.arange(1 - len(loss.mass), 1))
    mean = weights.sum()
    folded = np.zeros(-(-len(weights) // bins) * bins)
    folded[: len(weights)] = weights / mean
    waves = rfft(folded.reshape(-1, bins).sum(axis=0))
    kept = np.abs(waves) > math.exp(-60 / rounds)  # what is left out is below e^{−60}
    powers = np.zeros_like(waves)
    powers[kept] = _power(waves[kept], rounds)
    error = 4e-16 * (rounds + 30) * (2 * np.abs(powers).sum() / bins) + math.exp(-60)
    last = loss.first + loss.step * (len(loss.mass) - 1)
    return np.maximum(irfft(powers, bins), 0.0) + error, rounds * (math.log(mean) + theta * last)


def _power(base: FloatArray, exponent: int) -> FloatArray:
    """Return an integer power by squaring: ten times quicker than numpy's for complex numbers."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base, exponent = base * base, exponent >> 1
    return result


def _read(
    tilted: tuple[FloatArray, float], tilt: Tilt, loss: Loss, rounds: int, delta: float
) -> float | None:
    """Return the least ε with δ(ε) ≤ δ; None where it lies below the window, which ends at tilt.top."""
    (wheel, total), h, origin = tilted, loss.step, rounds * loss.first
    last = math.ceil((tilt.top - origin) / h)
    first = max(last - len(wheel), math.floor((tilt.bound - 40 / tilt.theta - origin) / h))
    start, n = origin + first * h, last - first
    weights = wheel[np.arange(first, last) % len(wheel)] * np.exp(
        -tilt.theta * h * np.arange(n)
    )  # in units of e^{K − θ start}
    unit = math.exp(tilt.theta * start - total)
    allowed = (
        delta * (1 - 1e-9) + math.expm1(rounds * math.log1p(-loss.infinite))
    ) * unit - math.exp(-tilt.theta * h * n)
    gain = -np.expm1(-h * np.arange(n + 1))  # 1 − e^{ε − S}

    def holds(k: int) -> bool:
        return bool(weights[k:] @ gain[: n - k] <= allowed)

    if holds(0):
        return 0.0 if start <= 0 else None
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    if high == n:
        return math.inf
    above = weights[
        high:
    ]  # δ(ε) = Σ above − e^{ε − end} Σ above·e^{end − S} between the last two bins
    inside = math.log((above.sum() - allowed) / float(above @ (1 - gain[: n - high])))
    return max(0.0, (start + high * h + min(inside, 0.0)) * (1 + 1e-12))

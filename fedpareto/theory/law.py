"""Pareto-optimal noise and rounds in closed form (Gu 2024, Eq. 8, Theorems 2 and 3).

With a = k/(qK) and s = σ², Eq. 8 asks to make 1/T + a·s and T/s small together. Where both T and s
may be real numbers the answer is the curve a·s·T = 1 (Theorem 2). Rounds are whole numbers, and
then every T has a band of σ: only the next T down and the next T up can dominate a point, and they
do so beyond the band's ends. `band` is exact; `printed_set` is Theorem 3 as the paper has it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray
from fedpareto.theory.inputs import TOLERANCE, box, noise_share, numbers, whole

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Rows = NDArray[np.void]  # a structured array: one row a point, columns by name
MOST = 10_000_000  # rows of a Pareto set


class Band(NamedTuple):
    """The range of σ that is Pareto-optimal with given rounds; an end that is open is excluded."""

    low: FloatArray
    high: FloatArray  # infinite at the first T where σ has no limit
    open_low: BoolArray
    open_high: BoolArray


def objectives(
    rounds: ArrayLike, sigma: ArrayLike, k: ArrayLike, clients: ArrayLike, sample_ratio: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Return utility loss f1 = 1/T + kσ²/(qK) and leakage f2 = √(qT)/σ (Gu 2024, Eq. 8).

    Without noise, leakage is infinite.
    """
    a = noise_share(k, clients, sample_ratio)
    T = numbers("rounds", rounds, least=1)
    s = numbers("sigma", sigma, least=0)
    q = np.asarray(sample_ratio, dtype=np.float64)
    with np.errstate(divide="ignore", over="ignore"):
        f1, f2 = np.broadcast_arrays(1 / T + a * s**2, np.sqrt(q * T) / s)
    return np.array(f1), np.array(f2)


def sigma_of(
    rounds: ArrayLike, k: ArrayLike, clients: ArrayLike, sample_ratio: ArrayLike
) -> FloatArray:
    """Return the noise that goes with these rounds: σ = √(qK/(kT)) (Gu 2024, Theorem 2, Eq. 15)."""
    a = noise_share(k, clients, sample_ratio)
    T = numbers("rounds", rounds, least=1)
    return np.asarray(np.sqrt(1 / (a * T)))


def band(
    rounds: ArrayLike,
    k: ArrayLike,
    clients: ArrayLike,
    sample_ratio: ArrayLike,
    rounds_max: ArrayLike,
    sigma_max: ArrayLike | None = None,
    sigma_min: ArrayLike = 0.0,
    rounds_min: ArrayLike = 1,
) -> Band:
    """Return which σ in [sigma_min, sigma_max] are Pareto-optimal with these rounds.

    This is exact for Gu 2024, Eq. 8, with whole T. It replaces Theorem 3, which has the centre line
    of each band only.
    """
    a = noise_share(k, clients, sample_ratio)
    sigmas = box(sigma_min, sigma_max)
    T = whole("rounds", rounds)
    ends = _range(rounds_min, rounds_max)
    if np.any((ends[0] > T) | (ends[1] < T)):
        raise SettingError(
            f"rounds: must lie between rounds_min and rounds_max, found {T} in {ends[0]} to "
            f"{ends[1]}. Widen the range."
        )
    squares = _squares(T, a, ends, sigmas)
    return squares._replace(low=np.sqrt(squares.low), high=np.sqrt(squares.high))


def is_pareto(
    rounds: ArrayLike,
    sigma: ArrayLike,
    k: ArrayLike,
    clients: ArrayLike,
    sample_ratio: ArrayLike,
    rounds_max: ArrayLike,
    sigma_max: ArrayLike | None = None,
    sigma_min: ArrayLike = 0.0,
    rounds_min: ArrayLike = 1,
) -> BoolArray:
    """Say which points (rounds, σ) are Pareto-optimal; a point outside the box is not.

    σ² within a relative 1e-12 of an end counts as the end.
    """
    a = noise_share(k, clients, sample_ratio)
    sigmas = box(sigma_min, sigma_max)
    T = whole("rounds", rounds)
    first, last = _range(rounds_min, rounds_max)
    s = numbers("sigma", sigma, least=0)
    with np.errstate(over="ignore"):
        s = np.asarray(s**2)
        ends = _squares(np.clip(T, first, last), a, (first, last), sigmas)
        from_low = np.where(
            ends.open_low, s > ends.low * (1 + TOLERANCE), s >= ends.low * (1 - TOLERANCE)
        )
        to_high = np.where(
            ends.open_high, s < ends.high * (1 - TOLERANCE), s <= ends.high * (1 + TOLERANCE)
        )
    return np.asarray(from_low & to_high & (first <= T) & (last >= T))


def _range(rounds_min: ArrayLike, rounds_max: ArrayLike) -> tuple[IntArray, IntArray]:
    first = whole("rounds_min", rounds_min)
    last = whole("rounds_max", rounds_max)
    if np.any(first > last):
        raise SettingError(f"rounds_min: must be at most rounds_max, found {first} and {last}.")
    return first, last


def _squares(
    T: IntArray,
    a: FloatArray,
    rounds: tuple[IntArray, IntArray],
    sigmas: tuple[FloatArray, FloatArray],
) -> Band:
    """Return the band of Pareto-optimal σ² for T rounds.

    T − 1 rounds with σ²(T−1)/T leak as much, and lose less where a·σ² > 1/(T−1); if that falls
    below the box, sigma_min takes its place, leaks less, and loses no more where a(σ² − sigma_min²)
    ≥ 1/(T(T−1)). T + 1 rounds with σ²(T+1)/T, if the box holds it, lose less where a·σ² < 1/(T+1).
    """
    first, last = rounds
    with np.errstate(divide="ignore", over="ignore"):
        least, most = (end**2 for end in sigmas)
        floor_binds = (first < T) & (least > (1 + TOLERANCE) / (a * T))
        down = np.where(floor_binds, least + 1 / (a * T * (T - 1.0)), 1 / (a * (T - 1.0)))
        down = np.where(first < T, down, np.inf)
        up = 1 / (a * (T + 1.0))
        reach = most * (T / (T + 1.0))
        ceiling_binds = (last > T) & (reach < up * (1 - TOLERANCE))
        low = np.where(last > T, np.minimum(up, reach), 0.0)
        open_low = ceiling_binds & (low >= least * (1 - TOLERANCE))
        open_high = floor_binds & (down <= most * (1 + TOLERANCE))
        low = np.maximum(low, least)
        high = np.minimum(down, most)
        return Band(*np.broadcast_arrays(low, high, open_low, open_high))


def pareto_set(
    *,
    k: float,
    clients: float,
    sample_ratio: float,
    rounds_max: int,
    sigma_max: float | None = None,
    sigma_min: float = 0.0,
    rounds_min: int = 1,
    points: int = 5,
) -> Rows:
    """Return the Pareto set as rows (rounds, sigma, f1, f2), the most private first.

    Each T gives `points` evenly spaced σ of its band, ends included; an open end is left out, and
    so is σ = 0, which leaks without bound. With points = 1 it is the law's σ, or the box's where
    the law lies outside. Without sigma_max the band of the first T has no end and is shown up to
    twice the law's σ.
    """
    n = int(whole("points", points))
    first, last = map(int, _range(rounds_min, rounds_max))
    if (last - first + 1) * n > MOST:
        raise SettingError(
            f"points: must give at most {MOST} rows, found {n} for each of {last - first + 1} "
            "rounds. Ask for fewer."
        )
    T = np.arange(first, last + 1)
    ends = band(T, k, clients, sample_ratio, rounds_max, sigma_max, sigma_min, rounds_min)
    centre = sigma_of(T, k, clients, sample_ratio)
    high = np.where(np.isinf(ends.high), 2 * centre, ends.high)
    if n == 1:
        sigma = np.clip(centre, *box(sigma_min, sigma_max))[:, None]
    else:
        skip = (ends.open_low | (ends.low == 0)).astype(float)
        spare = ends.open_high.astype(float)
        # [T,n], from low to high
        share = (np.arange(n) + skip[:, None]) / (n - 1 + skip + spare)[:, None]
        sigma = (ends.low[:, None] * (1 - share) + high[:, None] * share)[:, ::-1]
    T = np.repeat(T, n)
    sigma = sigma.ravel()
    f1, f2 = objectives(T, sigma, k, clients, sample_ratio)
    return table(rounds=T, sigma=sigma, f1=f1, f2=f2)


def case(
    k: float, clients: float, sample_ratio: float, rounds_max: int, sigma_max: float | None = None
) -> str:
    """Return which case of Gu 2024, Theorem 3 applies: "I", "II" or "III"."""
    a = noise_share(k, clients, sample_ratio)
    _, high = box(0.0, sigma_max)
    last = whole("rounds_max", rounds_max)
    if np.isinf(high):
        return "I"
    if a * high**2 * last > 1 + TOLERANCE:
        return "II"
    return "III"


def printed_set(
    *,
    k: float,
    clients: float,
    sample_ratio: float,
    rounds_max: int,
    sigma_max: float | None = None,
) -> Rows:
    """Return Theorem 3 as printed (Gu 2024, Eq. 21 to 23), as rows (rounds, low, high, feasible).

    In case II two of its lines name the same T = ⌊qK/(kσ_max²)⌋; the second then asks for more than
    sigma_max, or for T = 0, and such rows are not feasible. `band` is the exact set.
    """
    last = int(whole("rounds_max", rounds_max))
    which = case(k, clients, sample_ratio, rounds_max, sigma_max)
    if sigma_max is None or which == "I":
        rows = [(T, T) for T in range(1, last + 1)]
        sigma_max = np.inf
    elif which == "II":
        a = noise_share(k, clients, sample_ratio)
        turn = int(np.floor((1 + TOLERANCE) / (a * sigma_max**2)))
        rows = [(T, 0) for T in range(1, turn + 1)] + [(T, T) for T in range(turn, last + 1)]
    else:
        rows = [(T, 0) for T in range(1, last + 1)]
    T, law = np.array(rows).T  # law: the T whose σ the law gives, 0 where σ is sigma_max
    with np.errstate(divide="ignore"):
        high = np.where(law > 0, sigma_of(np.maximum(law, 1), k, clients, sample_ratio), np.inf)
    high = np.where((law == 0) & (T > 0), sigma_max, high)
    low = np.where((last == T) & (which != "I"), 0.0, high)
    feasible = (T >= 1) & (high <= sigma_max * (1 + TOLERANCE))
    return table(rounds=T, low=low, high=high, feasible=feasible)


def table(**columns: NDArray[Any]) -> Rows:
    """Return columns [n] as one structured array with a row for each point.

    rows["sigma"] is a column, rows[0] a row, rows.tolist() a list of tuples.
    """
    n = len(next(iter(columns.values())))
    rows = np.empty(n, dtype=[(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        rows[name] = column
    return rows

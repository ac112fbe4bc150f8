"""The papers' leakage formulas: proxies on each paper's own scale, not differential privacy."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray


def gu24_eq2(
    sigma: ArrayLike,
    clipping_norm: ArrayLike,
    sample_ratio: ArrayLike,
    rounds: ArrayLike,
    clients: ArrayLike,
    delta: ArrayLike,
    c: ArrayLike = 1.0,
) -> FloatArray:
    """Return leakage by Gu 2024, Eq. 2: C·c√(qT ln(1/δ)) / (√K σ), at least 0.

    It is infinite without noise. The paper never gives C; here it is 1 unless given. The formula is
    no bound on ε: the true one can be a thousand times as large.
    """
    s, clip, q, T, K, scale = _checked(
        "gu24_eq2",
        sigma=(sigma, 0, None),
        clipping_norm=(clipping_norm, None, 0),
        sample_ratio=(sample_ratio, None, 0),
        rounds=(rounds, 1, None),
        clients=(clients, 1, None),
        c=(c, None, 0),
    )
    d = _checked_delta("gu24_eq2", delta)
    with np.errstate(all="ignore"):
        return np.asarray(scale * (clip / s) * np.sqrt(-q * T * np.log(d) / K))


def kang23_eq13(
    sigma: ArrayLike, clipping_norm: ArrayLike, parameters: ArrayLike, c1: ArrayLike = 1.0
) -> FloatArray:
    """Return leakage by Kang 2023, Eq. 13: 1 − min(1, C₁ (σ²/c²) √d), in [0, 1].

    d is the number of parameters and C₁ = 1 unless given. The formula ignores rounds and
    neighbouring data sets: leakage 0 can go with an ε in the thousands.
    """
    noise = _noise_to_clip("kang23_eq13", sigma, clipping_norm, parameters, c1)
    return np.asarray(1.0 - np.minimum(1.0, np.asarray(c1, dtype=np.float64) * noise))


def kang23_eq13_smooth(
    sigma: ArrayLike, clipping_norm: ArrayLike, parameters: ArrayLike
) -> FloatArray:
    """Return what Kang 2023, Eq. 13 bounds, without its kink: erfc(√d σ²/(4c²)), in [0, 1].

    Within 0.002 of the exact overlap of the law of the parameters with and without noise. It has no
    C₁: that is a constant of the bound.
    """
    noise = _noise_to_clip("kang23_eq13_smooth", sigma, clipping_norm, parameters, 1.0)
    return np.asarray(scipy.special.erfc(noise / 4))


def _noise_to_clip(
    where: str, sigma: ArrayLike, clipping_norm: ArrayLike, parameters: ArrayLike, c1: ArrayLike
) -> FloatArray:
    """Return (σ²/c²) √d."""
    s, clip, d, _ = _checked(
        where,
        sigma=(sigma, 0, None),
        clipping_norm=(clipping_norm, None, 0),
        parameters=(parameters, 1, None),
        c1=(c1, None, 0),
    )
    with np.errstate(all="ignore"):
        return np.asarray((s / clip) ** 2 * np.sqrt(d))


def kang23_eq15(withheld: ArrayLike, c2: ArrayLike = 8.0, printed: bool = False) -> FloatArray:
    """Return one client's leakage by Kang 2023, Eq. 15: 1 − √2·(1 − exp(−μ/C₂))^½, in [0, 1].

    μ is the size of the values that the client withholds. As printed, the formula falls to 1 − √2
    and is not a number below μ = 0.
    """
    mu, scale = _checked("kang23_eq15", withheld=(withheld, None, None), c2=(c2, None, 0))
    if not printed:
        mu = np.maximum(mu, 0.0)
    with np.errstate(all="ignore"):
        kept = -np.expm1(-mu / scale)
        leakage = 1.0 - np.sqrt(2.0) * np.sqrt(kept)
    if not printed:
        leakage = np.clip(leakage, 0.0, 1.0)
    return np.asarray(leakage)


def kang23_eq15_exact(withheld: ArrayLike, spread: ArrayLike = 1.0) -> FloatArray:
    """Return the overlap that Kang 2023, Eq. 15 bounds: erfc(‖w‖/(2√2 τ)).

    ‖w‖ is the norm of the private values and τ their spread.
    """
    norm, tau = _checked(
        "kang23_eq15_exact", withheld=(withheld, 0, None), spread=(spread, None, 0)
    )
    with np.errstate(all="ignore"):
        return np.asarray(scipy.special.erfc(norm / tau / (2 * np.sqrt(2.0))))


def xiao25_eq7(
    noise_multiplier: ArrayLike,
    rounds: ArrayLike,
    sample_ratio: ArrayLike,
    delta: ArrayLike,
    printed: bool = False,
) -> FloatArray:
    """Return the privacy budget of Xiao 2025, Eq. 7: v·√(2T ln(1/δ))/σ, at least 0.

    It is infinite without noise. As printed the sampling rate v divides, so that asking fewer
    clients would cost privacy.
    """
    z, T, v = _checked(
        "xiao25_eq7",
        noise_multiplier=(noise_multiplier, 0, None),
        rounds=(rounds, 1, None),
        sample_ratio=(sample_ratio, None, 0),
    )
    d = _checked_delta("xiao25_eq7", delta)
    factor = 1 / v if printed else v
    with np.errstate(all="ignore"):
        return np.asarray(np.sqrt(-2 * T * np.log(d)) / z * factor)


def _checked(where: str, **given: tuple[ArrayLike, float | None, float | None]) -> list[FloatArray]:
    """Return values as arrays, after checking each: name = (values, at least, above)."""
    out = []
    for name, (values, least, above) in given.items():
        array = np.asarray(values, dtype=np.float64)
        holds = np.isfinite(array)
        rule = ""
        if above is not None:
            holds = holds & (array > above)
            rule = f" and above {above:g}"
        if least is not None:
            holds = holds & (array >= least)
            rule = f" and at least {least:g}"
        if not np.all(holds):
            raise SettingError(f"{where}: {name} must be finite{rule}, found {array}.")
        out.append(array)
    return out


def _checked_delta(where: str, delta: ArrayLike) -> FloatArray:
    (array,) = _checked(where, delta=(delta, None, 0))
    if not np.all(array < 1):
        raise SettingError(f"{where}: delta must be below 1, found {array}.")
    return array

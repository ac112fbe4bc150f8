"""The papers' leakage formulas. Each is a proxy: a scale of the paper's own, not differential privacy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.errors import SettingError
from fedpareto.space import FloatArray


def kang23_eq13(sigma: ArrayLike, clipping_norm: ArrayLike, parameters: ArrayLike, c1: float = 1.0) -> FloatArray:
    """Return leakage by Kang 2023, Eq. 13: 1 − min(1, C₁ (σ²/c²) √d), in [0, 1].

    d is the number of parameters and C₁ = 1 unless said. It knows neither rounds nor neighbours: leakage 0 can go with
    an ε in the thousands.
    """
    sigma, clip, d = (np.asarray(v, dtype=np.float64) for v in (sigma, clipping_norm, parameters))
    for name, value, least, holds in (("sigma", sigma, "at least 0", sigma >= 0), ("clipping_norm", clip, "above 0", clip > 0),
                                      ("parameters", d, "at least 1", d >= 1), ("c1", np.asarray(c1), "above 0", np.asarray(c1) > 0)):
        if not (np.isfinite(value) & holds).all():
            raise SettingError(f"kang23_eq13: {name} must be finite and {least}, found {value}.")
    with np.errstate(over="ignore"):
        return np.asarray(1.0 - np.minimum(1.0, c1 * (sigma / clip) ** 2 * np.sqrt(d)))

"""ε of T rounds with random cohorts, where it may show in which of them a client took part."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.privacy.gaussian import (
    gaussian_epsilon,
    gaussian_multiplier,
    least_multiplier,
    revealed_epsilon,
)
from fedpareto.space import FloatArray


def shown_epsilon(
    noise_multiplier: ArrayLike, ratio: ArrayLike, rounds: ArrayLike, delta: ArrayLike
) -> FloatArray:
    """Return an upper bound on ε of T rounds, where it may show in which a client took part.

    noise_multiplier: the noise on what is seen, over how far one client moves it. The client is
    still drawn at random for a share of the rounds.
    """
    given = (noise_multiplier, ratio, rounds, delta)
    z, q, T, delta = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in given))
    always = gaussian_epsilon(z / np.sqrt(T), delta)
    asked = (q < 1) & (always > 0) & np.isfinite(always)
    rows = zip(*(v[asked].tolist() for v in (z, q, T, delta)), strict=True)
    found = np.full(z.shape, np.inf)
    found[asked] = [revealed_epsilon(a, b, int(c), d) for a, b, c, d in rows]
    return np.asarray(np.minimum(always, found))


def shown_multiplier(epsilon: float, ratio: float, rounds: int, delta: float) -> float:
    """Return the least noise multiplier that holds ε by `shown_epsilon`, rounded up."""

    def holds(z: float) -> bool:
        return bool(shown_epsilon(z, ratio, rounds, delta) <= epsilon)

    enough = float(gaussian_multiplier(epsilon, delta)) * math.sqrt(rounds)
    return enough if ratio == 1 else least_multiplier(holds, enough)

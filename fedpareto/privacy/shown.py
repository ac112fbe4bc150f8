"""ε of T rounds with random cohorts, where it may show in which of them a client took part."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.privacy.gaussian import (
    gaussian_multiplier,
    least_multiplier,
    revealed_epsilon,
    sampled_epsilon,
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
    rows = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in given))
    return sampled_epsilon(rows[0], tuple(rows), revealed_epsilon)


def shown_multiplier(epsilon: float, ratio: float, rounds: int, delta: float) -> float:
    """Return the least noise multiplier that holds ε by `shown_epsilon`, rounded up."""

    def holds(z: float) -> bool:
        return bool(shown_epsilon(z, ratio, rounds, delta) <= epsilon)

    enough = float(gaussian_multiplier(epsilon, delta)) * math.sqrt(rounds)
    return enough if ratio == 1 else least_multiplier(holds, enough)

"""Check that a mechanism hides an upload as well as it states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.mechanisms import Mechanism, StatesLoss, Upload
from fedpareto.noise import Noise
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

DRAWS = 20_000  # uploads of each of two updates that must look alike
CHANCE = 1e-9  # that a right statement is refused, by each comparison
LENGTHS = (0.3, 1e3, math.inf)  # of the updates that are tried
LEVELS = (0.0, 0.5, 1.0, 2.0, 4.0)  # ε at which δ is compared


def check_loss(
    mechanism: Mechanism, stated: StatesLoss, values: Mapping[str, Tensor], cohort: float, seed: int
) -> None:
    """Check that uploads of two updates differ by no more than is stated, as far as can be seen.

    They are compared by how often a number that is sent, or their sum, lies beyond any threshold.
    """
    numbers = {name: float(v[0]) for name, v in values.items()} | {"cohort": cohort}
    some = {name: v[:1] for name, v in values.items()}
    for replace in (False, True):
        loss = stated.privacy_loss(numbers, replace)
        if loss is None:
            continue
        allowed = [float(loss.get_delta_for_epsilon(level)) for level in LEVELS]
        for length in LENGTHS:
            mine = _sent(mechanism, some, length, seed)
            other = _sent(mechanism, some, -length if replace else 0.0, seed + 1)
            assert np.isfinite(mine).all(), "what hides an infinite update must be finite"
            for a, b in zip(mine, other, strict=True):
                for level, most in zip(LEVELS, allowed, strict=True):
                    found = max(_delta(a, b, level), _delta(b, a, level))
                    assert found <= most, (
                        f"privacy_loss must hold for an update of length {length:g}: its δ at "
                        f"ε = {level:g} must be at least {found:.3g}, found {most:.3g}"
                    )


def _sent(
    mechanism: Mechanism, values: Mapping[str, Tensor], length: float, seed: int
) -> FloatArray:
    """Return the first number of many uploads of one update, and the sum of all, [2, draws]."""
    import torch

    updates = torch.zeros(1, DRAWS, 3)
    updates[..., 0] = length
    one = torch.ones(1, DRAWS)
    upload = Upload(updates, one * 3, one * 32, one * 0)
    out = mechanism.protect(upload, values, Noise(seed, 0, range(DRAWS))).values[0].double().numpy()
    return np.stack([out[:, 0], out.sum(axis=1)])


def _delta(a: FloatArray, b: FloatArray, level: float) -> float:
    """Return a δ that is surely needed at an ε for a to look like b, by thresholds of either side.

    Shares are off by less than the width of Dvoretzky, Kiefer, Wolfowitz and Massart 1990.
    """
    width = math.sqrt(math.log(2 / CHANCE) / (2 * DRAWS))
    cuts = np.unique(np.quantile(np.concatenate([a, b]), np.linspace(0, 1, 201)))
    below_a = np.searchsorted(np.sort(a), cuts) / len(a)
    below_b = np.searchsorted(np.sort(b), cuts) / len(b)
    sides = ((below_a, below_b), (1 - below_a, 1 - below_b))
    needed = [np.max(p - width - math.exp(level) * (q + width)) for p, q in sides]
    return float(max(needed))

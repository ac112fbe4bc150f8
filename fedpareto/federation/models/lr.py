"""Logistic regression as a model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Lr:
    """Logistic regression: one linear layer."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))

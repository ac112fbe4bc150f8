"""The CNN of Xiao 2025 for MNIST."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.errors import ModelError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Cnn:
    """Two 3×3 convolutions of 32 and 64 channels, pooled, and two dense layers (Xiao 2025)."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        if len(shape) != 3:
            raise ModelError(
                f"cnn: inputs must be images [channels, height, width], found shape {list(shape)}."
            )
        if min(shape[1:]) < 4:
            raise ModelError(f"cnn: images must be at least 4×4, found {shape[1]}×{shape[2]}.")
        features = 64 * (shape[1] // 4) * (shape[2] // 4)
        return nn.Sequential(
            nn.Conv2d(shape[0], 32, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(features, 128),
            nn.ReLU(),
            nn.Linear(128, classes),
        )

"""Your model: any nn.Module that maps inputs [n, ...] to scores [n, classes]."""

from __future__ import annotations

from torch import Tensor, nn


class Net(nn.Module):
    """A small network; hidden comes from the study file, where it may be a range too."""

    def __init__(self, features: int = 30, hidden: int = 16, classes: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

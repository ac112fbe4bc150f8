"""A model and data of one's own: an nn.Module, and an .npz file with four arrays.

Write example data to examples/own_data.npz, where yours may be: python examples/own_model.py
Run a study with both: fedpareto run examples/own_model.toml
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor, nn


class Net(nn.Module):
    """Any module that maps inputs [n, ...] to scores [n, classes]."""

    def __init__(self, features: int = 8, hidden: int = 24, classes: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def make_data(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs [n, 8], floats, and their classes [n], whole numbers from 0."""
    y = rng.integers(0, 3, n)
    x = rng.normal(size=(n, 8)) + 1.5 * np.eye(3, 8)[y]
    return x.astype(np.float32), y


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x_train, y_train = make_data(1500, rng)
    x_test, y_test = make_data(500, rng)
    path = Path(__file__).with_name("own_data.npz")
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    print(f"wrote {path.name}")

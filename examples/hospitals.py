"""A model with a width to search and a measure, for the study of hospitals.

fedpareto run examples/hospitals.toml
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from fedpareto.settings import Whole, setting


class Net(nn.Module):
    """One hidden layer."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@dataclass(frozen=True)
class Searched:
    """A Net whose width is a setting of the study, so that a range of it is searched."""

    hidden: Whole = setting(8, help="neurons of the hidden layer", at_least=1, at_most=256)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return Net(shape[0], int(self.hidden), classes)


def one_minus_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return how far the model is from telling malignant (1) from benign (0), 0 to 1."""
    return 1 - float(roc_auc_score(labels, scores[:, 1] - scores[:, 0]))

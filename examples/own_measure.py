"""A measure and a loss of one's own: numpy for the measure, torch for the loss.

fedpareto run examples/own_measure.toml
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch.nn.functional import cross_entropy


def one_minus_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Return how far the model is from telling the digit 8 from all others, 0 to 1."""
    return 1 - float(roc_auc_score(labels == 8, scores[:, 8]))


def focal(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return a loss for each record that cares less about what is right already (Lin 2017)."""
    loss = cross_entropy(scores, labels, reduction="none")
    return (1 - torch.exp(-loss)) ** 2 * loss

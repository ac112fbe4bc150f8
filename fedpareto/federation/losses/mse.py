"""Mean squared error: for numbers, or for classes as a vector of zeros and a one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Mse:
    """The squared distance of the scores from the label, mean over the scores."""

    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        return (scores - _target(scores, labels, classes=1)).square().mean(1)

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        target = _target(scores, labels, classes=2)
        return (scores - target[:, None]) * (2 / scores.shape[2])


def _target(scores: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return labels [...,b] as what scores [...,C,b] should be; classes is the dimension of C."""
    from torch.nn.functional import one_hot

    if labels.is_floating_point():
        return labels.unsqueeze(-2)
    return one_hot(labels, scores.shape[classes]).transpose(-1, -2).to(scores.dtype)

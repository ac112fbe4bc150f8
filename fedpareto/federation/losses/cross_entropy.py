"""Cross-entropy of the softmax of the scores: for classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CrossEntropy:
    """The negative logarithm of the probability that a model gives the right class."""

    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(scores, labels.expand(len(scores), -1), reduction="none")

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        from torch.nn.functional import one_hot

        slope = scores.softmax(2)
        slope -= one_hot(labels, scores.shape[2]).transpose(1, 2)[:, None]  # [M,1,C,B]
        return slope

"""What a loss is: scores and labels in, one number for each record out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Loss(Protocol):
    """A loss of single records, for many models at once."""

    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss [R,b] of every record, from scores [R,C,b] and labels [b]."""

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return how each record's loss grows with its scores, [M,R,C,B]; labels are [M,B]."""

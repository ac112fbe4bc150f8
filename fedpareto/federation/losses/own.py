"""A loss of the user's own, named by dotted path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.errors import SettingError
from fedpareto.settings import function_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class OwnLoss:
    """A function of scores [n,C] and labels [n], as tensors, that returns a loss for each, [n].

    It must treat each record by itself and be differentiable; torch works out its slope.
    """

    name: str

    def each(self, scores: Tensor, labels: Tensor) -> Tensor:
        R, C, b = scores.shape
        flat = scores.transpose(1, 2).reshape(R * b, C)
        return self._called(flat, labels.repeat(R)).view(R, b)

    def slope(self, scores: Tensor, labels: Tensor) -> Tensor:
        import torch

        M, R, C, B = scores.shape
        with torch.enable_grad():
            flat = scores.detach().permute(0, 1, 3, 2).reshape(M * R * B, C).requires_grad_()
            expanded = labels[:, None].expand(M, R, B).reshape(M * R * B)
            (slope,) = torch.autograd.grad(self._called(flat, expanded).sum(), flat)
        return slope.view(M, R, B, C).transpose(2, 3)

    def _called(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Call the function and refuse an answer that is not one number for each record."""
        out: Tensor = function_of(self.name)(scores, labels)
        shape = getattr(out, "shape", None)
        if shape is None or tuple(shape) != (len(scores),):
            found = type(out).__name__ if shape is None else f"shape {list(shape)}"
            raise SettingError(
                f"training.loss: {self.name!r} must return a tensor with one loss for each record, "
                f"[{len(scores)}], found {found}. Do not take the mean."
            )
        return out

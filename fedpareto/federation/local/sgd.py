"""Plain stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.federation.local.base import MiniBatch

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.federation.grouped import Step
    from fedpareto.federation.losses import Loss
    from fedpareto.federation.stack import Stack


@dataclass(frozen=True)
class Sgd:
    """Move against the gradient of the mean loss of the mini-batch."""

    def descend(
        self, stack: Stack, params: list[Tensor], batch: MiniBatch, loss: Loss, step: Step
    ) -> None:
        import torch

        scores = stack.scores(params, batch.x, step)
        with torch.no_grad():
            slope = loss.slope(scores, batch.y.t())
            slope *= batch.weight.t()[:, None, None]
        gradients = torch.autograd.grad(scores, params, slope, allow_unused=True)
        with torch.no_grad():
            for i, (p, gradient) in enumerate(zip(params, gradients, strict=True)):
                if gradient is not None:  # None where the backward pass has taken the step itself
                    step.move(i, p, gradient)

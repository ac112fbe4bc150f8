"""What a local step is: models and a mini-batch in, the models moved in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.federation.grouped import Step
    from fedpareto.federation.losses import Loss
    from fedpareto.federation.stack import Stack


@dataclass(frozen=True)
class MiniBatch:
    """The mini-batches of M clients, one of B records each; some places may be padding."""

    x: Tensor  # [B,M,...]
    y: Tensor  # [B,M]
    weight: Tensor  # [B,M] what each record counts in its batch's mean; 0 where padded


@runtime_checkable
class LocalStep(Protocol):
    """A frozen dataclass of settings that says how clients take one mini-batch step.

    Everything runs on the device without a look at its results, so that a CUDA graph can hold it.
    """

    def descend(
        self, stack: Stack, params: list[Tensor], batch: MiniBatch, loss: Loss, step: Step
    ) -> None:
        """Move models [M,R,...], in place, by one step on their mini-batches."""

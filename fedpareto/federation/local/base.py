"""What a local step is: models and a mini-batch in, the models moved in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.federation.grouped import Step
    from fedpareto.federation.losses import Loss
    from fedpareto.federation.stack import Stack
    from fedpareto.settings import Real


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


@runtime_checkable
class ClipsRecords(Protocol):
    """It bounds how far each record moves a step, and hides that by Gaussian noise.

    The gradient of a record has at most record_clipping_norm, and the noise on the sum of a
    mini-batch is record_noise_multiplier times that; the sum is divided by batch_size. Mini-batches
    are drawn as `contract.BATCHES` says. `Step.noise` holds standard normal numbers for each step.
    """

    @property
    def record_clipping_norm(self) -> Real: ...

    @property
    def record_noise_multiplier(self) -> Real: ...

    @property
    def batches(self) -> str: ...

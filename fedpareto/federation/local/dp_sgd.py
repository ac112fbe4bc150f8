"""DP-SGD: stochastic gradient descent that hides every record of a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.contract import BATCHES
from fedpareto.federation.local.base import MiniBatch
from fedpareto.settings import Real, setting

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.federation.grouped import Step
    from fedpareto.federation.losses import Loss
    from fedpareto.federation.stack import Stack


@dataclass(frozen=True)
class DpSgd:
    """Clip the gradient of every record, add Gaussian noise to their sum, divide by batch_size.

    Abadi et al. 2016.
    """

    record_noise_multiplier: Real = setting(
        help="standard deviation of the noise on the sum of a mini-batch's gradients, in units of "
        "record_clipping_norm",
        at_least=0,
        at_most=1e6,
    )
    record_clipping_norm: Real = setting(
        1.0,
        help="largest L2 norm of the gradient of one record; a longer one is scaled down",
        above=0,
        at_most=1e9,
    )
    batches: str = setting(
        "poisson",
        help="how mini-batches are drawn: poisson, each record by its own chance of batch_size "
        "over the client's records; or shuffled, each once in every pass over them, where chance "
        "hides nothing",
        options=BATCHES,
        search=False,
    )

    def descend(
        self, stack: Stack, params: list[Tensor], batch: MiniBatch, loss: Loss, step: Step
    ) -> None:
        import torch

        from fedpareto.federation.grouped import of_each
        from fedpareto.federation.records import add_clipped

        values = step.values
        norm = values["record_clipping_norm"]  # [R]
        with torch.no_grad():
            totals, times = step.totals(params)  # [M,R]
        weight = batch.weight * times
        add_clipped(totals, stack, params, batch.x, batch.y, weight, loss, norm)
        with torch.no_grad():
            spread = values["record_noise_multiplier"] * norm / values["batch_size"] * times
            for total, noise in zip(totals, step.noise, strict=True):
                total.addcmul_(noise, of_each(spread, total))
            step.settle(params)

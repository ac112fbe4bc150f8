"""Move by the means of all rounds, older ones fading (FedAvgM; Hsu 2019, Reddi 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.federation.servers.base import Memory
from fedpareto.settings import Real, setting

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Momentum:
    """Add a running sum of the rounds' means to the model, each round's share fading with time."""

    server_learning_rate: Real = setting(
        1.0, help="how far the server moves, times its running sum", above=0, at_most=1e6
    )
    server_momentum: Real = setting(
        0.9,
        help="share of the running sum that is kept from round to round",
        at_least=0,
        at_most=0.9999,
    )

    def start(self, models: Tensor, values: Mapping[str, Tensor]) -> Memory:
        return (models.new_zeros(models.shape),)

    def step(
        self, models: Tensor, mean: Tensor, memory: Memory, values: Mapping[str, Tensor]
    ) -> tuple[Tensor, Memory]:
        rate = values["server_learning_rate"][:, None]
        kept = values["server_momentum"][:, None]
        speed = kept * memory[0] + mean
        return models + rate * speed, (speed,)

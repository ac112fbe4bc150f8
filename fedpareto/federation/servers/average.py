"""Move by the mean of the updates (FedAvg, McMahan 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.federation.servers.base import Memory

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Average:
    """Add the mean of the clients' updates to the model: federated averaging."""

    def start(self, models: Tensor, values: Mapping[str, Tensor]) -> Memory:
        return ()

    def step(
        self, models: Tensor, mean: Tensor, memory: Memory, values: Mapping[str, Tensor]
    ) -> tuple[Tensor, Memory]:
        return models + mean, ()

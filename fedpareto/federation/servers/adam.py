"""Move each parameter by its own adaptive rate (FedAdam, Reddi 2021, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.federation.servers.base import Memory
from fedpareto.settings import Real, setting

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Adam:
    """Divide a running mean of the updates by the root of their running mean square."""

    server_learning_rate: Real = setting(
        0.01, help="how far the server moves, in units of the adaptive step", above=0, at_most=1e6
    )
    server_beta1: Real = setting(
        0.9, help="share of the running mean kept from round to round", at_least=0, at_most=0.9999
    )
    server_beta2: Real = setting(
        0.99,
        help="share of the running mean square kept from round to round",
        at_least=0,
        at_most=0.999999,
    )
    server_tau: Real = setting(
        1e-3,
        help="what is added to the root, τ: larger is closer to plain momentum",
        above=0,
        at_most=1e6,
    )

    def start(self, models: Tensor, values: Mapping[str, Tensor]) -> Memory:
        first = models.new_zeros(models.shape)
        return first, first + values["server_tau"][:, None] ** 2

    def step(
        self, models: Tensor, mean: Tensor, memory: Memory, values: Mapping[str, Tensor]
    ) -> tuple[Tensor, Memory]:
        rate, beta1, beta2, tau = (
            values[f"server_{name}"][:, None] for name in ("learning_rate", "beta1", "beta2", "tau")
        )
        first, second = memory
        first = beta1 * first + (1 - beta1) * mean
        second = beta2 * second + (1 - beta2) * mean**2
        return models + rate * first / (second.sqrt() + tau), (first, second)

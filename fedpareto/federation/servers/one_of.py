"""Move by one of several server steps, which is searched as any other setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.federation.servers.adam import Adam
from fedpareto.federation.servers.average import Average
from fedpareto.federation.servers.base import Memory, ServerStep
from fedpareto.federation.servers.momentum import Momentum
from fedpareto.settings import Real, setting
from fedpareto.space import Choice, Variable

if TYPE_CHECKING:
    from torch import Tensor

# Each step, with its setting's name here where that is not its own name.
STEPS: dict[str, tuple[ServerStep, dict[str, str]]] = {
    "average": (Average(), {}),
    "momentum": (Momentum(), {"server_learning_rate": "momentum_learning_rate"}),
    "adam": (Adam(), {"server_learning_rate": "adam_learning_rate"}),
}


@dataclass(frozen=True)
class OneOf:
    """Take the server step that a point chooses: average, momentum or adam, each as by itself."""

    server_step: str | Variable = setting(
        Choice("server_step", tuple(STEPS)),
        help="which server step is taken; search it by {choices = [...]}",
        options=tuple(STEPS),
    )
    momentum_learning_rate: Real = setting(
        1.0, help="server_learning_rate of momentum", above=0, at_most=1e6
    )
    server_momentum: Real = setting(
        0.9, help="server_momentum of momentum", at_least=0, at_most=0.9999
    )
    adam_learning_rate: Real = setting(
        0.01, help="server_learning_rate of adam", above=0, at_most=1e6
    )
    server_beta1: Real = setting(0.9, help="server_beta1 of adam", at_least=0, at_most=0.9999)
    server_beta2: Real = setting(0.99, help="server_beta2 of adam", at_least=0, at_most=0.999999)
    server_tau: Real = setting(1e-3, help="server_tau of adam", above=0, at_most=1e6)

    @property
    def _names(self) -> tuple[str, ...]:
        """The steps that a point may choose; a point holds the place of its own among them."""
        chosen = self.server_step
        return chosen.choices if isinstance(chosen, Choice) else (str(chosen),)

    def start(self, models: Tensor, values: Mapping[str, Tensor]) -> Memory:
        kept = [STEPS[name][0].start(models, _of(name, values)) for name in self._names]
        return tuple(part for memory in kept for part in memory)

    def step(
        self, models: Tensor, mean: Tensor, memory: Memory, values: Mapping[str, Tensor]
    ) -> tuple[Tensor, Memory]:
        """Take every step, and give each federation the models of its own."""
        import torch

        out = models
        rest = list(memory)
        kept: list[Tensor] = []
        for place, name in enumerate(self._names):
            server = STEPS[name][0]
            mine = _of(name, values)
            held = [rest.pop(0) for _ in server.start(models, mine)]
            moved, after = server.step(models, mean, tuple(held), mine)
            if len(self._names) == 1:
                return moved, after
            chosen = values["server_step"] == place
            out = torch.where(chosen[:, None], moved, out)
            kept += after
        return out, tuple(kept)


def _of(name: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the settings by the names that a step knows."""
    renamed = STEPS[name][1]
    return {**values, **{own: values[here] for own, here in renamed.items()}}

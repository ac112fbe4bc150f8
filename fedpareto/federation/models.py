"""Models: ordinary torch modules, built from settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from fedpareto.errors import SettingError
from fedpareto.settings import setting

if TYPE_CHECKING:
    from torch import nn


class Model(Protocol):
    """A frozen dataclass of settings that builds a module."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return a fresh module from inputs [B, *shape] to scores [B, classes]."""


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers with ReLU between them."""

    hidden: tuple[int, ...] = setting((32,), help="neurons of each hidden layer", at_least=1, at_most=65536)

    def __post_init__(self) -> None:
        if not self.hidden:
            raise SettingError('hidden: must list at least one layer, found []. For none, use the model "lr".')

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in, fan_out in pairwise((math.prod(shape), *self.hidden, classes)):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        return nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class Lr:
    """Logistic regression: one linear layer."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


MODELS: dict[str, type[Model]] = {
    "lr": Lr,
    "mlp": Mlp,
}

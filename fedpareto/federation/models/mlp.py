"""Fully connected layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fedpareto.errors import SettingError
from fedpareto.federation.models.base import WIDEST
from fedpareto.settings import Whole, setting

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers with ReLU between them; Kang 2023 uses 256 and 256."""

    hidden: tuple[Whole, ...] = setting(
        (256, 256), help="neurons of each hidden layer", at_least=1, at_most=WIDEST
    )

    def __post_init__(self) -> None:
        if not self.hidden:
            raise SettingError(
                'hidden: must list at least one layer, found []. For none, use the model "lr".'
            )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in, fan_out in pairwise((math.prod(shape), *self.hidden, classes)):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]  # type: ignore[arg-type]
        return nn.Sequential(*layers[:-1])

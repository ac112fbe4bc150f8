"""LeNets: the classic for MNIST, and the one of Kang 2023 for CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fedpareto.errors import ModelError, SettingError
from fedpareto.federation.models.base import WIDEST
from fedpareto.settings import Whole, setting

if TYPE_CHECKING:
    from torch import nn


def _convolutional(
    shape: tuple[int, ...],
    channels: Sequence[Any],
    neurons: Sequence[Any],
    classes: int,
    padding: int,
) -> nn.Module:
    """Return 5×5 convolutions, each with ReLU and 2×2 max pooling, and fully connected layers."""
    from torch import nn

    if len(shape) != 3:
        raise ModelError(
            "a convolutional model must have images [channels, height, width], found inputs of "
            f"shape {list(shape)}."
        )
    layers: list[nn.Module] = []
    size = list(shape[1:])
    pads = [padding, *[0] * (len(channels) - 1)]
    for (fan_in, fan_out), pad in zip(pairwise((shape[0], *channels)), pads, strict=True):
        # ReLU after pooling gives the same result on fewer numbers
        layers += [nn.Conv2d(fan_in, fan_out, 5, padding=pad), nn.MaxPool2d(2), nn.ReLU()]
        size = [(s + 2 * pad - 4) // 2 for s in size]
    if min(size) < 1:
        raise ModelError(
            f"this model must have larger images, found {shape[1]}×{shape[2]}: nothing is left "
            "after its convolutions."
        )
    layers.append(nn.Flatten())
    for fan_in, fan_out in pairwise((channels[-1] * size[0] * size[1], *neurons, classes)):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@dataclass(frozen=True)
class Lenet5:
    """LeNet-5 with ReLU and max pooling: convolutions of 6 and 16 channels, then 120, 84."""

    channels: tuple[Whole, ...] = setting(
        (6, 16), help="channels of the two convolutions", at_least=1, at_most=WIDEST
    )
    neurons: tuple[Whole, ...] = setting(
        (120, 84), help="neurons of the two fully connected layers", at_least=1, at_most=WIDEST
    )

    def __post_init__(self) -> None:
        _two(self)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return _convolutional(shape, self.channels, self.neurons, classes, padding=2)


@dataclass(frozen=True)
class Lenet:
    """The LeNet of Kang 2023 for CIFAR-10: two 5×5 convolutions of 32 channels, then 128, 128."""

    channels: tuple[Whole, ...] = setting(
        (32, 32), help="channels of the two convolutions", at_least=1, at_most=WIDEST
    )
    neurons: tuple[Whole, ...] = setting(
        (128, 128), help="neurons of the two fully connected layers", at_least=1, at_most=WIDEST
    )

    def __post_init__(self) -> None:
        _two(self)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return _convolutional(shape, self.channels, self.neurons, classes, padding=0)


def _two(model: Lenet5 | Lenet) -> None:
    """Refuse anything but two convolutions and two fully connected layers."""
    for name, layers in (("channels", model.channels), ("neurons", model.neurons)):
        if len(layers) != 2:
            raise SettingError(f"{name}: must list two layers, found {len(layers)}.")

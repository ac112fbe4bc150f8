"""Residual networks with group norm, since the statistics of batch norm do not federate."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from fedpareto.errors import ModelError

if TYPE_CHECKING:
    from torch import nn


def _block(fan_in: int, fan_out: int, stride: int, groups: int) -> nn.Module:
    """Return two 3×3 convolutions with group norm and a shortcut around them."""
    from torch import Tensor, nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False)
            self.norm1 = nn.GroupNorm(groups, fan_out)
            self.second = nn.Conv2d(fan_out, fan_out, 3, 1, 1, bias=False)
            self.norm2 = nn.GroupNorm(groups, fan_out)
            self.shortcut: nn.Module = nn.Identity()
            if stride != 1 or fan_in != fan_out:
                self.shortcut = nn.Conv2d(fan_in, fan_out, 1, stride, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            inside = self.norm2(self.second(self.norm1(self.first(x)).relu()))
            out: Tensor = (inside + self.shortcut(x)).relu()
            return out

    return Block()


def _images(name: str, shape: tuple[int, ...]) -> int:
    """Return the channels of images of this shape; refuse anything but images."""
    if len(shape) != 3:
        raise ModelError(
            f"{name}: inputs must be images [channels, height, width], found shape {list(shape)}."
        )
    return shape[0]


@dataclass(frozen=True)
class Vgg:
    """VGG with residual connections and group norm (Xiao 2025): four stages, 32 to 256 channels."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise((_images("vgg", shape), 32, 64, 128, 256)):
            layers += [_block(fan_in, fan_out, 1, 8), nn.MaxPool2d(2, ceil_mode=True)]
        return nn.Sequential(
            *layers,
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Linear(128, classes),
        )


@dataclass(frozen=True)
class Resnet18:
    """ResNet-18 for small images, with group norm in place of batch norm (Gu 2024)."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = [
            nn.Conv2d(_images("resnet18", shape), 64, 3, 1, 1, bias=False),
            nn.GroupNorm(32, 64),
            nn.ReLU(),
        ]
        for fan_in, fan_out, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
            layers += [_block(fan_in, fan_out, stride, 32), _block(fan_out, fan_out, 1, 32)]
        return nn.Sequential(
            *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)
        )

"""What a model is: settings that build an ordinary torch module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import nn

WIDEST = 65_536


class Model(Protocol):
    """A frozen dataclass of settings that builds a module."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return a fresh module from inputs [B, *shape] to scores [B, classes]."""

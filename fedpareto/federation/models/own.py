"""A module of the user's own, named by dotted path."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Own:
    """The user's nn.Module class, or a function that returns a module, called with the other keys of the table."""

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        module, _, attribute = self.name.partition(":")
        made: nn.Module = getattr(importlib.import_module(module), attribute)(**dict(self.arguments))
        return made

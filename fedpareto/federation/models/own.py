"""A model of the user's own, named by dotted path."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.errors import ModelError, clean, guarded, out_of_memory, shown, told
from fedpareto.settings import imported

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Own:
    """The user's nn.Module class, or a function that returns a module."""

    name: str
    arguments: str = "{}"  # JSON: the other keys of the table, which are passed to it

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        from torch import nn

        try:
            with guarded():
                made = imported(self.name)(**json.loads(self.arguments))
        except Exception as error:
            if out_of_memory(error):
                raise
            found = told(error)
            end = "" if found.endswith("?") else "."  # Python 3.13 asks "Did you mean 'width'?"
            raise ModelError(
                f"model.name: {self.name!r} must be built by a call with {clean(self.arguments)}, "
                f"found {found}{end} Give it the keys it takes."
            ) from error
        if not isinstance(made, nn.Module):
            raise ModelError(
                f"model.name: {self.name!r} must make an nn.Module, found {shown(made)}."
            )
        return made

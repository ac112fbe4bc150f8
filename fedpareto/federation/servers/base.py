"""What a server step is: models and the mean of a round in, the next models out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

Memory = tuple["Tensor", ...]  # what the server remembers from round to round, each [S,R,P]


@runtime_checkable
class ServerStep(Protocol):
    """A frozen dataclass of settings that says how the server moves its models.

    It sees the mean of the uploads and its own memory alone. So it costs no privacy: what it makes
    of a mean that is protected stays protected.
    """

    def start(self, models: Tensor, values: Mapping[str, Tensor]) -> Memory:
        """Return what the server remembers before the first round of models [S,R,P]."""

    def step(
        self, models: Tensor, mean: Tensor, memory: Memory, values: Mapping[str, Tensor]
    ) -> tuple[Tensor, Memory]:
        """Return the next models [S,R,P] and memory, from the mean [S,R,P] of a round's updates.

        values holds every number among the settings, name → [R], searched or fixed.
        """

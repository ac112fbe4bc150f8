"""What a client sends, and what a protection mechanism does to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


@dataclass(frozen=True)
class Upload:
    """What the server sees of R federations with K clients each, and what it cost to send."""

    values: Tensor  # [R,K,P]
    count: Tensor  # [R,K] numbers sent
    bits: Tensor  # [R,K] bits per number
    seconds: Tensor  # [R,K] client time spent on protection


class Mechanism(Protocol):
    """A frozen dataclass of settings that says how clients protect what they send."""

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        """Return the protected upload.

        values holds every float and int setting of the mechanism, name → [R], searched or fixed. Draws from noise are
        [K,P], without R: federations of one repeat share their random numbers.
        """

"""No protection: the update as it is, for comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.mechanisms.base import Upload

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


@dataclass(frozen=True)
class Unprotected:
    """Send the update as it is, every number as a 32-bit float."""

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        return upload

    def costs(self, upload: Upload, values: Mapping[str, Tensor]) -> Upload:
        return upload

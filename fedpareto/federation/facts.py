"""What looking at a study needs of its data, which may be elsewhere by then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedpareto.federation.data import Dataset

MOST_CLIENTS = 50  # whose shares are shown


@dataclass(frozen=True)
class Facts:
    """What is told of data without having them."""

    shape: tuple[int, ...]  # of an input
    classes: int  # 1 where numbers are predicted
    images: int  # for training
    # how many of each class each of the first clients holds in the first repeat; none if private
    split: tuple[tuple[int, ...], ...] = ()
    sizes: tuple[int, ...] = ()  # how many records each client holds, where ε depends on it

    @classmethod
    def of(cls, data: Dataset) -> Facts:
        """Return the facts of data that are here."""
        return cls(data.shape, data.classes, len(data.y_train))

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Facts:
        """Return the facts that a database keeps."""
        split = tuple(tuple(row) for row in kept["split"])
        sizes = tuple(kept["sizes"])
        return cls(tuple(kept["shape"]), kept["classes"], kept["images"], split, sizes)

"""What looking at a study needs of its data, which may be elsewhere by then."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedpareto.errors import DataError, shown
from fedpareto.federation.data import Dataset
from fedpareto.federation.formats import MOST_CLASSES

MOST_CLIENTS = 50  # whose shares are shown
MOST_COUNTED = 2**40  # records, or numbers of an input


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
        """Return the facts that a database keeps; refuse what no data can have."""
        for name, (holds, words) in KEPT.items():
            if not holds(kept.get(name)):
                raise DataError(f"{name} must be {words}, found {shown(kept.get(name))}.")
        split = tuple(tuple(row) for row in kept["split"])
        sizes = tuple(kept["sizes"])
        return cls(tuple(kept["shape"]), kept["classes"], kept["images"], split, sizes)


def _count(value: object) -> bool:
    return type(value) is int and 0 < value <= MOST_COUNTED


def _classes(value: object) -> bool:
    return type(value) is int and 0 < value <= MOST_CLASSES


def _counts(value: object) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v <= MOST_COUNTED for v in value)


def _shape(value: object) -> bool:
    return isinstance(value, list) and all(map(_count, value)) and math.prod(value) <= MOST_COUNTED


def _table(value: object) -> bool:
    if not isinstance(value, list) or len(value) > MOST_CLIENTS:
        return False
    return all(map(_counts, value)) and len({len(row) for row in value}) < 2


KEPT: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "shape": (_shape, "a list of whole numbers above 0"),
    "classes": (_classes, f"a whole number from 1 to {MOST_CLASSES}"),
    "images": (_count, "a whole number above 0"),
    "split": (_table, f"a table of whole numbers, of at most {MOST_CLIENTS} rows of one length"),
    "sizes": (_counts, "a list of whole numbers"),
}

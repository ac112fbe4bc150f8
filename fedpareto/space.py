"""What is searched: named variables, and the unit cube that optimizers see in their place.

Decoding rounds: a float keeps twelve digits, so that decode(encode(value)) gives the value back exactly and a setting
printed is the setting used.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import SettingError

FloatArray = NDArray[np.float64]
Values = Mapping[str, Sequence[Any]]  # name → [n] values in real units

DIGITS = 12
LOG_MAX = math.log(sys.float_info.max) * (1 - 1e-15)
LARGEST = 10**12  # whole numbers that a log scale still tells apart


def _must(holds: bool, name: str, rule: str, found: object) -> None:
    if not holds:
        raise SettingError(f"{name}: {rule}, found {found}.")


def _check_range(name: str, low: float, high: float, log: bool) -> None:
    if not all(abs(end) <= sys.float_info.max for end in (low, high)):
        found = [
            str(end)
            if isinstance(end, float) or end.bit_length() < 1024
            else f"{end.bit_length()} bits"
            for end in (low, high)
        ]
        raise SettingError(
            f"{name}: both ends of a range must be finite, found [{', '.join(found)}]."
        )
    _must(low < high, name, "a range must have low < high", f"[{low}, {high}]")
    _must(
        math.isfinite(high - low),
        name,
        "a range must be narrower than the largest number",
        f"[{low}, {high}]",
    )
    _must(not log or low > 0, name, "a log range must have low > 0", f"low = {low}")


@dataclass(frozen=True)
class Float:
    """A real number between low and high, on a linear or log scale."""

    name: str
    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        _check_range(self.name, self.low, self.high, self.log)
        narrow = (self.high - self.low) / max(abs(self.low), abs(self.high)) < 1e-9
        _must(
            not narrow,
            self.name,
            "a range must be wider than a billionth of its ends",
            f"[{self.low}, {self.high}]",
        )

    @property
    def size(self) -> None:
        """A float has no number of values."""

    def decode(self, u: float) -> float:
        if u <= 0 or u >= 1:
            return self.low if u <= 0 else self.high
        if self.log:
            span = math.log(self.high) - math.log(self.low)
            value = float(f"{math.exp(min(math.log(self.low) + u * span, LOG_MAX)):.{DIGITS}g}")
        else:
            places = DIGITS - math.floor(math.log10(self.high - self.low))
            value = round(self.low + u * (self.high - self.low), places)
        return min(max(value, self.low), self.high)

    def encode(self, value: float) -> float:
        _must(
            self.low <= value <= self.high,
            self.name,
            f"must lie in [{self.low}, {self.high}]",
            value,
        )
        if self.log:
            return (math.log(value) - math.log(self.low)) / (
                math.log(self.high) - math.log(self.low)
            )
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Integer:
    """A whole number from low to high, both included, on a linear or log scale."""

    name: str
    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        _must(
            max(abs(self.low), abs(self.high)) <= LARGEST,
            self.name,
            f"a range of whole numbers must lie within ±{LARGEST:.0e}",
            "larger ones",
        )
        _check_range(self.name, self.low, self.high, self.log)

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    def _edges(self) -> tuple[float, float]:
        """Return the ends of the scale: half a step outside the range, so that every value has its share."""
        low, high = self.low - 0.5, self.high + 0.5
        return (math.log(low), math.log(high)) if self.log else (low, high)

    def decode(self, u: float) -> int:
        low, high = self._edges()
        position = low + u * (high - low)
        value = math.floor((math.exp(position) if self.log else position) + 0.5)
        return min(max(value, self.low), self.high)

    def encode(self, value: int) -> float:
        _must(
            self.low <= value <= self.high,
            self.name,
            f"must lie in [{self.low}, {self.high}]",
            value,
        )
        low, high = self._edges()
        return ((math.log(value) if self.log else value) - low) / (high - low)


@dataclass(frozen=True)
class Choice:
    """One of a few listed values."""

    name: str
    choices: tuple[Any, ...]

    def __post_init__(self) -> None:
        _must(
            len(self.choices) >= 2,
            self.name,
            "a choice must list at least two values",
            list(self.choices),
        )
        _must(
            len(set(self.choices)) == len(self.choices),
            self.name,
            "choices must differ",
            list(self.choices),
        )

    @property
    def size(self) -> int:
        return len(self.choices)

    def decode(self, u: float) -> Any:
        return self.choices[min(int(u * self.size), self.size - 1)]

    def encode(self, value: Any) -> float:
        _must(value in self.choices, self.name, f"must be one of {list(self.choices)}", repr(value))
        return (self.choices.index(value) + 0.5) / self.size


Variable = Float | Integer | Choice


@dataclass(frozen=True)
class Space:
    """The variables that are searched, in order; a point is a row of the unit cube."""

    variables: tuple[Variable, ...]

    def __post_init__(self) -> None:
        names = self.names
        _must(len(set(names)) == len(names), "space", "variable names must differ", list(names))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def decode(self, x: FloatArray) -> dict[str, list[Any]]:
        """Return the settings of the points x [n,d]: name → [n] values."""
        return {v.name: [v.decode(float(u)) for u in x[:, j]] for j, v in enumerate(self.variables)}

    def encode(self, values: Values, n: int) -> FloatArray:
        """Return the points [n,d] that stand for these settings."""
        x = np.empty((n, len(self)))
        for j, variable in enumerate(self.variables):
            x[:, j] = [variable.encode(value) for value in values[variable.name]]
        return x

    def snap(self, x: FloatArray) -> FloatArray:
        """Move each point [n,d] to the one that stands for its own settings."""
        return self.encode(self.decode(np.clip(x, 0.0, 1.0)), len(x))

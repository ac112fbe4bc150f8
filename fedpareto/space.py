"""The search space: named variables, and the unit cube that optimizers see in their place.

Decoding rounds a float to twelve digits, so that decode(encode(value)) gives the value back exactly
and a setting printed is the setting used.
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
LARGEST = 10**12  # up to here a log scale still separates neighbouring whole numbers


def _must(holds: bool, name: str, rule: str, found: object) -> None:
    """Raise a SettingError that states the rule unless it holds."""
    if not holds:
        raise SettingError(f"{name}: {rule}, found {found}.")


def _check_range(name: str, low: float, high: float, log: bool) -> None:
    """Refuse a range whose ends are not finite, are in the wrong order or do not fit its scale."""
    finite = all(abs(end) <= sys.float_info.max for end in (low, high))
    if not finite:
        ends = f"[{_end(low)}, {_end(high)}]"
        raise SettingError(f"{name}: both ends of a range must be finite, found {ends}.")
    ends = f"[{low}, {high}]"
    _must(low < high, name, "a range must have low < high", ends)
    fits = math.isfinite(high - low)
    _must(fits, name, "a range must be narrower than the largest number", ends)
    _must(not log or low > 0, name, "a log range must have low > 0", f"low = {low}")


def _end(end: float) -> str:
    """Return one end of a range as text; a whole number too long to print becomes its length."""
    if isinstance(end, int) and end.bit_length() >= 1024:
        return f"{end.bit_length()} bits"
    return str(end)


@dataclass(frozen=True)
class Float:
    """A real number between low and high, on a linear or log scale.

    With a mean and a spread, a first generation is drawn from a normal distribution cut to the
    range, by optimizers that have one (Xiao 2025, 5.1).
    """

    name: str
    low: float
    high: float
    log: bool = False
    mean: float | None = None
    spread: float | None = None

    def __post_init__(self) -> None:
        _check_range(self.name, self.low, self.high, self.log)
        narrow = (self.high - self.low) / max(abs(self.low), abs(self.high)) < 1e-9
        rule = "a range must be wider than a billionth of its ends"
        _must(not narrow, self.name, rule, f"[{self.low}, {self.high}]")
        self._check_first()

    def _check_first(self) -> None:
        """Refuse a mean without a spread, one outside the range, and a spread that is none."""
        if self.mean is None and self.spread is None:
            return
        pair = f"mean = {self.mean} and spread = {self.spread}"
        both = self.mean is not None and self.spread is not None
        _must(both, self.name, "mean and spread must go together", pair)
        assert self.mean is not None
        assert self.spread is not None
        rule = f"the mean must lie in [{self.low}, {self.high}]"
        _must(self.low <= self.mean <= self.high, self.name, rule, self.mean)
        valid = self.spread > 0 and math.isfinite(self.spread)
        _must(valid, self.name, "the spread must be above 0 and finite", self.spread)

    @property
    def size(self) -> None:
        """Return None: a float does not take a limited number of values."""

    def decode(self, u: float) -> float:
        """Return the value at the position u of [0, 1]."""
        if u <= 0:
            return self.low
        if u >= 1:
            return self.high
        if self.log:
            span = math.log(self.high) - math.log(self.low)
            exact = math.exp(min(math.log(self.low) + u * span, LOG_MAX))
            value = float(f"{exact:.{DIGITS}g}")
        else:
            places = DIGITS - math.floor(math.log10(self.high - self.low))
            value = round(self.low + u * (self.high - self.low), places)
        return min(max(value, self.low), self.high)

    def encode(self, value: float) -> float:
        """Return the position of a value in [0, 1]."""
        inside = self.low <= value <= self.high
        _must(inside, self.name, f"must lie in [{self.low}, {self.high}]", value)
        if self.log:
            span = math.log(self.high) - math.log(self.low)
            return (math.log(value) - math.log(self.low)) / span
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Integer:
    """A whole number from low to high, both included, on a linear or log scale."""

    name: str
    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        small = max(abs(self.low), abs(self.high)) <= LARGEST
        rule = f"a range of whole numbers must lie within ±{LARGEST:.0e}"
        _must(small, self.name, rule, "larger ones")
        _check_range(self.name, self.low, self.high, self.log)

    @property
    def size(self) -> int:
        """Return how many values there are."""
        return self.high - self.low + 1

    def _edges(self) -> tuple[float, float]:
        """Return the ends of the scale: half a step outside, so that each value has its share."""
        low = self.low - 0.5
        high = self.high + 0.5
        if self.log:
            return math.log(low), math.log(high)
        return low, high

    def decode(self, u: float) -> int:
        """Return the value at the position u of [0, 1]."""
        low, high = self._edges()
        position = low + u * (high - low)
        if self.log:
            position = math.exp(position)
        value = math.floor(position + 0.5)
        return min(max(value, self.low), self.high)

    def encode(self, value: int) -> float:
        """Return the position of a value in [0, 1]."""
        inside = self.low <= value <= self.high
        _must(inside, self.name, f"must lie in [{self.low}, {self.high}]", value)
        low, high = self._edges()
        position = math.log(value) if self.log else value
        return (position - low) / (high - low)


@dataclass(frozen=True)
class Choice:
    """One of a few listed values."""

    name: str
    choices: tuple[Any, ...]

    def __post_init__(self) -> None:
        found = list(self.choices)
        _must(len(found) >= 2, self.name, "a choice must list at least two values", found)
        _must(len(set(found)) == len(found), self.name, "choices must differ", found)

    @property
    def size(self) -> int:
        """Return how many values there are."""
        return len(self.choices)

    def decode(self, u: float) -> Any:
        """Return the value at the position u of [0, 1]."""
        return self.choices[min(int(u * self.size), self.size - 1)]

    def encode(self, value: Any) -> float:
        """Return the position of a value in [0, 1]."""
        _must(value in self.choices, self.name, f"must be one of {list(self.choices)}", repr(value))
        return (self.choices.index(value) + 0.5) / self.size


Variable = Float | Integer | Choice


def range_text(variable: Variable) -> str:
    """Say in words which values a variable may take."""
    if isinstance(variable, Choice):
        return "one of " + ", ".join(map(str, variable.choices))
    scale = ", on a log scale" if variable.log else ""
    whole = "whole numbers " if isinstance(variable, Integer) else ""
    first = ""
    if isinstance(variable, Float) and variable.mean is not None:
        first = f", at first around {variable.mean:g} ± {variable.spread:g}"
    return f"{whole}{variable.low:g} to {variable.high:g}{scale}{first}"


@dataclass(frozen=True)
class Space:
    """The variables that are searched, in order; a point is a row of the unit cube."""

    variables: tuple[Variable, ...]

    def __post_init__(self) -> None:
        names = self.names
        _must(len(set(names)) == len(names), "space", "variable names must differ", list(names))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the variables, in order."""
        return tuple(v.name for v in self.variables)

    def __len__(self) -> int:
        return len(self.variables)

    def decode(self, x: FloatArray) -> dict[str, list[Any]]:
        """Return the settings of the points x [n,d]: name → [n] values."""
        return {v.name: [v.decode(float(u)) for u in x[:, j]] for j, v in enumerate(self.variables)}

    def encode(self, values: Values, n: int) -> FloatArray:
        """Return the points [n,d] of settings, name → [n] values."""
        x = np.empty((n, len(self)))
        for j, variable in enumerate(self.variables):
            x[:, j] = [variable.encode(value) for value in values[variable.name]]
        return x

    def snap(self, x: FloatArray) -> FloatArray:
        """Return points [n,d] rounded to the nearest settings that can be decoded."""
        return self.encode(self.decode(np.clip(x, 0.0, 1.0)), len(x))

"""Declare the fields of a settings dataclass: what each may hold and what it means.

A range is searched, a number is fixed: a field of type `Real` or `Whole` may hold a Variable in
place of a number. A plain annotated field of a user's own dataclass works without `setting`.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import MISSING, dataclass
from typing import Any

from fedpareto.errors import SettingError
from fedpareto.space import Variable

Real = float | Variable
Whole = int | Variable

WORDS = {
    float: "a number",
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    tuple: "a list of whole numbers",
}


@dataclass(frozen=True)
class Rule:
    """What must hold of one setting, and what it means."""

    help: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    options: tuple[str, ...] = ()
    search: bool = True

    def broken(self, value: Any) -> str | None:
        """Return what must hold of a value, if it does not."""
        if isinstance(value, float) and not math.isfinite(value):
            return "must be a finite number"
        if self.options and value not in self.options:
            return f"must be one of {', '.join(self.options)}"
        if isinstance(value, str) or value is None:
            return None
        if self.at_least is not None and value < self.at_least:
            return f"must be at least {self.at_least:g}"
        if self.above is not None and value <= self.above:
            return f"must be above {self.above:g}"
        if self.at_most is not None and value > self.at_most:
            return f"must be at most {self.at_most:.12g}"
        return None


def setting(
    default: Any = MISSING,
    *,
    help: str,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    options: tuple[str, ...] = (),
    search: bool = True,
) -> Any:
    """Declare a field of a settings dataclass with its rule."""
    rule = Rule(help, at_least, above, at_most, options, search)
    return dataclasses.field(default=default, metadata={"rule": rule})


def rule_of(field: dataclasses.Field[Any]) -> Rule:
    """Return the rule of a field, an empty one where it declares none."""
    rule = field.metadata.get("rule", Rule())
    assert isinstance(rule, Rule)
    return rule


def kind_of(hint: Any) -> type:
    """Return which of float, int, str, bool or tuple an annotation asks for."""
    union = isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
    parts = typing.get_args(hint) if union else (hint,)
    plain = [typing.get_origin(part) or part for part in parts]
    for kind in (bool, float, int, str, tuple):
        if kind in plain:
            return kind
    raise SettingError(
        f"settings: a field must be float, int, str, bool or tuple[int, ...], found {hint}."
    )

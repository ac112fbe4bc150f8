"""Say by which name a point knows each setting.

- A setting of training, of a mechanism or of a model has its field's name: `learning_rate`.
- A range inside a list has the list's name and its place: `hidden_1`.
- A setting of a chain's link has its field's name; where another link declares a setting of the
  same name, the link's number follows it: `bits_2`. What counts is what the links declare,
  not what a study file gives: of two `pruning` links, one with a rate and one with a threshold,
  a point knows `prune_rate_1` and `threshold_2`. So a name does not change when an optional
  setting of another link is given or left out.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fedpareto.space import Choice, Float, Integer, Variable

T = TypeVar("T")


def numbered(name: str, place: int) -> str:
    """Return the name of one of several settings that share a name, by its place from 1."""
    return f"{name}_{place}"


def link_names(links: Sequence[Any]) -> list[dict[str, str]]:
    """Return for each link of a chain: field name → the name by which a point knows it."""
    held = [[field.name for field in dataclasses.fields(link)] for link in links]
    count = Counter(name for names in held for name in names)

    def known(name: str, place: int) -> str:
        return name if count[name] == 1 else numbered(name, place)

    return [{name: known(name, place) for name in names} for place, names in enumerate(held, 1)]


def named(settings: Any) -> dict[str, Any]:
    """Return every setting by the name a point knows it by, those of a chain's links included."""
    out: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if not _is_links(value):
            out[field.name] = value
            continue
        for link, names in zip(value, link_names(value), strict=True):
            out |= {name: getattr(link, own) for own, name in names.items()}
    return out


def searched(settings: Any) -> tuple[Variable, ...]:
    """Return the variables among the settings, in their order."""
    found: list[Variable] = []
    for value in named(settings).values():
        values = value if isinstance(value, tuple) else (value,)
        found += [v for v in values if isinstance(v, Variable)]
    return tuple(found)


def fixed(settings: T, choose: Callable[[Variable], Any]) -> T:
    """Return the settings with a number chosen for every variable."""
    fields = dataclasses.fields(settings)  # type: ignore[arg-type]
    held = {field.name: _fixed(getattr(settings, field.name), choose) for field in fields}
    return dataclasses.replace(settings, **held)  # type: ignore[type-var]


def _fixed(value: Any, choose: Callable[[Variable], Any]) -> Any:
    if isinstance(value, Variable):
        return choose(value)
    if _is_links(value):
        return tuple(fixed(link, choose) for link in value)
    if isinstance(value, tuple):
        return tuple(_fixed(part, choose) for part in value)
    return value


def largest(value: Any) -> Any:
    """Return the largest value a setting can take: the end of its range, or its fixed value."""
    if isinstance(value, Choice):
        return max(value.choices)
    return value.high if isinstance(value, Float | Integer) else value


def least(value: Any) -> Any:
    """Return the least value a setting can take: the end of its range, or its fixed value."""
    if isinstance(value, Choice):
        return min(value.choices)
    return value.low if isinstance(value, Float | Integer) else value


def _is_links(value: Any) -> bool:
    """Say whether a setting holds the links of a chain: settings dataclasses, not variables."""
    if not isinstance(value, tuple) or not value:
        return False
    return all(dataclasses.is_dataclass(v) and not isinstance(v, Variable) for v in value)

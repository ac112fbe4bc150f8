"""Check values against the rules that settings declare, from a study file or from Python."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import types
import typing
from typing import Any

from fedpareto.errors import SettingError, did_you_mean
from fedpareto.settings.declare import WORDS, Rule, kind_of, rule_of

NUMBERS: dict[type, type] = {int: numbers.Integral, float: numbers.Real}  # numpy's among them


def checked(name: str, found: Any, kind: type, rule: Rule) -> Any:
    """Return a number, text or truth value as its kind; refuse one that breaks its rule."""
    if not _is_a(found, kind):
        raise SettingError(f"{name}: must be {WORDS[kind]}, found {found!r}.")
    if isinstance(found, int) and abs(found) > 1e300:
        bits = found.bit_length()
        raise SettingError(f"{name}: must lie within ±1e300, found a number of {bits} bits.")
    value = kind(found)
    broken = rule.broken(value)
    if broken:
        offer = f" {did_you_mean(found, rule.options)}" if rule.options else ""
        raise SettingError(f"{name}: {broken}, found {found!r}.{offer}")
    return value


def check_fields(settings: Any) -> None:
    """Refuse settings that break the rules they declare; for the __post_init__ of a dataclass.

    Its fields hold numbers, texts and truth values, none of them searched. Numbers of numpy become
    Python's.
    """
    cls: type = type(settings)
    hints = _hints(cls)
    for field in dataclasses.fields(settings):
        found = getattr(settings, field.name)
        hint = hints[field.name]
        if found is None and types.NoneType in typing.get_args(hint):
            continue
        value = checked(field.name, found, kind_of(hint), rule_of(field))
        object.__setattr__(settings, field.name, value)  # it is frozen


def _is_a(found: Any, kind: type) -> bool:
    """Say whether a value is of a kind; a whole number will do for a float, true is no number."""
    if isinstance(found, bool):
        return kind is bool
    return isinstance(found, NUMBERS.get(kind, kind))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Return the annotations of a class, name → type."""
    return typing.get_type_hints(cls)

"""One table of a study file as one settings dataclass, and back."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from typing import Any, TypeVar

from fedpareto.errors import Fault, SettingError, did_you_mean
from fedpareto.settings import WORDS, Rule, Whole, checked, kind_of, numbered, rule_of
from fedpareto.space import Choice, Float, Integer, Variable

T = TypeVar("T")

HINTS = 20  # faults that offer the closest name: to look for it takes a while, and more help nobody
FIRST = {"mean", "spread"}  # of a first generation
RANGES = (  # the keys of ranges as they are stored
    {"low", "high", "log"},
    {"low", "high", "log", *FIRST},
    {"choices"},
)
RANGE = "[low, high], {low = ..., high = ..., log = true} or {choices = [...]}"


def read(cls: type[T], table: Mapping[str, Any], where: str, faults: list[Fault]) -> T | None:
    """Build a settings dataclass from a table; on any fault, add to faults and return None."""
    before = len(faults)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    refuse_unknown(table, fields, where, faults)
    held = _values(cls, fields, table, where, faults)
    if len(faults) > before:
        return None
    try:
        return cls(**held)
    except SettingError as error:
        faults.append(_refused(error, where, fields))
        return None


def refuse_unknown(
    table: Iterable[str], known: Iterable[str], where: str, faults: list[Fault]
) -> None:
    """Add a fault for every key of a table that is not known."""
    names = list(known)
    for key in table:
        if key not in names:
            message = f"there is no such key. {hint(key, names, faults)}".rstrip()
            faults.append(Fault(joined(where, key), message))


def hint(name: str, known: Iterable[str], faults: list[Fault]) -> str:
    """Return a sentence that offers the closest known name; nothing once there are many faults."""
    return did_you_mean(name, known) if len(faults) < HINTS else ""


def joined(where: str, key: str) -> str:
    """Return the dotted key of what stands under a key."""
    return f"{where}.{key}" if where else key


def _values(
    cls: type,
    fields: Mapping[str, dataclasses.Field[Any]],
    table: Mapping[str, Any],
    where: str,
    faults: list[Fault],
) -> dict[str, Any]:
    """Return the values that a table gives to fields; add to faults what is wrong or missing."""
    hints = typing.get_type_hints(cls)
    held = {}
    for name, field in fields.items():
        rule = rule_of(field)
        if name in table:
            try:
                held[name] = _value(name, table[name], kind_of(hints[name]), rule)
            except SettingError as error:
                message = str(error).removeprefix(f"{name}: ")
                faults.append(Fault(joined(where, name), message))
        elif field.default is MISSING and field.default_factory is MISSING:
            what = rule.help or WORDS[kind_of(hints[name])]
            faults.append(Fault(joined(where, name), f"must be given: {what}."))
    return held


def _refused(error: SettingError, where: str, fields: Iterable[str]) -> Fault:
    """Return what a dataclass refused itself as a fault: of the field that it names, or of all."""
    name, _, rest = str(error).partition(": ")
    if name in fields:
        return Fault(joined(where, name), rest)
    return Fault(where or "study", str(error))


def _value(name: str, found: Any, kind: type, rule: Rule) -> Any:
    """Return the fixed value or variable that a value of the file stands for."""
    if kind is tuple:
        return _whole_numbers(name, found, rule)
    if not isinstance(found, list | dict):
        return checked(name, found, kind, rule)
    if not rule.search or kind is bool:
        raise SettingError(
            f"{name}: must be {WORDS[kind]}, found {found}. This setting cannot be searched."
        )
    return _variable(name, found, kind, rule)


def _variable(name: str, found: list[Any] | dict[str, Any], kind: type, rule: Rule) -> Variable:
    """Return the variable that a range or a list of choices stands for."""
    table = _range(found)
    if set(table) == {"choices"} and isinstance(table["choices"], list):
        values = tuple(checked(name, value, kind, rule) for value in table["choices"])
        return Choice(name, values)
    first = FIRST if kind is float else set()
    complete = {"low", "high"} <= set(table) <= {"low", "high", "log", *first}
    log = table.get("log", False)
    if kind is str or not complete or not isinstance(log, bool):
        ways = "{choices = [...]}" if kind is str else RANGE
        raise SettingError(
            f"{name}: must be {WORDS[kind]} or a range written as {ways}, found {found}."
        )
    low = checked(name, table["low"], kind, rule)
    high = checked(name, table["high"], kind, rule)
    if kind is not float:
        return Integer(name, low, high, log)
    return Float(name, low, high, log, *(_given(name, table, key) for key in ("mean", "spread")))


def _given(name: str, table: Mapping[str, Any], key: str) -> float | None:
    """Return a number of a range, None where it is left out."""
    return float(checked(name, table[key], float, Rule())) if key in table else None


def _range(found: list[Any] | dict[str, Any]) -> dict[str, Any]:
    """Return a range as a table, also where it is written as [low, high]."""
    if isinstance(found, dict):
        return found
    return {"low": found[0], "high": found[1]} if len(found) == 2 else {}


def _whole_numbers(name: str, found: Any, rule: Rule) -> tuple[Whole, ...]:
    """Return a list of numbers, or of ranges: hidden = [[1, 256], 64] searches hidden_1."""
    if not isinstance(found, list):
        raise SettingError(f"{name}: must be {WORDS[tuple]}, found {found!r}.")
    return tuple(_value(numbered(name, i), value, int, rule) for i, value in enumerate(found, 1))


def as_range(variable: Variable) -> dict[str, Any]:
    """Return a variable as the table that a study file would hold."""
    if isinstance(variable, Choice):
        return {"choices": list(variable.choices)}
    held: dict[str, Any] = {"low": variable.low, "high": variable.high, "log": variable.log}
    if isinstance(variable, Float) and variable.mean is not None:
        held |= {"mean": variable.mean, "spread": variable.spread}
    return held


def plain(thing: Any, choose: Callable[[Variable], Any] = as_range) -> Any:
    """Return settings as plain data: tables, lists, numbers and texts, as a study file holds them.

    Settings that are None are left out. choose says what is written for a variable.
    """
    if isinstance(thing, Variable):
        return choose(thing)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        held = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
        return {name: plain(value, choose) for name, value in held.items() if value is not None}
    if isinstance(thing, list | tuple):
        return [plain(value, choose) for value in thing]
    if isinstance(thing, str | int | float | None):
        return thing
    if hasattr(thing, "__qualname__"):  # a function or class, by its dotted path
        return f"{thing.__module__}:{thing.__qualname__}"
    return repr(thing)

"""Settings: the fields of a frozen dataclass, read from a table of a study file.

A range is searched, a number is fixed: a field of type float or int may hold a Variable instead of a number. A field
says what must hold through `setting`; a plain annotated field of the user's own dataclass works as it is.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import types
import typing
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, TypeVar

from fedpareto.errors import Fault, SettingError, did_you_mean
from fedpareto.space import Choice, Float, Integer, Variable

T = TypeVar("T")

Real = float | Variable
Whole = int | Variable

WORDS = {float: "a number", int: "a whole number", str: "a text", bool: "true or false", tuple: "a list of whole numbers"}


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
        """Return what must hold, if it does not."""
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


def setting(default: Any = MISSING, *, help: str, at_least: float | None = None, above: float | None = None,
            at_most: float | None = None, options: tuple[str, ...] = (), search: bool = True) -> Any:
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
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union else (hint,)
    plain = [typing.get_origin(p) or p for p in parts]
    for kind in (bool, float, int, str, tuple):
        if kind in plain:
            return kind
    raise SettingError(f"settings: a field must be float, int, str, bool or tuple[int, ...], found {hint}.")


def imported(name: str) -> Any:
    """Return what a dotted path "package.module:Name" names: the user's own."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise SettingError(f"{name!r} must be importable, found {type(error).__name__}: {error}. Install the package that holds it, or "
                           "put the module beside the study file.") from error


def named(settings: Any) -> dict[str, Any]:
    """Return every setting by the name a point knows it by; those of a chain's links too, numbered where two links share a name."""
    out: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if _is_links(value):
            names = link_names(value)
            out |= {new: getattr(link, old) for link, mine in zip(value, names, strict=True) for old, new in mine.items()}
        else:
            out[field.name] = value
    return out


def _is_links(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and all(dataclasses.is_dataclass(v) and not isinstance(v, Variable) for v in value)


def link_names(links: Sequence[Any]) -> list[dict[str, str]]:
    """Return for each link its settings' names, and the names by which a point knows them: numbered where two links share one."""
    held = [[f.name for f in dataclasses.fields(link)] for link in links]
    count = Counter(name for names in held for name in names)
    return [{name: name if count[name] == 1 else f"{name}_{i}" for name in names} for i, names in enumerate(held, 1)]


def searched(settings: Any) -> tuple[Variable, ...]:
    """Return the variables among the fields of a settings dataclass."""
    flat = [v for value in named(settings).values() for v in (value if isinstance(value, tuple) else (value,))]
    return tuple(v for v in flat if isinstance(v, Variable))


def fixed(settings: T, choose: Callable[[Variable], Any]) -> T:
    """Return the settings with a number chosen for every variable."""
    def one(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(fixed(v, choose) for v in value) if _is_links(value) else tuple(map(one, value))
        return choose(value) if isinstance(value, Variable) else value

    return dataclasses.replace(settings, **{f.name: one(getattr(settings, f.name)) for f in dataclasses.fields(settings)})  # type: ignore


def largest(value: Any) -> Any:
    """Return the largest value a setting can take: the end of its range, or the value it is fixed to."""
    if not isinstance(value, Variable):
        return value
    return max(value.choices) if isinstance(value, Choice) else value.high


def least(value: Any) -> Any:
    """Return the least value a setting can take: the end of its range, or the value it is fixed to."""
    if not isinstance(value, Variable):
        return value
    return min(value.choices) if isinstance(value, Choice) else value.low


def read(cls: type[T], table: Mapping[str, Any], where: str, faults: list[Fault]) -> T | None:
    """Build a settings dataclass from a table; on any fault, add to faults and return None."""
    before = len(faults)
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            faults.append(Fault(_join(where, key), f"there is no such key. {did_you_mean(key, fields)}"))
    held = {}
    for name, field in fields.items():
        key = _join(where, name)
        if name in table:
            try:
                held[name] = _value(name, table[name], kind_of(hints[name]), rule_of(field))
            except SettingError as error:
                faults.append(Fault(key, str(error).removeprefix(f"{name}: ")))
        elif field.default is MISSING and field.default_factory is MISSING:
            faults.append(Fault(key, f"must be given: {rule_of(field).help or WORDS[kind_of(hints[name])]}."))
    if len(faults) > before:
        return None
    try:
        return cls(**held)
    except SettingError as error:
        name, _, rest = str(error).partition(": ")
        faults.append(Fault(_join(where, name), rest) if name in fields else Fault(where or "study", str(error)))
        return None


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _value(name: str, found: Any, kind: type, rule: Rule) -> Any:
    """Return the fixed value or variable that a value of the file stands for."""
    if kind is tuple:
        return _whole_numbers(name, found, rule)
    if isinstance(found, list | dict):
        if not rule.search or kind is bool:
            raise SettingError(f"{name}: must be {WORDS[kind]}, found {found}. This setting cannot be searched.")
        return _variable(name, found, kind, rule)
    return _fixed(name, found, kind, rule)


def _fixed(name: str, found: Any, kind: type, rule: Rule) -> Any:
    right = (isinstance(found, kind) or (kind is float and isinstance(found, int))) and (
        kind is bool or not isinstance(found, bool))
    if not right:
        raise SettingError(f"{name}: must be {WORDS[kind]}, found {found!r}.")
    if isinstance(found, int) and abs(found) > 1e300:
        raise SettingError(f"{name}: must lie within ±1e300, found a number of {found.bit_length()} bits.")
    value = float(found) if kind is float else found
    broken = rule.broken(value)
    if broken:
        shown = f"{found!r}. {did_you_mean(found, rule.options)}" if rule.options else f"{found!r}."
        raise SettingError(f"{name}: {broken}, found {shown}")
    return value


def _variable(name: str, found: list[Any] | dict[str, Any], kind: type, rule: Rule) -> Variable:
    table = found if isinstance(found, dict) else {"low": found[0], "high": found[1]} if len(found) == 2 else {}
    keys = set(table)
    if keys == {"choices"} and isinstance(table["choices"], list):
        return Choice(name, tuple(_fixed(name, value, kind, rule) for value in table["choices"]))
    if kind is str or not {"low", "high"} <= keys <= {"low", "high", "log"} or not isinstance(table.get("log", False), bool):
        ways = "{choices = [...]}" if kind is str else "[low, high], {low = ..., high = ..., log = true} or {choices = [...]}"
        raise SettingError(f"{name}: must be {WORDS[kind]} or a range written as {ways}, found {found}.")
    low, high = (_fixed(name, table[end], kind, rule) for end in ("low", "high"))
    make = Float if kind is float else Integer
    return make(name, low, high, bool(table.get("log", False)))


def _whole_numbers(name: str, found: Any, rule: Rule) -> tuple[Whole, ...]:
    """Return a list of numbers, or of ranges: hidden = [[1, 256], 64] searches hidden_1."""
    if not isinstance(found, list):
        raise SettingError(f"{name}: must be {WORDS[tuple]}, found {found!r}.")
    return tuple(_value(f"{name}_{i}", value, int, rule) for i, value in enumerate(found, 1))


def plain(thing: Any) -> Any:
    """Return settings as plain data: tables, lists, numbers and texts, as a study file would hold them."""
    if isinstance(thing, Float | Integer):
        return {"low": thing.low, "high": thing.high, "log": thing.log}
    if isinstance(thing, Choice):
        return {"choices": list(thing.choices)}
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        held = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
        return {name: plain(value) for name, value in held.items() if value is not None}
    if isinstance(thing, list | tuple):
        return [plain(value) for value in thing]
    if isinstance(thing, str | int | float | None):
        return thing
    return f"{thing.__module__}:{thing.__qualname__}" if hasattr(thing, "__qualname__") else repr(thing)

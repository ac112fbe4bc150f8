"""Sections whose name says what they hold: the model, the mechanism, the optimizer."""

from __future__ import annotations

import dataclasses
import inspect
import json
import numbers
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedpareto.errors import Fault, SettingError, guarded, shown, told
from fedpareto.federation import Own
from fedpareto.mechanisms import Chain
from fedpareto.settings import check_source, imported, is_own, link_names, placed
from fedpareto.space import Variable
from fedpareto.study.sections import FAMILIES, METHODS
from fedpareto.study.table import hint, plain, read, refuse_unknown
from fedpareto.study.unseen import unseen


def member(
    family: str,
    section: Mapping[str, Any],
    where: str,
    folder: Path,
    faults: list[Fault],
    stored: Mapping[str, Any] | None = None,
) -> Any:
    """Return what a section names, with its settings; None, and what is wrong in faults.

    folder is that of the study file, beside which the user's own may lie. With what a database
    holds of the section, nothing of the user's own is imported.
    """
    name = section.get("name")
    if not isinstance(name, str):
        faults.append(_unnamed(name, FAMILIES[family], where))
        return None
    rest = {key: value for key, value in section.items() if key != "name"}
    if family == "mechanism" and name == "chain":
        return _chain(rest, where, folder, faults, stored)
    if stored is not None and is_own(name):
        return unseen(section, stored, where, faults)
    try:
        cls = _find(name, FAMILIES[family], folder, faults)
        if family == "model" and is_own(name) and _makes_modules(cls):
            return Own(name, _arguments(rest, where))
        _must_be_member(name, cls, family)
    except SettingError as error:
        faults.append(Fault(f"{where}.name", str(error)))
        return None
    return (_own if is_own(name) else read)(cls, rest, where, faults)


def _own(cls: type, table: Mapping[str, Any], where: str, faults: list[Fault]) -> Any:
    """Return settings of the user's own; what their code raises meanwhile is a fault."""
    try:
        with guarded():
            made = read(cls, table, where, faults)
            if made is not None:
                _check_made(cls, made, where)
            return made
    except SettingError as error:
        faults.append(Fault(f"{where}.name", str(error)))
    except Exception as error:
        message = f"{cls.__name__} must be made of its settings, found {placed(error)}."
        faults.append(Fault(f"{where}.name", message))
    return None


def _check_made(cls: Any, made: Any, where: str) -> None:
    """Refuse settings of the user's own that hold what no setting is."""
    if type(made) is not cls:
        raise SettingError(f"{cls.__name__} must make one of itself, found {shown(made)}.")
    for field in dataclasses.fields(cls):
        held = getattr(made, field.name)
        if not isinstance(held, numbers.Real | str | tuple | Variable | None):
            raise SettingError(
                f"{cls.__name__} must hold numbers, texts, truth values and lists of whole "
                f"numbers, found {shown(held)} as its {field.name}."
            )
    batch: object = getattr(made, "batch", None)
    if where == "optimizer" and not (isinstance(batch, int) and 0 < batch < 10**7):
        raise SettingError(
            f"{cls.__name__} must say by its batch how many points it proposes at once, a whole "
            f"number above 0, found {shown(batch)}."
        )


def _arguments(rest: Mapping[str, Any], where: str) -> str:
    """Return the keys that are passed to a module of the user's own, as JSON."""
    try:
        return json.dumps(rest)
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"the keys of [{where}] must be numbers, texts, truth values, lists and tables of "
            f"them, found {told(error)}. Write a date as a text."
        ) from error


def member_table(section: Mapping[str, Any], made: Any) -> dict[str, Any]:
    """Return a member with all its settings as a table; section is what it was read from."""
    if isinstance(made, Chain):
        pairs = zip(section["links"], made.links, strict=True)
        links = [member_table(table, link) for table, link in pairs]
        return {"name": section["name"], "links": links}
    held = json.loads(made.arguments) if isinstance(made, Own) else plain(made)
    return {"name": section["name"], **held}


def key_of(key: str, mechanism: Any) -> str:
    """Return where in the file a setting stands that is named as a point knows it.

    Of a chain, mechanism.bits_2 is mechanism.links.2.bits.
    """
    section, _, name = key.partition(".")
    if section != "mechanism" or not isinstance(mechanism, Chain):
        return key
    for place, names in enumerate(link_names(mechanism.links), 1):
        for own, known in names.items():
            if known == name:
                return f"mechanism.links.{place}.{own}"
    return key


def _unnamed(found: Any, known: Iterable[str], where: str) -> Fault:
    seen = "nothing" if found is None else shown(found)
    return Fault(
        f"{where}.name",
        f"must name one of {', '.join(sorted(known))}, or your own as 'package.module:Name'; "
        f"found {seen}.",
    )


def _chain(
    rest: Mapping[str, Any],
    where: str,
    folder: Path,
    faults: list[Fault],
    stored: Mapping[str, Any] | None,
) -> Chain | None:
    """Return a chain of the mechanisms in links = [{name = ..., ...}, ...]."""
    refuse_unknown(rest, ["links"], where, faults)
    links = rest.get("links")
    tables = isinstance(links, list) and all(isinstance(link, dict) for link in links)
    if not links or not tables:
        faults.append(
            Fault(
                f"{where}.links",
                "must be a list of at least one mechanism, each a table with its name such as "
                f'{{name = "quantization", bits = 8}}, found {shown(links)}.',
            )
        )
        return None
    held: list[Any] = [None] * len(links)
    if stored is not None:
        held = [*stored.get("links", ()), *({} for _ in links)]
    made = [
        _link(t, f"{where}.links.{i}", folder, faults, held[i - 1]) for i, t in enumerate(links, 1)
    ]
    if None in made:
        return None
    try:
        return Chain(tuple(made))
    except SettingError as error:
        faults.append(Fault(f"{where}.links", str(error).removeprefix("links: ")))
        return None


def _link(
    section: Mapping[str, Any],
    where: str,
    folder: Path,
    faults: list[Fault],
    stored: Mapping[str, Any] | None,
) -> Any:
    if section.get("name") != "chain":
        return member("mechanism", section, where, folder, faults, stored)
    message = "must not be a chain within a chain, found one. Write its links in its place."
    faults.append(Fault(f"{where}.name", message))
    return None


def _find(name: str, family: Mapping[str, type], folder: Path, faults: list[Fault]) -> Any:
    """Return the class a name stands for: one of the family, or the user's own by dotted path."""
    if name in family:
        return family[name]
    if not is_own(name):
        raise SettingError(f"there is no {shown(name)}. {hint(name, family, faults)}".rstrip())
    check_source(name, folder)
    return imported(name)


def _makes_modules(cls: Any) -> bool:
    """Say whether it is an nn.Module class, or a function, which must return a module."""
    from torch import nn

    return issubclass(cls, nn.Module) if isinstance(cls, type) else inspect.isfunction(cls)


def _must_be_member(name: str, cls: Any, family: str) -> None:
    """Refuse what is not a frozen dataclass with the methods of its family."""
    frozen = isinstance(cls, type) and dataclasses.is_dataclass(cls) and _is_frozen(cls)
    missing = [m for m in METHODS[family] if not callable(getattr(cls, m, None))]
    if not frozen or missing:
        method = (missing or METHODS[family])[0]
        also = ", an nn.Module or a function that makes one" if family == "model" else ""
        raise SettingError(
            f"{name!r} must be a frozen dataclass of settings with a method {method!r}{also}, "
            f"found {shown(cls)}."
        )


def _is_frozen(cls: Any) -> bool:
    return bool(cls.__dataclass_params__.frozen)

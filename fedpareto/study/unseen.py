"""Parts of the user's own as a database describes them, so that a study is looked at unrun."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpareto.errors import Fault
from fedpareto.federation import Unseen
from fedpareto.federation.measures import WORST
from fedpareto.settings import check_source, import_from, is_own, numbered
from fedpareto.space import Choice, Float, Integer
from fedpareto.study.sections import FAMILIES
from fedpareto.study.table import RANGES


def names_own(table: Mapping[str, Any]) -> bool:
    """Say whether a study file names code of the user's own."""
    return any(map(is_own, _names(table)))


def check_sources(table: Mapping[str, Any], folder: Path) -> None:
    """Refuse a study file that could not name its code from this folder; nothing is imported."""
    import_from(folder)
    for name in filter(is_own, _names(table)):
        check_source(name.removesuffix(WORST), folder)


def _names(table: Mapping[str, Any]) -> list[Any]:
    """Return every text of a study file that may name a part."""
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    found = [tables.get(section, {}).get("name") for section in (*FAMILIES, "data")]
    links = tables.get("mechanism", {}).get("links")
    if isinstance(links, list):
        found += [table.get("name") for table in links if isinstance(table, dict)]
    found.append(tables.get("training", {}).get("loss"))
    found.append(tables.get("data", {}).get("split"))
    for section in ("objectives", "limits"):
        for name, judge in tables.get(section, {}).items():
            found.append(judge.get("measure", name) if isinstance(judge, dict) else name)
    return found


def unseen(section: Mapping[str, Any], stored: Any, where: str, faults: list[Fault]) -> Any:
    """Return a part with the settings that the database holds of it; none of its code is run.

    What the study file gives otherwise stands in their place, so that it is found to differ.
    """
    if not isinstance(stored, dict) or stored.get("name") != section["name"]:
        message = f"must be the one that the study was run with, found {section['name']}."
        faults.append(Fault(f"{where}.name", message))
        return None
    held = {key: _merged(section.get(key), value) for key, value in stored.items()}
    held |= {key: value for key, value in section.items() if key not in stored}
    held.pop("name")
    fields = [(key, Any, dataclasses.field(default=None)) for key in held if key.isidentifier()]
    cls = dataclasses.make_dataclass("Unseen", fields, bases=(Unseen,), frozen=True)
    return cls(**{key: _value(key, held[key]) for key, *_ in fields})


def _merged(found: Any, stored: Any) -> Any:
    """Return a stored setting, or what the study file has in its place where that differs."""
    if found is None or found == stored:
        return stored
    if isinstance(stored, dict) and set(stored) in RANGES:
        pair = isinstance(found, list) and len(found) == 2
        given = {"low": found[0], "high": found[1]} if pair else found
        return stored | given if isinstance(given, dict) else found
    if isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        return [_merged(one, other) for one, other in zip(found, stored, strict=True)]
    return found


def _value(name: str, stored: Any) -> Any:
    """Return a setting as a part holds it: a variable for a range, a tuple for a list."""
    if isinstance(stored, list):
        return tuple(_value(numbered(name, i), value) for i, value in enumerate(stored, 1))
    if not isinstance(stored, dict) or set(stored) not in RANGES:
        return stored
    if "choices" in stored:
        return Choice(name, tuple(stored["choices"]))
    whole = isinstance(stored["low"], int) and isinstance(stored["high"], int)
    if whole and "mean" not in stored:
        return Integer(name, stored["low"], stored["high"], stored["log"])
    return Float(name, **stored)

"""Write a study as a TOML file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _is_section(value: Any) -> bool:
    return isinstance(value, Mapping) and not {"low", "choices"} & set(value)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else json.dumps(name)


def to_toml(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """Return a nested table as TOML text."""
    lines = [f"{_key(key)} = {_value(v)}" for key, v in table.items() if not _is_section(v)]
    head = [f"[{'.'.join(map(_key, path))}]"] if path and (lines or not table) else []
    inner = [to_toml(v, (*path, key)) for key, v in table.items() if _is_section(v)]
    return "\n\n".join(filter(None, ["\n".join(head + lines), *inner]))


def fixed_study(description: Mapping[str, Any], settings: Mapping[str, Any], name: str, repeats: int) -> str:
    """Return a study file with every searched setting fixed: one trial, trained several times to confirm it."""
    table = {key: dict(v) if isinstance(v, Mapping) else v for key, v in description.items()}
    for section in ("training", "mechanism"):
        table[section] |= {key: settings[key] for key in table[section] if key in settings}
    table |= {"name": name, "budget": 1, "repeats": repeats, "block": 1, "optimizer": {"name": "random", "batch": 1}}
    return to_toml(_without_unset(table)) + "\n"


def _without_unset(table: dict[str, Any]) -> dict[str, Any]:
    """Drop the one of local_epochs and local_steps that is not used."""
    training = {k: v for k, v in table["training"].items() if k not in ("local_epochs", "local_steps") or v}
    return table | {"training": training}

"""Write a study as a TOML file."""

from __future__ import annotations

import json
from collections import Counter
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
    for section in ("training", "mechanism", "model"):
        table[section] = {key: _chosen(key, v, settings) for key, v in table[section].items()}
    table |= {"name": name, "budget": 1, "repeats": repeats, "block": 1, "optimizer": {"name": "random", "batch": 1}}
    return to_toml(_without_unset(table)) + "\n"


def _chosen(name: str, value: Any, settings: Mapping[str, Any]) -> Any:
    """Return a setting with the values chosen for what is searched in it: a range, a list of ranges, or links of a chain."""
    if isinstance(value, Mapping) and {"low", "choices"} & set(value):
        return settings[name]
    if name == "links":
        count = Counter(key for link in value for key in link)
        return [{key: _chosen(key if count[key] == 1 else f"{key}_{i}", v, settings) for key, v in link.items()}
                for i, link in enumerate(value, 1)]
    if isinstance(value, list):
        return [_chosen(f"{name}_{i}", v, settings) for i, v in enumerate(value, 1)]
    return value


def _without_unset(table: dict[str, Any]) -> dict[str, Any]:
    """Drop the one of local_epochs and local_steps that is not used."""
    training = {k: v for k, v in table["training"].items() if k not in ("local_epochs", "local_steps") or v}
    return table | {"training": training}


def put_section(text: str, name: str, table: Mapping[str, Any]) -> str:
    """Return a study file with one section in place of its own, every other line as it was."""
    lines, inside, kept = text.splitlines(), False, []
    for line in lines:
        head = line.strip()
        if head.startswith("["):
            inside = head.split("#")[0].strip().strip("[]").strip().split(".")[0] == name
        if not inside:
            kept.append(line)
    return "\n".join(kept).rstrip() + "\n\n" + to_toml({name: table}) + "\n"

"""Write study files: a whole study as TOML, a picked point as a study, one section into a file."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Item, Table

from fedpareto.errors import Fault, SettingError, StudyError
from fedpareto.files import write_whole
from fedpareto.mechanisms import Chain
from fedpareto.space import Variable
from fedpareto.study.read import built, parsed
from fedpareto.study.study import Study
from fedpareto.study.table import plain
from fedpareto.study.unseen import check_sources, names_own
from fedpareto.words import visible_lines


def to_toml(table: Mapping[str, Any]) -> str:
    """Return a nested table as TOML text: ranges stay on one line, other tables become sections."""
    document = tomlkit.document()
    for key, value in _keys_first(table):
        document.add(key, _item(value))
    # TOML reads the numbers of what cannot be seen as the same text
    return visible_lines(tomlkit.dumps(document).strip("\n"))


def fixed_study(study: Study, settings: Mapping[str, Any]) -> str:
    """Return a study file that trains one point of a study five times, to confirm it.

    Every setting that the study searches has the value that `settings` holds for it.
    """
    problem: Any = study.problem
    table = dict(study.description)
    table["training"] = _without_unset(_chosen(table["training"], problem.training, settings))
    table["mechanism"] = _chosen(table["mechanism"], problem.mechanism, settings)
    table["model"] = _chosen(table["model"], problem.model, settings)
    table["server"] = _chosen(table["server"], problem.server, settings)
    table["local"] = _chosen(table["local"], problem.local, settings)
    table |= {"name": f"{study.name}-pick", "budget": 1, "repeats": 5, "block": 1, "in_flight": 0}
    table["optimizer"] = {"name": "random", "batch": 1}
    return to_toml(table) + "\n"


def write_section(path: Path, name: str, values: Mapping[str, Any]) -> None:
    """Put values into one section of a study file, and leave the rest of the file as it is.

    The file is replaced in one step: a reader finds the old one or the new one, never half.
    """
    text, before = parsed(path)
    written = put_section(text, name, values)
    meant = before | {name: before.get(name, {}) | dict(values)}
    write_whole(path, written.encode(), says(meant))


def write_study(path: Path, text: str) -> None:
    """Write a study file that can be read as a study.

    Code of the user's own is looked for where the file will lie, and not run.
    """

    def check(found: bytes) -> None:
        faults: list[Fault] = []
        table = tomllib.loads(found.decode())
        stored = table if names_own(table) else None
        if stored is not None:
            check_sources(table, path.parent)
        if built(table, path, faults, stored) is None:
            raise StudyError(str(path), faults)

    write_whole(path, text.encode(), check)


def says(meant: Mapping[str, Any]) -> Callable[[bytes], None]:
    """Return a check that a file says this as TOML."""

    def check(found: bytes) -> None:
        if tomllib.loads(found.decode()) != meant:
            raise SettingError("study: must read as it was meant, found another. It was not kept.")

    return check


def put_section(text: str, name: str, values: Mapping[str, Any]) -> str:
    """Return a study file with these values in one of its sections.

    Other keys of the section, comments and all other lines stay as they are. It does not matter
    how the file writes the section: as [cost], as cost = {...} or as cost.step_seconds = 1.
    """
    asked = tomllib.loads(text)
    asked[name] = asked.get(name, {}) | dict(values)
    if _ends_lines_with_crlf(text):
        written = _put(text.replace("\r\n", "\n"), name, values).replace("\n", "\r\n")
    else:
        written = _put(text, name, values)
    if tomllib.loads(written) != asked:
        raise SettingError(
            f"{name}: must be a section that can be rewritten without a change to any other key, "
            f"found one that cannot. Write it as [{name}] with one key a line."
        )
    return written


def _ends_lines_with_crlf(text: str) -> bool:
    """Say whether every line of a text ends as on Windows."""
    return "\r\n" in text and text.count("\r\n") == text.count("\n")


def _put(text: str, name: str, values: Mapping[str, Any]) -> str:
    try:
        document = tomlkit.parse(text)
        if name not in document:
            return f"{text.rstrip()}\n\n{to_toml({name: values})}\n"
        _update(document[name], values)
    except (TOMLKitError, RecursionError) as error:
        raise SettingError(
            f"{name}: must stand in a file that can be rewritten, found: {error}. "
            f"Put the values into [{name}] by hand."
        ) from error
    return tomlkit.dumps(document)


def _update(section: Any, values: Mapping[str, Any]) -> None:
    """Put values into a section: those it has where they stand, new ones after its last key."""
    for key, value in values.items():
        if key in section and section[key] != value:
            section[key] = value
    body = section.value.body if isinstance(section, Table) else []
    following = []  # blank lines and comments at the end, which speak of the next section
    while body and body[-1][0] is None:
        following.append(body.pop())
    for key, value in values.items():
        if key not in section:
            section[key] = value
    body.extend(reversed(following))


def _keys_first(table: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the entries of a table, those that become sections last, as TOML asks."""
    return sorted(table.items(), key=lambda entry: _is_section(entry[1]) or _is_list(entry[1]))


def _item(value: Any) -> Item:
    if _is_section(value):
        return _section(value)
    if _is_list(value):
        return AoT([_section(table) for table in value])
    return _inline(value)


def _section(table: Mapping[str, Any]) -> Table:
    """Return a table under a header of its own, which is left out where it holds tables alone."""
    made = tomlkit.table(is_super_table=bool(table) and all(map(_is_section, table.values())))
    for key, value in _keys_first(table):
        made.add(key, _item(value))
    return made


def _inline(value: Any) -> Item:
    """Return a value as it stands on the line of its key."""
    if isinstance(value, Mapping):
        made = tomlkit.inline_table()
        for key, part in value.items():
            made.add(key, _inline(part))
        return made
    if isinstance(value, list | tuple):
        array = tomlkit.array()
        for part in value:
            array.append(_inline(part))
        return array
    made = tomlkit.item(value)
    assert isinstance(made, Item)
    return made


def _is_section(value: Any) -> bool:
    return isinstance(value, Mapping) and not _is_range(value)


def _is_list(value: Any) -> bool:
    """Say whether a value is a list of tables, such as the links of a chain."""
    return isinstance(value, list) and bool(value) and all(map(_is_section, value))


def _is_range(value: Mapping[str, Any]) -> bool:
    return bool({"low", "choices"} & set(value))


def _chosen(table: dict[str, Any], made: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of a study file with the values of a point for what it searches."""
    if isinstance(made, Chain):
        pairs = zip(table["links"], made.links, strict=True)
        return table | {"links": [_chosen(part, link, settings) for part, link in pairs]}
    out = dict(table)
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        if _is_searched(value):
            out[field.name] = plain(value, lambda variable: settings[variable.name])
    return out


def _is_searched(value: Any) -> bool:
    """Say whether a setting is a variable, or a list with one in it."""
    values = value if isinstance(value, tuple) else (value,)
    return any(isinstance(v, Variable) for v in values)


def _without_unset(training: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of training without the one of local_epochs and local_steps that is 0."""
    unset = [key for key in ("local_epochs", "local_steps") if not training[key]]
    return {key: value for key, value in training.items() if key not in unset}

"""Whether the rows of a database are what was written: a checksum per row, and their kinds."""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpareto.contract import VIEWS
from fedpareto.errors import DamagedStore
from fedpareto.store.schema import MIGRATIONS, TABLES, columns_in, columns_of
from fedpareto.trials import MOST_REPEATS, MOST_TRIALS

PNG = b"\x89PNG\r\n\x1a\n"
STATES = ("pending", "done", "failed", "stopped")  # the last by older versions
LARGEST = sys.float_info.max  # JSON knows whole numbers that no float can hold
KEYS = dict.fromkeys(TABLES, "rowid") | {"trials": "number"}
BASELINES = ("trivial", "unprotected")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Damage:
    """One thing wrong with a database's rows."""

    table: str
    row: object
    column: str
    what: str

    def __str__(self) -> str:
        return f"table {self.table}, row {self.row}, column {self.column}: {self.what}"


def checksum(table: str, *values: object) -> str:
    """Return the checksum of a row's values, in the order of the table's columns.

    A column that came after checksums counts once it holds something.
    """
    plain = [v.hex() if isinstance(v, bytes) else v for v in values]
    while len(plain) > _first(table) and plain[-1] is None:
        plain.pop()
    text = json.dumps([table, *plain])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@functools.cache
def _first(table: str) -> int:
    """Return how many values the checksum of a row was of at first."""
    every = (columns_of(version)[table] for version in range(1, len(MIGRATIONS) + 1))
    columns = next(columns for columns in every if "checksum" in columns)
    return len(columns) - 1 + (table == "trials")  # and of how many trainings it has


def prepare(db: sqlite3.Connection) -> None:
    """Let a connection read text that is not UTF-8, and compute checksums in SQL."""
    db.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    db.create_function("row_checksum", -1, checksum, deterministic=True)


def seal(db: sqlite3.Connection, table: str, where: str = "TRUE", *values: object) -> None:
    """Give a checksum to those rows of a table that have none."""
    columns = list(_summed(table))
    if table == "trials":
        columns.append(
            "CASE state WHEN 'pending' THEN NULL "
            "ELSE (SELECT count(*) FROM repeats WHERE trial = number) END"
        )
    db.execute(
        f"UPDATE {table} SET checksum = row_checksum('{table}', {', '.join(columns)}) "
        f"WHERE checksum IS NULL AND {where}",
        values,
    )


def _summed(table: str) -> tuple[str, ...]:
    """Return the columns of which a row's checksum is."""
    return tuple(c for c in columns_of_now()[table] if c != "checksum")


def columns_of_now() -> dict[str, tuple[str, ...]]:
    """Return the columns of every table, in the order of the present version."""
    return columns_of(len(MIGRATIONS))


def check_rows(path: Path, db: sqlite3.Connection) -> None:
    """Refuse a database whose pages or rows are not as they were written."""
    db.execute("BEGIN")  # one moment of a database that another process may be writing to
    try:
        (whole,) = db.execute("PRAGMA integrity_check(1)").fetchone()
        if whole != "ok":
            raise DamagedStore(path, " ".join(str(whole).split()))
        found = list(damages({table: Rows(db, table) for table in TABLES}))
    finally:
        db.execute("COMMIT")
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise DamagedStore(path, f"{found[0]}{more}")


def rows_of(db: sqlite3.Connection, table: str, after: int | None = None) -> Iterator[Row]:
    """Yield the rows of a table, all or after a key, by the columns of the present version."""
    here = columns_in(db, table)
    if not here:  # the table came with a later version
        return
    names = ["key", *columns_of_now()[table]]
    columns = [c if c in here else f"NULL AS {c}" for c in names[1:]]
    query = (
        f"SELECT {KEYS[table]}, {', '.join(columns)} FROM {table} NOT INDEXED "
        f"{'' if after is None else 'WHERE rowid > ?'} ORDER BY rowid"
    )
    for row in db.execute(query, () if after is None else (after,)):
        yield dict(zip(names, row, strict=True))


@dataclass(frozen=True)
class Rows:
    """The rows of a table, read each time they are gone through: none is held."""

    db: sqlite3.Connection
    table: str

    def __iter__(self) -> Iterator[Row]:
        return rows_of(self.db, self.table)


def damages(tables: Mapping[str, Iterable[Row]]) -> Iterator[Damage]:
    """Yield what is wrong with the rows of all tables."""
    trained = _counted(tables["repeats"])
    for table, rows in tables.items():
        for row in rows:
            damage = damage_of(table, row, trained.get(row.get("number"), 0))
            if damage:
                yield damage
    yield from _misplaced(tables)
    yield from _unlike(tables["trials"])


def _counted(repeats: Iterable[Row]) -> dict[object, int]:
    """Return how many trainings each trial has."""
    counts: dict[object, int] = {}
    for row in repeats:
        counts[row["trial"]] = counts.get(row["trial"], 0) + 1
    return counts


def damage_of(table: str, row: Row, trained: int | None = None) -> Damage | None:
    """Return what is wrong with a row, if something is; trained counts a trial's trainings."""
    if vouched(table, row, trained):
        return None
    for column, kind in KINDS[table].items():
        if not kind.holds(row[column]):
            what = f"must be {kind.words}, found {shown(row[column])}"
            return Damage(table, row["key"], column, what)
    if row["checksum"] is None:
        return _unfinished(row) if table == "trials" else None
    words = "must be that of the row's values"
    if table == "trials" and row["state"] != "pending":
        words += f" and of its {trained} trainings"
    return Damage(table, row["key"], "checksum", f"{words}, found {shown(row['checksum'])}")


def vouched(table: str, row: Row, trained: int | None = None) -> bool:
    """Say whether a row has a checksum that is right."""
    if row["checksum"] is None:
        return False
    values = [row[c] for c in _summed(table)]
    if table == "trials":
        values.append(None if row["state"] == "pending" else trained)
    return bool(row["checksum"] == checksum(table, *values))


def _unfinished(row: Row) -> Damage | None:
    """Return what is wrong with a trial that no checksum vouches for: done, but not measured."""
    if row["state"] == "done" and row["measures"] is None:
        return Damage("trials", row["key"], "measures", "must be there of a trial done, found none")
    return None


def _misplaced(tables: Mapping[str, Iterable[Row]]) -> Iterator[Damage]:
    """Yield where rows are missing, or are of nothing, or are there twice."""
    study = list(tables["study"])
    if len(study) != 1:
        yield Damage("study", 1, "name", f"must be one row, found {len(study)}")
    numbers = {row["number"] for row in tables["trials"]}
    for place, row in enumerate(tables["trials"]):
        if row["number"] != place:
            what = f"must be {place}, the next in order, found {shown(row['number'])}"
            yield Damage("trials", row["key"], "number", what)
            break
    facts = list(tables["data"])
    if len(facts) > 1:
        yield Damage("data", 2, "facts", f"must be one row, found {len(facts)}")
    limit = study[0]["repeats"] if study else 0
    seen = set()
    for row in tables["repeats"]:
        pair = row["trial"], row["repeat"]
        if row["trial"] not in numbers:
            what = f"must be a trial that is there, found {shown(row['trial'])}"
            yield Damage("repeats", row["key"], "trial", what)
        elif pair in seen or not (isinstance(limit, int) and row["repeat"] in range(limit)):
            what = f"must be below {limit} and there once, found {shown(row['repeat'])}"
            yield Damage("repeats", row["key"], "repeat", what)
        seen.add(pair)
    for row in tables.get("audits", ()):
        if row["trial"] not in numbers:
            what = f"must be a trial that is there, found {shown(row['trial'])}"
            yield Damage("audits", row["key"], "trial", what)


def _unlike(trials: Iterable[Row]) -> Iterator[Damage]:
    """Yield trials changed by hand that have other settings or coordinates than most."""
    if all(row["checksum"] is not None for row in trials):
        return
    kinds = KINDS["trials"]
    valid = [r for r in trials if all(kinds[c].holds(r[c]) for c in ("point", "settings"))]
    for column in ("point", "settings"):
        found = [_shape(row[column]) for row in valid]
        usual = max(found, key=found.count, default=None)
        for row, shape in zip(valid, found, strict=True):
            if shape != usual:
                what = f"must have what other trials have, {usual}, found {shown(shape)}"
                yield Damage("trials", row["key"], column, what)


def _shape(text: str) -> str:
    """Return the names of settings, or how many coordinates a point has."""
    value = json.loads(text)
    return ", ".join(value) if isinstance(value, dict) else f"{len(value)} numbers"


def shown(value: object) -> str:
    """Return a value as text that can be printed, cut where it is long."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class Kind:
    """What a column may hold."""

    words: str
    holds: Callable[[Any], bool]


def _text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    return not any("\ud800" <= c <= "\udfff" for c in value)


def _whole(least: int, most: int) -> Callable[[object], bool]:
    """Return whether a value is a whole number between these."""
    return lambda value: isinstance(value, int) and least <= value <= most


def _picture(value: object) -> bool:
    return value is None or (isinstance(value, bytes) and value.startswith(PNG))


def _seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < LARGEST


def _number(value: object) -> bool:
    """Say whether a value is what stands for a measure in JSON: null is not finite."""
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= LARGEST


def _json(inner: Callable[[Any], bool]) -> Callable[[object], bool]:
    """Return whether a value is JSON that holds something."""

    def holds(value: object) -> bool:
        if not _text(value):
            return False
        try:
            return inner(json.loads(str(value)))
        except (ValueError, RecursionError):
            return False

    return holds


def _or_null(kind: Kind) -> Kind:
    return Kind(f"{kind.words} or NULL", lambda value: value is None or kind.holds(value))


def _point(value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(type(v) in (int, float) and 0 <= v <= 1 for v in value)


def _finite(value: object) -> bool:
    """Say whether all numbers of what JSON holds are finite: other readers know no others."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, (int, float)) or abs(value) <= LARGEST


def _setting(value: object) -> bool:
    return isinstance(value, str | int | float) and _finite(value)


def _table(value: object, inner: Callable[[object], bool] = _finite) -> bool:
    return isinstance(value, dict) and all(map(inner, value.values()))


def _curves(value: object) -> bool:
    return _table(value, lambda curve: isinstance(curve, list) and all(map(_number, curve)))


def _works(value: object) -> bool:
    """Say whether a value is what each machine trained."""
    count = COUNT.holds
    kinds = {"device": _text, "trainings": count, "seconds": _seconds, "trial": count}

    def one(work: object) -> bool:
        alike = isinstance(work, dict) and set(work) == set(kinds)
        return alike and all(holds(work[key]) for key, holds in kinds.items())  # type: ignore[index]

    return _table(value, one)


TEXT = Kind("text in UTF-8", _text)
COUNT = Kind("a whole number of at least 0", _whole(0, 2**62 - 1))
MEASURES = Kind("a JSON table of numbers", _json(lambda v: _table(v, _number)))
CURVES = _or_null(Kind("a JSON table of lists of numbers", _json(_curves)))
OPEN_TEXT = _or_null(TEXT)
TABLE = Kind("a JSON table, its numbers finite", _json(_table))
ONE_BY_ONE = "a JSON table of finite numbers, words, true and false"
SETTINGS = Kind(ONE_BY_ONE, _json(lambda v: _table(v, _setting)))
KINDS = {
    "study": {
        "name": TEXT,
        "identity": TABLE,
        "repeats": Kind(f"a whole number from 1 to {MOST_REPEATS:,}", _whole(1, MOST_REPEATS)),
        "secret": OPEN_TEXT,
    },
    "trials": {
        "number": COUNT,
        "batch": COUNT,
        "point": Kind("a JSON list of numbers from 0 to 1", _json(_point)),
        "settings": SETTINGS,
        "state": Kind(f"one of {', '.join(STATES)}", lambda value: value in STATES),
        "measures": _or_null(MEASURES),
        "spread": _or_null(MEASURES),
        "error": OPEN_TEXT,
        "curves": CURVES,
    },
    "repeats": {
        "trial": COUNT,
        "repeat": COUNT,
        "measures": MEASURES,
        "error": OPEN_TEXT,
        "curves": CURVES,
    },
    "sessions": {
        "started": TEXT,
        "seconds": Kind("a number of at least 0", _seconds),
        "version": TEXT,
        "budget": Kind(f"a whole number of at most {MOST_TRIALS:,}", _whole(0, MOST_TRIALS)),
        "ended": OPEN_TEXT,
        "work": _or_null(Kind("a JSON table of what was trained where", _json(_works))),
    },
    "audits": {
        "trial": COUNT,
        "settings": SETTINGS,
        "attack": TEXT,
        "view": Kind(f"one of {', '.join(VIEWS)}", lambda value: value in VIEWS),
        "seed": COUNT,
        "options": TABLE,
        "measures": TABLE,
        "picture": Kind("a PNG picture or NULL", _picture),
        "version": TEXT,
    },
    "data": {"facts": TABLE},
    "baselines": {
        "name": Kind(f"one of {', '.join(BASELINES)}", lambda value: value in BASELINES),
        "repeat": COUNT,
        "settings": SETTINGS,
        "measures": MEASURES,
        "error": OPEN_TEXT,
    },
}

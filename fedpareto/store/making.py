"""A new database, empty or with rows, as the bytes of its file."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedpareto.store.access import opened_to_read
from fedpareto.store.checks import Row, check_rows, columns_of_now, prepare, seal
from fedpareto.store.schema import TABLES, is_blank, migrate


def new_database(name: str, identity: Mapping[str, Any], repeats: int) -> bytes:
    """Return the file of a study's database without trials."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        prepare(db)
        migrate(db)
        values = (name, json.dumps(identity), repeats)
        db.execute("INSERT INTO study (name, identity, repeats) VALUES (?, ?, ?)", values)
        seal(db, "study")
        return db.serialize()


def rebuilt(path: Path, tables: Mapping[str, Iterable[Row]]) -> bytes:
    """Return the file of a database with these rows, by table; path names it in errors."""
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        prepare(db)
        migrate(db)
        for table in TABLES:
            names = columns_of_now()[table]
            places = ", ".join("?" * len(names))
            rows = [[row.get(name) for name in names] for row in tables[table]]
            db.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
        for table in TABLES:
            seal(db, table)
        check_rows(path, db)
        return db.serialize()


def is_new(path: Path) -> bool:
    """Say whether a database is to be made: there is no file, or one with nothing in it."""
    if not path.exists() or path.stat().st_size == 0:
        return True
    with contextlib.closing(opened_to_read(path)) as look:
        return is_blank(look)

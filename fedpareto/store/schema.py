"""The tables of a database, how older ones are brought up to date, and whose database it is."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from pathlib import Path

from fedpareto.errors import DamagedStore, StoreError
from fedpareto.words import visible

APPLICATION = 0x46504152  # "FPAR", in the header of every database of ours

MIGRATIONS = [
    """
    CREATE TABLE study (            -- one row
        name TEXT NOT NULL,
        identity TEXT NOT NULL,     -- JSON: the study file in full, but for its name and budget
        repeats INTEGER NOT NULL    -- trainings per trial, at the most
    );
    CREATE TABLE trials (           -- one row per setting tried, in the order proposed
        number INTEGER PRIMARY KEY, -- from 0
        batch INTEGER NOT NULL,     -- which proposal of the optimizer, from 0
        point TEXT NOT NULL,        -- JSON: where it lies in the unit cube
        settings TEXT NOT NULL,     -- JSON: name → value, in real units
        state TEXT NOT NULL,        -- pending, done or failed
        measures TEXT,              -- JSON: name → mean over repeats
        spread TEXT,                -- JSON: name → standard deviation over repeats
        error TEXT                  -- why it failed
    );
    CREATE TABLE repeats (          -- one row per training, those that a trial's means are of
        trial INTEGER NOT NULL REFERENCES trials (number),
        repeat INTEGER NOT NULL,    -- from 0
        measures TEXT NOT NULL,     -- JSON: name → value
        error TEXT,                 -- why it failed
        PRIMARY KEY (trial, repeat)
    );
    CREATE TABLE sessions (         -- one row per call of run
        started TEXT NOT NULL,      -- UTC
        seconds REAL NOT NULL,      -- until the last result
        version TEXT NOT NULL,      -- of fedpareto
        budget INTEGER NOT NULL
    );
    """,
    """
    ALTER TABLE trials ADD COLUMN curves TEXT;   -- JSON: measure → its mean after 1, 2, … rounds
    ALTER TABLE repeats ADD COLUMN curves TEXT;  -- JSON: measure → its value after 1, 2, … rounds
    ALTER TABLE sessions ADD COLUMN ended TEXT;  -- why it ended before its budget, if it did
    """,
    """
    ALTER TABLE study ADD COLUMN secret TEXT;    -- of the noise on private data
    """,
    """
    ALTER TABLE study ADD COLUMN checksum TEXT;    -- of the other values, or NULL: not checked
    ALTER TABLE trials ADD COLUMN checksum TEXT;   -- and of how many trainings a finished one has
    ALTER TABLE repeats ADD COLUMN checksum TEXT;
    ALTER TABLE sessions ADD COLUMN checksum TEXT;
    """,
    """
    CREATE TABLE audits (           -- one row per attack on a point, only ever added to
        trial INTEGER NOT NULL REFERENCES trials (number),
        settings TEXT NOT NULL,     -- JSON: of the point, or of one on the way of its run
        attack TEXT NOT NULL,       -- its name
        view TEXT NOT NULL,         -- who looks on: server, secagg or release
        seed INTEGER NOT NULL,      -- of the audit, not of the study
        options TEXT NOT NULL,      -- JSON: the settings of the attack
        measures TEXT NOT NULL,     -- JSON: name → what was found
        picture BLOB,               -- PNG: originals above, what was made of uploads below
        version TEXT NOT NULL,      -- of fedpareto
        checksum TEXT
    );
    """,
    """
    CREATE TABLE data (             -- one row: what looking at a study needs of its data
        facts TEXT NOT NULL,        -- JSON: shape of an input, classes, examples, who holds what
        checksum TEXT
    );
    CREATE TABLE baselines (        -- one row per repeat of what trials are held against
        name TEXT NOT NULL,         -- trivial (always the same answer) or unprotected
        repeat INTEGER NOT NULL,    -- from 0
        settings TEXT NOT NULL,     -- JSON: name → value, what it was trained with
        measures TEXT NOT NULL,     -- JSON: name → value
        error TEXT,                 -- why it failed
        checksum TEXT,
        PRIMARY KEY (name, repeat)
    );
    """,
    """
    ALTER TABLE sessions ADD COLUMN work TEXT;  -- JSON: where → device, trainings, seconds, trial
    """,
]
TABLES = ("study", "trials", "repeats", "sessions", "audits", "data", "baselines")


@functools.cache
def columns_of(version: int) -> dict[str, tuple[str, ...]]:
    """Return the columns of every table in a database of this version."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        for script in MIGRATIONS[:version]:
            db.executescript(script)
        return {table: columns_in(db, table) for table in TABLES}


def columns_in(db: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return the columns that a table has; none if it is not there."""
    return tuple(str(row[1]) for row in db.execute(f"PRAGMA table_info({table})"))


def is_blank(db: sqlite3.Connection) -> bool:
    """Say whether a database holds nothing: its making was ended before the first row."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return (application, version, tables) == (0, 0, 0)


def check_ours(path: Path, db: sqlite3.Connection) -> None:
    """Refuse a database of another program, of a newer fedpareto, or with other columns."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StoreError(
            f"{path}: must be a fedpareto database, found one of another program. "
            "It was left as it is; name another file with --db."
        )
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path}: must be of version {len(MIGRATIONS)} or older, found version {version}. "
            "Install a newer fedpareto."
        )
    for table, columns in columns_of(max(1, version)).items():
        found = columns_in(db, table)
        if found != columns:
            raise DamagedStore(
                path,
                f"table {table}: version {version} must have the columns {', '.join(columns)}, "
                f"found {', '.join(found) or 'no such table'}",
            )

    check_plain(path, db)


def check_plain(path: Path, db: sqlite3.Connection) -> None:
    """Refuse a database that would run something of its own when it is read or written."""
    found = [*(unlike_ours(db, table) for table in TABLES), _trigger(db)]
    for what in filter(None, found):
        raise StoreError(
            f"{path}: must hold the tables that fedpareto made, found {what}, which would run when "
            "rows are read or written. It was left as it is. Drop it, or take a copy without it."
        )


def unlike_ours(db: sqlite3.Connection, table: str) -> str | None:
    """Return what a table is if its rows are worked out when they are read, or are elsewhere."""
    row = db.execute(
        "SELECT type, rootpage FROM sqlite_master WHERE lower(name) = ? AND type != 'trigger'",
        (table,),
    ).fetchone()
    if row is None:
        return None
    if row[0] != "table":
        return f"{table}, a {row[0]}"
    if not row[1]:
        return f"{table}, a virtual table"
    made = [str(c[1]) for c in db.execute(f"PRAGMA table_xinfo({table})") if c[6]]
    return f"{table}.{made[0]}, a generated column" if made else None


def _trigger(db: sqlite3.Connection) -> str | None:
    row = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchone()
    return None if row is None else f"the trigger {visible(row[0])}"


def migrate(db: sqlite3.Connection) -> None:
    """Bring the tables up to date; a new database gets all of them."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    for script in MIGRATIONS[version:]:
        for statement in script.split(";"):
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    db.execute(f"PRAGMA application_id = {APPLICATION}")

"""What can still be read of a damaged database: the rows that hold, and a list of the others."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedpareto.errors import LockedStore, StoreError
from fedpareto.store.access import connected, copied, take_lock
from fedpareto.store.checks import Damage, Row, damage_of, rows_of, shown, vouched
from fedpareto.store.making import new_database
from fedpareto.store.schema import MIGRATIONS, TABLES, columns_in, columns_of, unlike_ours

FARTHEST = 5000  # rows that are tried beyond the last one read; where the next is, none can say
PAGE = 4096  # bytes; SQLite's usual, which every database of ours has


@dataclass
class Salvaged:
    """The rows of a database that hold, and what is wrong with the others."""

    study: Row | None = None
    trials: dict[int, Row] = field(default_factory=dict)
    repeats: dict[tuple[int, int], Row] = field(default_factory=dict)
    sessions: list[Row] = field(default_factory=list)
    data: list[Row] = field(default_factory=list)
    baselines: list[Row] = field(default_factory=list)
    audits: list[Row] = field(default_factory=list)
    trained: dict[int, int | None] = field(default_factory=dict)  # trial → trainings, if known
    lost: list[Damage] = field(default_factory=list)

    def trainings(self, trial: int) -> list[Row]:
        """Return the trainings of a trial that are left, in order."""
        return self._by_trial.get(trial, [])

    @functools.cached_property
    def _by_trial(self) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = {}
        for (trial, _), row in sorted(self.repeats.items()):
            found.setdefault(trial, []).append(row)
        return found


@contextlib.contextmanager
def at_rest(path: Path) -> Iterator[None]:
    """Keep runs away from a database for a while, if one ever wrote to it here."""
    lock = None
    if path.with_name(path.name + "-lock").is_file():
        try:
            lock = take_lock(path)
        except LockedStore:
            raise
        except StoreError:  # a lock that is damaged keeps nobody away either
            lock = None
    try:
        yield
    finally:
        if lock is not None:
            lock.close()


def salvaged(path: Path, most: int) -> Salvaged:
    """Return what a database file still holds; `most` trainings of a trial, if it cannot say."""
    found = _judged(_tables(path, mended=False), most)
    if found.study is None and not (found.trials or found.repeats):
        found = _judged(_tables(path, mended=True), most)
    if found.study is None and not (found.trials or found.repeats):
        raise StoreError(
            f"{path}: must have rows of a study that can be read, found none. Take a copy that was "
            "kept, or begin anew with another file: --db."
        )
    return found


Tables = tuple[dict[str, list[Row]], list[Damage]]


def _tables(path: Path, mended: bool) -> Tables:
    """Return the rows of a copy of the database that SQLite can read, and what it cannot."""
    tables: dict[str, list[Row]] = {table: [] for table in TABLES}
    lost: list[Damage] = []
    with copied(path) as copy:
        if mended:
            _mend(copy)
        try:
            with contextlib.closing(connected(copy, "rw")) as db:
                version = _check_age(path, db)
                for table in TABLES:
                    if mended or columns_of(version)[table] or columns_in(db, table):
                        tables[table] = _readable(db, table, lost)
        except (sqlite3.Error, UnicodeDecodeError) as error:  # of a text in SQLite's own words too
            lost.append(Damage("study", "all", "all", str(error)))
    return tables, lost


def _check_age(path: Path, db: sqlite3.Connection) -> int:
    """Return a database's version; refuse a newer one: it has columns that would be left behind."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    ours = columns_of(len(MIGRATIONS))
    more = [t for t in TABLES if set(columns_in(db, t)) > set(ours[t])]
    if version > len(MIGRATIONS) and more:
        raise StoreError(
            f"{path}: must be of version {len(MIGRATIONS)} or older, found version {version}. "
            "Install a newer fedpareto."
        )
    return max(1, min(int(version), len(MIGRATIONS)))


def _mend(copy: Path) -> None:
    """Put a new first page where the one that says which tables there are cannot be read.

    Every database of ours has its tables in the same places, since they are made first.
    """
    content = bytearray(copy.read_bytes())
    first = bytearray(new_database("", {}, 1)[:PAGE])
    first[28:32] = (len(content) // PAGE).to_bytes(4, "big")
    content[:PAGE] = first
    copy.write_bytes(content)


def _readable(db: sqlite3.Connection, table: str, lost: list[Damage]) -> list[Row]:
    """Return the rows of a table that can be read; past a row that cannot, go on with the next."""
    if not columns_in(db, table):
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if not columns_of(max(1, version))[table]:  # it came with a later version
            return []
        lost.append(Damage(table, "all", "all", "must be a table, found none of this name"))
        return []
    unlike = unlike_ours(db, table)
    if unlike is not None:  # to read it would run what it holds
        lost.append(Damage(table, "all", "all", f"must be a plain table, found {unlike}"))
        return []
    rows: list[Row] = []
    last: int | None = None
    end = _last_row(db, table)
    failed = 0  # rows, one after the other
    while True:
        try:
            for row in rows_of(db, table, last):
                if last is not None and row["key"] <= last:
                    raise sqlite3.DatabaseError("rows out of order")
                rows.append(row)
                last, failed = row["key"], 0
            return rows
        except sqlite3.DatabaseError as error:
            last, failed = -1 if last is None else last + 1, failed + 1
            if failed > FARTHEST or (end is not None and last > end):
                return rows
            if not lost or (lost[-1].table, lost[-1].what) != (table, str(error)):
                lost.append(Damage(table, last, "all", str(error)))


def _last_row(db: sqlite3.Connection, table: str) -> int | None:
    """Return the number of a table's last row, None if it cannot be read."""
    with contextlib.suppress(sqlite3.DatabaseError):
        (last,) = db.execute(f"SELECT max(rowid) FROM {table} NOT INDEXED").fetchone()
        return -1 if last is None else int(last)
    return None


def _judged(read: Tables, most: int) -> Salvaged:
    """Return the rows that hold, each in its place."""
    tables, lost = read
    found = Salvaged(lost=lost)
    for row in _holding("study", tables["study"], lost):
        found.study = found.study or row
    if not tables["study"]:
        lost.append(Damage("study", 1, "all", "must be one row, found none"))
    found.sessions = list(_holding("sessions", tables["sessions"], lost))
    found.data = list(_holding("data", tables["data"], lost))[:1]
    found.baselines = list(_holding("baselines", tables["baselines"], lost))
    found.audits = list(_holding("audits", tables["audits"], lost))
    if found.study is not None:
        most = found.study["repeats"]
    for row in _holding("repeats", tables["repeats"], lost):
        place = row["trial"], row["repeat"]
        if place in found.repeats or row["repeat"] >= most:
            what = f"must be below {most} and there once, found {shown(row['repeat'])}"
            lost.append(Damage("repeats", row["key"], "repeat", what))
        else:
            found.repeats[place] = row
    for row in _holding("trials", tables["trials"], lost, range(most + 1)):
        found.trials[row["number"]] = row
        found.trained[row["number"]] = _trained(row, most)
    return found


def _holding(
    table: str, rows: Sequence[Row], lost: list[Damage], counts: Sequence[int] = (0,)
) -> Iterator[Row]:
    """Yield the rows that are as they were written, with any of these numbers of trainings."""
    for row in rows:
        if any(vouched(table, row, n) for n in counts):
            yield row
        elif damage := damage_of(table, row, counts[-1]):
            lost.append(damage)
        else:
            yield row


def _trained(row: Row, most: int) -> int | None:
    """Return how many trainings a finished trial's checksum says it had."""
    if row["checksum"] is None or row["state"] == "pending":
        return None
    return next(n for n in range(most + 1) if vouched("trials", row, n))

"""A study's database: trials are added, trainings recorded; a finished trial never changes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpareto.errors import StoreError
from fedpareto.history import History
from fedpareto.problem import Problem
from fedpareto.space import FloatArray
from fedpareto.store import trainings
from fedpareto.store.access import (
    check_name,
    check_one_name,
    check_sides,
    connected,
    explained,
    opened_to_read,
    put,
    take_lock,
)
from fedpareto.store.audits import ADD, ALL, Audit, audit_of, row_of
from fedpareto.store.beside import read_baselines, read_facts, write_baselines, write_facts
from fedpareto.store.checks import check_rows, seal
from fedpareto.store.identity import check_same, read_identity, seed_in
from fedpareto.store.known import Known, asked_of
from fedpareto.store.making import is_new, new_database
from fedpareto.store.rows import read_measures, result_row, summed, trial_of
from fedpareto.store.schema import TABLES, check_ours, columns_in, is_blank, migrate
from fedpareto.store.sessions import Works, begin, more_work, note, read_works, write_works
from fedpareto.trials import Baseline, Result, Trial, history_of, read_curves
from fedpareto.words import notebook_table, visible

MOST = 2**62  # trials there can be


class Store:
    """A study's database, open for many to read (Store.read) or for one to write (Store.write)."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, lock: sqlite3.Connection | None
    ) -> None:
        self.path = path
        self._db = connection
        self._lock = lock
        self._clock = time.monotonic()
        self._work: Works = {}  # of the session under way
        self._settled = 0  # trials before the first pending one: they never change
        self._settled_trainings = 0
        self._known: dict[Any, Known] = {}  # by what is asked of trials

    @classmethod
    def read(cls, path: str | Path) -> Store:
        """Open a study's database to look at."""
        path = Path(path)
        if not path.is_file():
            raise StoreError(
                f"{path}: must hold the study's results, found no such file. Run the study first: "
                "fedpareto run STUDY"
            )
        with contextlib.ExitStack() as undo, explained(path):
            db = opened_to_read(path)
            undo.callback(db.close)
            if is_blank(db):
                raise StoreError(
                    f"{path}: must hold the study's results, found nothing in it yet. "
                    "Run the study first: fedpareto run STUDY"
                )
            check_ours(path, db)
            check_rows(path, db)
            undo.pop_all()
        return cls(path, db, None)

    @classmethod
    def write(cls, path: str | Path, name: str, identity: Mapping[str, Any], repeats: int) -> Store:
        """Open the database of this study to continue it, or create it."""
        path = Path(path)
        real = path.resolve()  # a link and what it leads to have one lock
        check_name(real)
        if not real.parent.is_dir():
            raise StoreError(
                f"{path}: must be in a folder that exists, found no folder {real.parent}."
            )
        if real.exists() and not real.is_file():
            raise StoreError(
                f"{path}: must be a file, found something else there. Name a file with --db."
            )
        with contextlib.ExitStack() as undo:
            lock = take_lock(real)
            undo.callback(lock.close)
            with explained(path):
                check_sides(real)
                if is_new(real):
                    put(real, new_database(name, identity, repeats))
                check_one_name(real)
                with cls.read(path) as look:
                    look.check(identity)
                db = connected(real, "rw")
                undo.callback(db.close)
                store = cls(path, db, lock)
                store._prepare()
            undo.pop_all()
        return store

    def _prepare(self) -> None:
        """Bring the tables up to date, and finish trials that have all their trainings."""
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        with self._transaction():
            migrate(self._db)
            for table in TABLES:
                seal(self._db, table)
            whole = [t.number for t in self.trials("pending") if not t.repeats_left]
            for trial in whole:  # someone who changed rows by hand may leave such
                trainings.finish(self._db, trial)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with explained(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with explained(self.path):
            return self._db.execute(query, values).fetchall()

    @property
    def identity(self) -> dict[str, Any]:
        """Which study this is: its file in full, but for its name and budget."""
        return read_identity(self._rows("SELECT identity FROM study")[0][0])

    @property
    def seed(self) -> int | None:
        """The seed of the study; None where its description has no valid one."""
        return seed_in(self.identity)

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuse a study other than the one whose rows these are."""
        check_same(self.path, self.identity, identity)

    def close(self) -> None:
        """Close the database; a writer leaves it as one file, which needs no other to be read."""
        with explained(self.path):
            if self._lock is not None:
                with contextlib.suppress(sqlite3.OperationalError):  # someone is reading
                    self._db.execute("PRAGMA synchronous = FULL")  # no log is left to lean on
                    self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({visible(self.path)}: {self._stands()})"

    def _repr_html_(self) -> str:
        """Return how far the study has come, as a notebook shows it."""
        return notebook_table("Store", [("file", self.path), ("rows", self._stands())])

    def _stands(self) -> str:
        try:
            return f"{self.finished()} of {len(self)} trials finished, {self.trainings()} trainings"
        except StoreError:
            return "closed"

    @property
    def name(self) -> str:
        """What the study is called."""
        return str(self._rows("SELECT name FROM study")[0][0])

    @property
    def repeats(self) -> int:
        """How often a trial is trained, at the most."""
        return int(self._rows("SELECT repeats FROM study")[0][0])

    def __len__(self) -> int:
        """The number of trials, finished or not."""
        return int(self._rows("SELECT coalesce(max(number) + 1, 0) FROM trials")[0][0])

    def settled(self) -> int:
        """Return the number of the first pending trial: all before it are finished for good."""
        first = self._settled
        count = len(self)  # before, since a run may go on meanwhile
        query = "SELECT min(number) FROM trials WHERE number >= ? AND state = 'pending'"
        found = self._rows(query, first)[0][0]
        self._settled = count if found is None else int(found)
        if self._settled > first:
            self._settled_trainings += self._trainings(first, self._settled)
        return self._settled

    def trials(self, state: str | None = None, first: int = 0, end: int = MOST) -> list[Trial]:
        """Return trials in order, from a number on and before another; all, or in one state."""
        if state == "pending":
            first = max(first, self.settled())
        with explained(self.path):
            done = trainings.repeats_done(self._db, first, end)
        query = f"SELECT {self._columns} FROM trials WHERE number >= ? AND number < ? "
        query += "AND state = 'pending' " * (state == "pending") + "ORDER BY number"
        rows = self._rows(query, first, end)
        repeats = self.repeats
        found = [trial_of(row, done.get(row[0], set()), repeats) for row in rows]
        return [t for t in found if state in (None, t.state)]

    def known(self, problem: Problem) -> History:
        """Return what finished trials tell of a problem; those settled are read once."""
        known = self._known.setdefault(asked_of(problem), Known(problem))
        return known.history(self)

    @functools.cached_property
    def _columns(self) -> str:
        """The columns of a trial; older databases that are only read have no curves."""
        columns = "number, batch, point, settings, state, measures, spread, error"
        return f"{columns}, {'curves' if self._has('trials', 'curves') else 'NULL'}"

    def _has(self, table: str, column: str) -> bool:
        """Say whether a table has a column that came with a later version."""
        with explained(self.path):
            return column in columns_in(self._db, table)

    def after(self, trial: Trial, runs: int) -> Trial:
        """Return a trial as it would be had it been trained only so many times."""
        found = dataclasses.replace(trial, repeats_left=(), runs=runs)
        with explained(self.path):
            every = trainings.trainings_of(self._db, trial.number)
        return dataclasses.replace(found, **summed(every[:runs]))

    def finished(self) -> int:
        """Return how many trials are done or failed."""
        first = self.settled()
        query = "SELECT count(*) FROM trials WHERE number >= ? AND state != 'pending'"
        return first + int(self._rows(query, first)[0][0])

    def trainings(self) -> int:
        """Return how many trainings are on record, a trial's repeats counted one by one."""
        return self._trainings(self.settled(), MOST) + self._settled_trainings

    def _trainings(self, first: int, end: int) -> int:
        with explained(self.path):
            return trainings.count_between(self._db, first, end)

    def seconds(self) -> float:
        """Return the wall-clock time of all sessions together."""
        return float(self._rows("SELECT coalesce(sum(seconds), 0) FROM sessions")[0][0])

    def works(self) -> Works:
        """Return what was trained where, in all sessions together."""
        with explained(self.path):
            return read_works(self._db)

    def repeat_measures(self, trial: int) -> list[dict[str, float]]:
        """Return the measures of each training of a trial."""
        rows = self._rows("SELECT measures FROM repeats WHERE trial = ? ORDER BY repeat", trial)
        return [read_measures(text) for (text,) in rows]

    def repeat_curves(self, trial: int) -> list[dict[str, list[float]]]:
        """Return what each training of a trial showed on the way."""
        rows = self._rows("SELECT curves FROM repeats WHERE trial = ? ORDER BY repeat", trial)
        return [read_curves(text) for (text,) in rows]

    @property
    def secret(self) -> str | None:
        """What the noise of trainings on private data comes from, beside the study's seed.

        None before the first of them, and in older databases.
        """
        if not self._has("study", "secret"):
            return None
        found = self._rows("SELECT secret FROM study")[0][0]
        return None if found is None else str(found)

    def budget(self) -> int:
        """Return the largest budget that a run was given; 0 before the first."""
        return int(self._rows("SELECT coalesce(max(budget), 0) FROM sessions")[0][0])

    def check_noise(self) -> None:
        """Refuse trainings on private data that shared their noise: no ε is true of them."""
        if self.secret is None and self.trainings():
            raise StoreError(
                f"{self.path}: must hold trainings on private data that each have noise of their "
                "own, found those of an older fedpareto, which share it: what is stated of them "
                "would not be true. Train anew, in another database: --db."
            )

    def begin_session(self, version: str, budget: int, private: bool = False) -> None:
        """Note that a run starts; the first on private data draws the secret of its noise."""
        if private:
            self.check_noise()
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        with self._transaction():
            if private and self.secret is None:
                drawn = secrets.token_hex(32)
                self._db.execute("UPDATE study SET secret = ?, checksum = NULL", (drawn,))
                seal(self._db, "study")
            begin(self._db, started, version, budget)
        self._clock = time.monotonic()
        self._work = {}

    def end_session(self, why: str) -> None:
        """Note why a run ended before its budget."""
        with self._transaction():
            note(self._db, ended=why)

    @property
    def ended(self) -> str | None:
        """Why the last run ended before its budget, if the optimizer said so."""
        if not self._has("sessions", "ended"):
            return None
        rows = self._rows("SELECT ended FROM sessions ORDER BY rowid DESC LIMIT 1")
        return str(rows[0][0]) if rows and rows[0][0] else None

    @property
    def facts(self) -> dict[str, Any] | None:
        """What looking at the study needs of its data; None before the first run."""
        with explained(self.path):
            return read_facts(self._db)

    def keep_facts(self, facts: Mapping[str, Any]) -> None:
        """Write down what looking at the study needs of its data."""
        with self._transaction():
            write_facts(self._db, facts)

    def baselines(self, name: str) -> list[Baseline]:
        """Return each repeat of a baseline, in order; none if it was not measured."""
        with explained(self.path):
            return read_baselines(self._db, name)

    def keep_baselines(self, name: str, repeats: Sequence[Baseline]) -> None:
        """Write down every repeat of a baseline, in place of what was there."""
        with self._transaction():
            write_baselines(self._db, name, repeats)

    def add(self, batch: int, x: FloatArray, settings: Sequence[Mapping[str, Any]]) -> None:
        """Append points x [n,d] of a batch as pending trials."""
        first = len(self)
        rows = [
            (i, batch, json.dumps(point.tolist()), json.dumps(dict(values)))
            for i, (point, values) in enumerate(zip(x, settings, strict=True), first)
        ]
        with self._transaction():
            self._db.executemany(
                "INSERT INTO trials (number, batch, point, settings, state) "
                "VALUES (?, ?, ?, ?, 'pending')",
                rows,
            )
            seal(self._db, "trials", "number >= ?", first)

    def record(self, results: Sequence[Result]) -> None:
        """Append results; a trial whose last repeat is among them is finished."""
        rows = [result_row(result) for result in results]
        with self._transaction():
            self._db.executemany("INSERT INTO repeats VALUES (?, ?, ?, ?, ?, NULL)", rows)
            trials = {r.trial for r in results}
            for trial in trials:
                seal(self._db, "repeats", "trial = ?", trial)
            for trial in trainings.complete(self._db, trials, self.repeats):
                trainings.finish(self._db, trial)
            self._work = more_work(self._work, results)
            seconds = round(time.monotonic() - self._clock, 3)
            note(self._db, seconds=seconds, work=write_works(self._work))

    def settle(self, trials: Sequence[int]) -> None:
        """Finish trials with the repeats that they have."""
        with self._transaction():
            for trial in trials:
                trainings.finish(self._db, trial)

    def audits(self) -> list[Audit]:
        """Return what attacks on points found, in the order in which they were made."""
        return list(map(audit_of, self._rows(ALL))) if self._has("audits", "trial") else []

    def add_audits(self, audits: Sequence[Audit]) -> None:
        """Append what attacks on points found."""
        with self._transaction():
            self._db.executemany(ADD, map(row_of, audits))
            seal(self._db, "audits")

    def history(self, measures: Sequence[str]) -> History:
        """Return every finished trial, with these measures as objectives."""
        return history_of([t for t in self.trials() if t.state != "pending"], measures)

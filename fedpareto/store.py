"""The store: one study, one SQLite file. Its rows are the whole state; finished trials never change."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpareto.errors import ChangedStudy, LockedStore, StoreError
from fedpareto.history import History
from fedpareto.space import FloatArray
from fedpareto.trials import Result, Trial, deviation, history_of, mean, mean_curves, read_curves, write_curves

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
    CREATE TABLE repeats (          -- one row per training: a trial's means are of as many as it has here
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
    ALTER TABLE trials ADD COLUMN curves TEXT;   -- JSON: measure → its mean after 1, 2, … rounds, where rounds are searched
    ALTER TABLE repeats ADD COLUMN curves TEXT;  -- JSON: measure → its value after 1, 2, … rounds
    ALTER TABLE sessions ADD COLUMN ended TEXT;  -- why it ended before its budget, if the optimizer said so
    """,
]


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into an error that says what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise LockedStore(f"{path}: must not be in use, found it locked by another process. Wait for that one to "
                              "end, or give this run its own with --db.") from error
        if "full" in text or "disk I/O" in text:
            raise StoreError(f"{path}: needs free disk space, found: {text}. What was finished is kept; make room and "
                             "run the same command again.") from error
        raise StoreError(f"{path}: must be a database that can be opened and written, found: {text}.") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: must be a fedpareto database, found: {error}. Name another file with --db.") from error


def _floats(text: str | None) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in json.loads(text or "{}").items()}


def _json(measures: Mapping[str, float]) -> str:
    return json.dumps({name: float(v) if math.isfinite(v) else None for name, v in measures.items()})


class Store:
    """A study's database, open for reading (Store.read) or for writing by one process alone (Store.write)."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: sqlite3.Connection | None) -> None:
        self.path = path
        self._db = connection
        self._lock = lock
        self._clock = time.monotonic()
        self._finished: list[Trial] = []  # the first trials, as far as all are finished: those never change

    @classmethod
    def read(cls, path: str | Path) -> Store:
        """Open a study's database to look at."""
        path = Path(path)
        if not path.is_file():
            raise StoreError(f"{path}: must hold the study's results, found no such file. Run the study first: "
                             "fedpareto run STUDY")
        with _explained(path):
            db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5, isolation_level=None)
            _check_ours(path, db)
        return cls(path, db, None)

    @classmethod
    def write(cls, path: str | Path, name: str, identity: Mapping[str, Any], repeats: int) -> Store:
        """Open the database of this study to continue it, or create it."""
        path = Path(path)
        if not path.parent.is_dir():
            raise StoreError(f"{path}: must be in a folder that exists, found no folder {path.parent}.")
        if path.exists() and not path.is_file():
            raise StoreError(f"{path}: must be a file, found something else there. Name a file with --db.")
        lock = _take_lock(path)
        new = not path.exists() or path.stat().st_size == 0
        with contextlib.ExitStack() as undo:
            undo.callback(lock.close)
            if new:
                undo.callback(_remove, path)
            with _explained(path):
                if not new:
                    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as look:
                        _check_ours(path, look)
                db = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
                undo.callback(db.close)
                store = cls(path, db, lock)
                store._prepare(name, identity, repeats)
            store.check(identity)
            undo.pop_all()
        return store

    def _prepare(self, name: str, identity: Mapping[str, Any], repeats: int) -> None:
        """Bring the tables up to date and, in a new database, write down which study it is."""
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        with self._transaction():
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            self._db.execute(f"PRAGMA application_id = {APPLICATION}")
            if not self._db.execute("SELECT 1 FROM study").fetchone():
                self._db.execute("INSERT INTO study VALUES (?, ?, ?)", (name, json.dumps(identity), repeats))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explained(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with _explained(self.path):
            return self._db.execute(query, values).fetchall()

    @property
    def identity(self) -> dict[str, Any]:
        """Which study this is: its file in full, but for its name and budget."""
        stored: dict[str, Any] = json.loads(self._rows("SELECT identity FROM study")[0][0])
        stored.get("optimizer", {}).pop("stop_hopeless", None)  # a setting of older versions, which no longer exists
        return stored

    def check(self, identity: Mapping[str, Any]) -> None:
        """Refuse a study other than the one whose rows these are."""
        changed = differences(self.identity, json.loads(json.dumps(identity)))
        if changed:
            raise ChangedStudy(
                f"{self.path}: must belong to this study, found one that differs in {'; '.join(changed)}. "
                "To continue that study, undo the change (the budget may change freely); "
                "to start the changed one beside it, name a new database with --db.")

    def close(self) -> None:
        """Close the database; a writer leaves it as one file, which needs no other to be read."""
        with _explained(self.path):
            if self._lock is not None:
                with contextlib.suppress(sqlite3.OperationalError):  # someone is reading
                    self._db.execute("PRAGMA journal_mode = DELETE")
            self._db.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """What the study is called."""
        return str(self._rows("SELECT name FROM study")[0][0])

    @property
    def repeats(self) -> int:
        return int(self._rows("SELECT repeats FROM study")[0][0])

    def __len__(self) -> int:
        """The number of trials, finished or not."""
        return int(self._rows("SELECT count(*) FROM trials")[0][0])

    def trials(self, state: str | None = None) -> list[Trial]:
        """Return all trials in order, or those in one state."""
        repeats, seen = self.repeats, self._repeats_done(len(self._finished))
        rows = self._rows(f"SELECT {self._columns} FROM trials WHERE number >= ? ORDER BY number", len(self._finished))
        fresh = [_trial(row, seen.get(row[0], set()), repeats) for row in rows]
        whole = self._finished + fresh
        self._finished += itertools.takewhile(lambda t: t.state != "pending", fresh)
        return [t for t in whole if state in (None, t.state)]

    @functools.cached_property
    def _columns(self) -> str:
        """The columns of a trial; a database of an older version that is only read has no curves."""
        names = [row[1] for row in self._rows("PRAGMA table_info(trials)")]
        return "*" if "curves" in names else "*, NULL"

    def _repeats_done(self, first: int) -> dict[int, set[int]]:
        """Return which repeats the trials from the first on have behind them."""
        done: dict[int, set[int]] = {}
        for trial, repeat in self._rows("SELECT trial, repeat FROM repeats WHERE trial >= ?", first):
            done.setdefault(trial, set()).add(repeat)
        return done

    def after(self, trial: Trial, runs: int) -> Trial:
        """Return a trial as its first so many trainings alone would leave it."""
        found = dataclasses.replace(trial, repeats_left=(), runs=runs)
        return dataclasses.replace(found, **_summed(self._trainings(trial.number)[:runs]))

    def _trainings(self, trial: int) -> list[tuple[Any, ...]]:
        return self._rows("SELECT measures, error, curves FROM repeats WHERE trial = ? ORDER BY repeat", trial)

    def finished(self) -> int:
        """Return how many trials are done or failed."""
        return int(self._rows("SELECT count(*) FROM trials WHERE state != 'pending'")[0][0])

    def trainings(self) -> int:
        """Return how many trainings are on record, a trial's repeats counted one by one."""
        return int(self._rows("SELECT count(*) FROM repeats")[0][0])

    def seconds(self) -> float:
        """Return the wall-clock time of all sessions together."""
        return float(self._rows("SELECT coalesce(sum(seconds), 0) FROM sessions")[0][0])

    def repeat_measures(self, trial: int) -> list[dict[str, float]]:
        """Return the measures of each training of a trial."""
        rows = self._rows("SELECT measures FROM repeats WHERE trial = ? ORDER BY repeat", trial)
        return [_floats(text) for (text,) in rows]

    def repeat_curves(self, trial: int) -> list[dict[str, list[float]]]:
        """Return what each training of a trial showed on the way."""
        rows = self._rows("SELECT curves FROM repeats WHERE trial = ? ORDER BY repeat", trial)
        return [read_curves(text) for (text,) in rows]

    def begin_session(self, version: str, budget: int) -> None:
        """Note that a run starts."""
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        with self._transaction():
            self._db.execute("INSERT INTO sessions VALUES (?, 0, ?, ?, NULL)", (started, version, budget))
        self._clock = time.monotonic()

    def end_session(self, why: str) -> None:
        """Note why a run ended before its budget."""
        with self._transaction():
            self._db.execute("UPDATE sessions SET ended = ? WHERE rowid = (SELECT max(rowid) FROM sessions)", (why,))

    @property
    def ended(self) -> str | None:
        """Why the last run ended before its budget, if the optimizer said so."""
        if "ended" not in [row[1] for row in self._rows("PRAGMA table_info(sessions)")]:
            return None
        rows = self._rows("SELECT ended FROM sessions ORDER BY rowid DESC LIMIT 1")
        return str(rows[0][0]) if rows and rows[0][0] else None

    def add(self, batch: int, x: FloatArray, settings: Sequence[Mapping[str, Any]]) -> None:
        """Append points x [n,d] of a batch as pending trials."""
        first = len(self)
        rows = [(first + i, batch, json.dumps(point.tolist()), json.dumps(dict(values)))
                for i, (point, values) in enumerate(zip(x, settings, strict=True))]
        with self._transaction():
            self._db.executemany("INSERT INTO trials VALUES (?, ?, ?, ?, 'pending', NULL, NULL, NULL, NULL)", rows)

    def record(self, results: Sequence[Result]) -> None:
        """Append results; a trial whose last repeat is among them is finished."""
        repeats = self.repeats
        with self._transaction():
            self._db.executemany("INSERT INTO repeats VALUES (?, ?, ?, ?, ?)",
                                 [(r.trial, r.repeat, _json(r.measures), r.error, write_curves(r.curves)) for r in results])
            touched = {r.trial for r in results}
            whole = "SELECT trial FROM repeats WHERE trial BETWEEN ? AND ? GROUP BY trial HAVING count(*) >= ?"
            for (trial,) in self._db.execute(whole, (min(touched), max(touched), repeats)).fetchall() if touched else []:
                if trial in touched:
                    self._finish(trial)
            self._db.execute("UPDATE sessions SET seconds = ? WHERE rowid = (SELECT max(rowid) FROM sessions)",
                             (round(time.monotonic() - self._clock, 3),))

    def settle(self, trials: Sequence[int]) -> None:
        """Finish trials with the repeats that they have."""
        with self._transaction():
            for trial in trials:
                self._finish(trial)

    def _finish(self, trial: int) -> None:
        """Write down the mean and spread of a trial whose repeats are all in, or why it failed."""
        told = _summed(self._trainings(trial))
        self._db.execute("UPDATE trials SET state = ?, measures = ?, spread = ?, error = ?, curves = ? WHERE number = ?",
                         (told["state"], _json(told["measures"]), _json(told["spread"]), told["error"],
                          write_curves(told["curves"]), trial))

    def history(self, measures: Sequence[str]) -> History:
        """Return what is known: every finished trial, with these measures as objectives."""
        return history_of([t for t in self.trials() if t.state != "pending"], measures)



def differences(stored: Any, found: Any, key: str = "") -> list[str]:
    """Return what differs between two descriptions of a study, each with its key."""
    if isinstance(stored, dict) and isinstance(found, dict):
        keys = [*stored, *(k for k in found if k not in stored)]
        inner = [differences(stored.get(k), found.get(k), f"{key}.{k}" if key else k) for k in keys]
        return [change for changes in inner for change in changes]
    return [] if stored == found else [f"{key} ({stored} there, {found} here)"]


def _trial(row: tuple[Any, ...], seen: Collection[int], repeats: int) -> Trial:
    number, batch, point, settings, state, measures, spread, error, curves = row
    state = "failed" if state == "stopped" else state  # as older versions called a run that they ended early
    left = tuple(r for r in range(repeats) if r not in seen) if state == "pending" else ()
    return Trial(number, batch, tuple(json.loads(point)), json.loads(settings), state, _floats(measures), _floats(spread),
                 error, left, read_curves(curves), len(seen))


def _summed(trainings: Sequence[tuple[str, str | None, str | None]]) -> dict[str, Any]:
    """Return what the trainings of a trial say together: its state, mean and spread, curves, or why it failed."""
    error = next((f"{error} (repeat {i})" if len(trainings) > 1 else error for i, (_, error, _) in enumerate(trainings) if error), None)
    measured = [_floats(text) for text, _, _ in trainings]
    columns = {name: [m[name] for m in measured] for name in measured[0] if all(name in m for m in measured)}
    means = {name: mean(c) for name, c in columns.items()}
    spread = {name: deviation(c, means[name]) for name, c in columns.items()}
    return {"state": "failed" if error else "done", "measures": means, "spread": spread, "error": error,
            "curves": mean_curves([read_curves(text) for _, _, text in trainings])}


def _check_ours(path: Path, db: sqlite3.Connection) -> None:
    (application,), (version,) = (db.execute(f"PRAGMA {p}").fetchone() for p in ("application_id", "user_version"))
    if application != APPLICATION:
        raise StoreError(f"{path}: must be a fedpareto database, found one of another program. It was left as it is; "
                         "name another file with --db.")
    if version > len(MIGRATIONS):
        raise StoreError(f"{path}: must be of version {len(MIGRATIONS)} or older, found version {version}. "
                         "Install a newer fedpareto.")


def _take_lock(path: Path) -> sqlite3.Connection:
    """Hold a lock that ends with the process, however it ends.

    Its file stays: removing it would let one run lock the file that was there and another the one that comes after.
    """
    try:
        lock = sqlite3.connect(path.with_name(path.name + "-lock"), timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: must be in a folder that can be written to, found: {error}.") from error
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        lock.close()
        if "locked" in str(error):
            raise LockedStore(f"{path}: must not be in use, found another run of this study at work. Wait for it to end, or "
                              "give this run its own database with --db.") from error
        raise StoreError(f"{path}-lock: must be fedpareto's own and writable, found: {error}. Move it away.") from error
    return lock


def _remove(path: Path) -> None:
    """Take back a database that was only just begun."""
    for leftover in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        leftover.unlink(missing_ok=True)

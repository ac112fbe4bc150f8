"""Sessions: when a study was run and who trained what, of which no row of a trial depends."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from fedpareto.store.checks import seal
from fedpareto.store.schema import columns_in
from fedpareto.trials import Result


@dataclass(frozen=True)
class Work:
    """What one machine, or one of its devices, trained."""

    device: str
    trainings: int = 0
    seconds: float = 0.0  # of its trainings, all together
    trial: int = 0  # that it finished last


Works = dict[str, Work]  # by where


def begin(db: sqlite3.Connection, started: str, version: str, budget: int) -> None:
    """Note that a run starts."""
    columns = "started, seconds, version, budget"
    db.execute(f"INSERT INTO sessions ({columns}) VALUES (?, 0, ?, ?)", (started, version, budget))
    seal(db, "sessions")


def note(db: sqlite3.Connection, **columns: object) -> None:
    """Write something down of the session that is under way."""
    changes = "".join(f"{column} = ?, " for column in columns)
    db.execute(
        f"UPDATE sessions SET {changes}checksum = NULL "
        "WHERE rowid = (SELECT max(rowid) FROM sessions)",
        (*columns.values(),),
    )
    seal(db, "sessions")


def more_work(works: Works, results: Sequence[Result]) -> Works:
    """Return what was trained where, with these results."""
    found = dict(works)
    for result in results:
        if result.ran is not None:
            ran = result.ran
            old = found.get(ran.where, Work(ran.device))
            found[ran.where] = replace(
                old,
                trainings=old.trainings + 1,
                seconds=round(old.seconds + ran.seconds, 6),
                trial=result.trial,
            )
    return found


def write_works(works: Works) -> str | None:
    """Return what was trained where as JSON, None for nothing."""
    return json.dumps({where: asdict(work) for where, work in works.items()}) if works else None


def read_works(db: sqlite3.Connection) -> Works:
    """Return what was trained where, in all sessions together; nothing of older databases."""
    if "work" not in columns_in(db, "sessions"):
        return {}
    found: Works = {}
    for (text,) in db.execute("SELECT work FROM sessions"):
        for where, table in json.loads(text or "{}").items():
            work = Work(**table)
            old = found.get(where, Work(work.device))
            found[where] = replace(
                work,
                trainings=old.trainings + work.trainings,
                seconds=old.seconds + work.seconds,
            )
    return found

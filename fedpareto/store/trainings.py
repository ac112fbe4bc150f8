"""The trainings of trials: which are in, and what a trial's come to once all are."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any

from fedpareto.store.checks import seal
from fedpareto.store.rows import finished_row

BETWEEN = "FROM repeats WHERE trial >= ? AND trial < ?"


def repeats_done(db: sqlite3.Connection, first: int, end: int) -> dict[int, set[int]]:
    """Return which repeats are in, trial → repeats, of the trials from first to end."""
    done: dict[int, set[int]] = {}
    for trial, repeat in db.execute(f"SELECT trial, repeat {BETWEEN}", (first, end)):
        done.setdefault(trial, set()).add(repeat)
    return done


def count_between(db: sqlite3.Connection, first: int, end: int) -> int:
    """Return how many trainings are in, of the trials from first to end."""
    return int(db.execute(f"SELECT count(*) {BETWEEN}", (first, end)).fetchone()[0])


def trainings_of(db: sqlite3.Connection, trial: int) -> list[tuple[Any, ...]]:
    """Return the trainings of a trial, each as measures, error and curves."""
    query = "SELECT measures, error, curves FROM repeats WHERE trial = ? ORDER BY repeat"
    return db.execute(query, (trial,)).fetchall()


def complete(db: sqlite3.Connection, trials: Collection[int], repeats: int) -> list[int]:
    """Return those of these trials that have all their repeats."""
    if not trials:
        return []
    query = "SELECT trial FROM repeats WHERE trial BETWEEN ? AND ? "
    query += "GROUP BY trial HAVING count(*) >= ?"
    rows = db.execute(query, (min(trials), max(trials), repeats))
    return [trial for (trial,) in rows if trial in trials]


def finish(db: sqlite3.Connection, trial: int) -> None:
    """Write down the mean and spread of a trial whose repeats are all in, or why it failed."""
    db.execute(
        "UPDATE trials SET state = ?, measures = ?, spread = ?, error = ?, curves = ?, "
        "checksum = NULL WHERE number = ?",
        (*finished_row(trainings_of(db, trial)), trial),
    )
    seal(db, "trials", "number = ?", trial)

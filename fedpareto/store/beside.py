"""What a database keeps beside trials: what looking at them needs of the data, and baselines."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from fedpareto.store.checks import seal
from fedpareto.store.rows import read_measures, write_measures
from fedpareto.store.schema import columns_in
from fedpareto.trials import Baseline


def read_facts(db: sqlite3.Connection) -> dict[str, Any] | None:
    """Return what is kept of the data; None before the first run, and of older databases."""
    if not columns_in(db, "data"):
        return None
    row = db.execute("SELECT facts FROM data").fetchone()
    return json.loads(row[0]) if row else None


def write_facts(db: sqlite3.Connection, facts: Mapping[str, Any]) -> None:
    """Keep what looking at a study needs of its data."""
    db.execute("INSERT INTO data (facts) VALUES (?)", (json.dumps(dict(facts)),))
    seal(db, "data")


def read_baselines(db: sqlite3.Connection, name: str) -> list[Baseline]:
    """Return each repeat of a baseline, in order; none if it was not measured."""
    if not columns_in(db, "baselines"):
        return []
    query = "SELECT settings, measures, error FROM baselines WHERE name = ? ORDER BY repeat"
    rows = db.execute(query, (name,)).fetchall()
    return [Baseline(json.loads(s), read_measures(m), error) for s, m, error in rows]


def write_baselines(db: sqlite3.Connection, name: str, repeats: Sequence[Baseline]) -> None:
    """Keep every repeat of a baseline, in place of what was there."""
    rows = [
        (name, i, json.dumps(b.settings), write_measures(b.measures), b.error)
        for i, b in enumerate(repeats)
    ]
    db.execute("DELETE FROM baselines WHERE name = ?", (name,))
    db.executemany("INSERT INTO baselines VALUES (?, ?, ?, ?, ?, NULL)", rows)
    seal(db, "baselines")

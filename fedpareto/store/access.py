"""Who may write to a database file, and what SQLite's errors mean to a user."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fedpareto.errors import LockedStore, StoreError


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into an error that says what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text or "busy" in text:
            raise LockedStore(
                f"{path}: must not be in use, found it locked by another process. "
                "Wait for that one to end, or give this run its own with --db."
            ) from error
        if "full" in text or "disk I/O" in text:
            raise StoreError(
                f"{path}: needs free disk space, found: {text}. "
                "What was finished is kept; make room and run the same command again."
            ) from error
        raise StoreError(
            f"{path}: must be a database that can be opened and written, found: {text}."
        ) from error
    except sqlite3.DatabaseError as error:
        raise StoreError(
            f"{path}: must be a fedpareto database, found: {error}. Name another file with --db."
        ) from error


def take_lock(path: Path) -> sqlite3.Connection:
    """Hold a lock that ends with the process, however it ends.

    Its file stays: were it removed, one run could lock the old file while another locks a new one.
    """
    try:
        lock = sqlite3.connect(
            path.with_name(path.name + "-lock"),
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise StoreError(
            f"{path}: must be in a folder that can be written to, found: {error}."
        ) from error
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        lock.close()
        if "locked" in str(error):
            raise LockedStore(
                f"{path}: must not be in use, found another run of this study at work. "
                "Wait for it to end, or give this run its own database with --db."
            ) from error
        raise StoreError(
            f"{path}-lock: must be fedpareto's own and writable, found: {error}. Move it away."
        ) from error
    return lock


def remove(path: Path) -> None:
    """Take back a database that was only just begun."""
    for leftover in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        leftover.unlink(missing_ok=True)

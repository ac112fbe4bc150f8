"""Who may write to a database file, and what SQLite's errors mean to a user."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedpareto.errors import DamagedStore, LockedStore, StoreError
from fedpareto.store.checks import prepare

SIDES = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database that is being written
PATIENCE = 5.0  # seconds that a database may be held by another before it is refused
NOT_ALLOWED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
OURS = {  # how the journals, logs and indexes of logs begin that SQLite makes
    "-journal": (bytes.fromhex("d9d505f920a163d7"),),
    "-wal": (bytes.fromhex("377f0682"), bytes.fromhex("377f0683")),
    "-shm": (bytes.fromhex("18e22d00"), bytes.fromhex("002de218")),
}
ENDS = (*SIDES, "-lock", "-unfinished")  # of names of files that are kept beside a database


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into an error that says what to do."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "malformed" in text:
            raise DamagedStore(path, text) from error
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
        if "not a database" not in str(error):
            raise DamagedStore(path, str(error)) from error
        raise StoreError(
            f"{path}: must be a fedpareto database, found: {error}. Name another file with --db."
        ) from error
    except UnicodeDecodeError as error:  # SQLite names what is damaged, by a name that is damaged
        raise DamagedStore(path, f"a name that is not text: {error.object!r}") from error


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


def check_name(path: Path) -> None:
    """Refuse a name that is kept for a file beside another database: it would be removed."""
    end = next((end for end in ENDS if path.name.endswith(end)), None)
    if end is not None:
        raise StoreError(
            f"{path}: must not end in {end}, which is kept for a file beside another database. "
            "Name another with --db."
        )


def check_one_name(path: Path) -> None:
    """Refuse a database with several names: the lock and SQLite's log each go by one."""
    names = path.stat().st_nlink
    if names > 1:
        raise StoreError(
            f"{path}: must be the only name of its file, found {names} (hard links): a run under "
            "another name would not see this one. Copy it to a file of its own."
        )


def check_sides(path: Path) -> None:
    """Refuse a journal or log that is not SQLite's, which would write over it."""
    for side, starts in OURS.items():
        beside = path.with_name(path.name + side)
        with contextlib.suppress(FileNotFoundError):
            with beside.open("rb") as file:
                start = file.read(len(starts[0]))
            if not any(_may_be(start, whole) for whole in starts):
                raise StoreError(
                    f"{beside}: must be SQLite's own, found a file of another program. "
                    "Move it away."
                )


def _may_be(start: bytes, whole: bytes) -> bool:
    """Say whether a file may begin so by a write that a loss of power tore: what is left is 0."""
    return all(found in (0, due) for found, due in zip(start, whole, strict=False))


def connected(path: Path, mode: str) -> sqlite3.Connection:
    """Return a connection to a database file: mode ro cannot write to it, rw makes none anew."""
    address = f"{path.absolute().as_uri()}?mode={mode}"
    db = sqlite3.connect(
        address, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    prepare(db)
    return db


def opened_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot write to a database file, and sees all that is committed.

    Where a run was killed, SQLite may have to put pages back first, or to make a file beside: that
    is then done to a copy, since whoever looks changes nothing and may not be allowed to.
    """
    for _ in range(3):  # a run that ends now leaves another state in a moment
        db = connected(path, "ro")
        try:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return db
        except sqlite3.OperationalError as error:
            db.close()
            if error.sqlite_errorcode & 0xFF not in NOT_ALLOWED:
                raise
        except BaseException:
            db.close()
            raise
        time.sleep(0.02)
    with copied(path) as copy, contextlib.closing(connected(copy, "rw")) as found:
        held = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        prepare(held)
        try:
            found.backup(held)
        except BaseException:
            held.close()
            raise
    return held


@contextlib.contextmanager
def copied(path: Path, sides: Sequence[str] = ("-wal", "-journal")) -> Iterator[Path]:
    """Copy a database and what lies beside it to a folder of its own, for a while."""
    with tempfile.TemporaryDirectory(prefix="fedpareto-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            shutil.copyfile(path, copy)
            for side in sides:
                beside = path.with_name(path.name + side)
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(beside, copy.with_name(copy.name + side))
        except OSError as error:
            raise StoreError(f"{path}: must be readable, found: {error.strerror}.") from error
        yield copy


def put(path: Path, content: bytes) -> None:
    """Put a whole new database in its place, on the disk before it has its name.

    Whatever moment ends this, the name stands for nothing or for all of it.
    """
    beside = path.with_name(f".{path.name}-unfinished")
    try:
        beside.unlink(missing_ok=True)  # of a run that was killed; a link is not followed
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        for side in SIDES:  # of a database that is no more: SQLite would take them for this one's
            path.with_name(path.name + side).unlink(missing_ok=True)
        os.replace(beside, path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise StoreError(
                f"{path}: needs free disk space, found: {error.strerror}. Nothing was begun; make "
                "room and run the same command again."
            ) from error
        raise StoreError(
            f"{path}: must be in a folder that can be written to, found: {error.strerror}."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk, on systems where that can be asked for."""
    with contextlib.suppress(PermissionError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

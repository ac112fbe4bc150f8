"""The ledger of a deployment: what was asked, what was answered, with how much noise.

It is a text file of JSON lines that only ever grows. Every line has its own SHA-256 and that of the
line before, so that a line which was changed, taken out or moved is found by its number. It is no
signature: whoever can write the file can write all of it anew, so parties compare the last hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from fedpareto.deploy.rows import VERSION, History, Id, Reading, Row, begun, followed
from fedpareto.errors import LedgerError
from fedpareto.files import write_new

POLL = 0.2  # seconds between two tries to be the one writer
HASH = len(',"hash":""}') + 64  # what a line ends with
LONGEST = 2**24  # bytes of a line: a million clients


class Ledger:
    """A ledger that is open for writing; `open` and `begin` return one."""

    def __init__(self, path: Path, handle: int, history: History) -> None:
        self.path = path
        self.history = history
        self._handle = handle

    def began(self, round: int, asked: Sequence[Id], norm: float | None = None) -> int:
        """Record that clients are about to be asked; return which attempt at the round this is."""
        attempt = 1 + len(self.history.attempts_of(round))
        self._write(
            kind="round",
            state="began",
            round=round,
            attempt=attempt,
            asked=list(asked),
            norm=norm,
            time=_now(),
        )
        return attempt

    def ended(
        self,
        round: int,
        attempt: int,
        answered: Sequence[Id],
        noise: Sequence[float] | None,
        norm: float | None,
        divisor: float | None,
        again: Sequence[Id] = (),
        record_noise: Sequence[float] | None = None,
        server_noise: float = 0.0,
    ) -> None:
        """Record all answers of an attempt, before their sum is used.

        noise is what each that answered really added, in the same order.
        """
        self._write(
            kind="round",
            state="ended",
            round=round,
            attempt=attempt,
            answered=list(answered),
            again=list(again),
            noise=None if noise is None else [float(one) for one in noise],
            record_noise=None if record_noise is None else [float(one) for one in record_noise],
            norm=norm,
            divisor=divisor,
            server_noise=server_noise,
            time=_now(),
        )

    def close(self) -> None:
        """Let others write."""
        if self._handle >= 0:
            os.close(self._handle)  # and with it the lock
            self._handle = -1

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, **row: Any) -> None:
        """Add a row at the end; it lasts once this returns."""
        if self._handle < 0:
            raise LedgerError(f"{self.path}: must be open to be written, found it closed.")
        try:
            history = followed(self.history, row)
        except LedgerError as error:
            raise LedgerError(f"{self.path}: {error}") from None
        line, last = _line(row, self.history.last)
        try:
            _append(self._handle, line)
        except OSError as error:
            self.close()
            raise LedgerError(
                f"{self.path}: must be a file that can be written, found: {error.strerror}. "
                "Nothing more is asked of clients before it can. Make room and start again."
            ) from None
        self.history = _at(history, last)


def header(
    side: str,
    deployment: str,
    terms: Mapping[str, Any],
    planned: Mapping[str, float | None],
    client: Id | None = None,
) -> dict[str, Any]:
    """Return the first row of a ledger.

    deployment is the SHA-256 of its description; terms and planned are those of `pricing`.
    """
    return {
        "kind": "header",
        "version": VERSION,
        "side": side,
        "client": client,
        "deployment": deployment,
        "terms": dict(terms),
        "planned": dict(planned),
        "time": _now(),
    }


def begin(path: str | Path, header: Row) -> Ledger:
    """Write a new ledger and return it, open for writing."""
    try:
        begun(header)
        line, _ = _line(header, "")
        write_new(Path(path), line, 0o644)
    except LedgerError as error:
        raise LedgerError(f"{path}: {error}") from None
    except FileExistsError:
        raise LedgerError(
            f"{path}: must be a new file, found one. Go on with it, or name another."
        ) from None
    except OSError as error:
        raise LedgerError(
            f"{path}: must be a file that can be written, found: {error.strerror}. Name another."
        ) from None
    return open(path)


def open(path: str | Path, deployment: str | None = None, wait: float = 0.0) -> Ledger:
    """Return a ledger to go on with, after a look at every row.

    A row that a kill left half written is cut off, and a row says so. deployment, if given, must be
    the one that the ledger is of.
    """
    path = Path(path)
    handle = _opened(path, os.O_RDWR | os.O_APPEND)
    try:
        _lock(path, handle, wait)
        data = _whole_of(handle)
        history, torn = _history(path, data)
        if deployment is not None and history.header["deployment"] != deployment:
            raise LedgerError(
                f"{path}: must be the ledger of the deployment {deployment[:8]}, found one of "
                f"{history.header['deployment'][:8]}. Name another file."
            )
        ledger = Ledger(path, handle, history)
        if torn:
            os.ftruncate(handle, len(data) - torn)
            ledger._write(kind="torn", bytes=torn, time=_now())
    except BaseException:
        os.close(handle)
        raise
    return ledger


def read(path: str | Path) -> History:
    """Return what a ledger says; nothing is changed, and it may be in use."""
    path = Path(path)
    handle = _opened(path, os.O_RDONLY)
    try:
        data = _whole_of(handle)
    finally:
        os.close(handle)
    history, torn = _history(path, data)
    if not torn:
        return history
    return History(history.header, history.attempts, history.torn + 1, history.last)


def _opened(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LedgerError(
            f"{path}: must be a ledger that can be read, found: {reason}. Name the file that the "
            "deployment wrote."
        ) from None


def _whole_of(handle: int) -> bytes:
    """Return all bytes of a file."""
    try:
        mode = os.fstat(handle).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a device may never end
            raise LedgerError("ledger: must be a file, found a pipe or a device.")
        with os.fdopen(handle, "rb", closefd=False) as file:
            file.seek(0)
            return file.read()
    except OSError as error:
        raise LedgerError(f"ledger: must be a file, found: {error.strerror}.") from None


def _lock(path: Path, handle: int, wait: float = 0.0) -> None:
    """Refuse a second writer after so many seconds; the lock ends with the process, anyhow."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return
    ends = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() >= ends:
                raise LedgerError(
                    f"{path}: must have one writer, found that another process has it open. Stop "
                    "that one first."
                ) from None
        time.sleep(POLL)


def _history(path: Path, data: bytes) -> tuple[History, int]:
    """Return what lines say, and how many bytes at the end are half a line."""
    whole, _, rest = data.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    if not lines:
        raise LedgerError(
            f"{path}: must begin with a header, found {len(data)} bytes without one. Name the file "
            "that the deployment wrote."
        )
    reading: Reading | None = None
    last = ""
    for number, line in enumerate(lines, 1):
        try:
            row, last = _row(line, last)
            if (row["kind"] == "header") != (reading is None):
                raise LedgerError("must be a header in the first line and nowhere else.")
            if reading is None:
                reading = Reading(row)
            else:
                reading.take(row)
        except LedgerError as error:
            raise LedgerError(
                f"{path}, line {number}: {error} What follows cannot be trusted: take a copy that "
                "was kept, or compare with the other side's ledger."
            ) from None
    assert reading is not None
    return reading.history(last), len(rest)


def _at(history: History, last: str) -> History:
    return History(history.header, history.attempts, history.torn, last)


def _line(row: Row, before: str) -> tuple[bytes, str]:
    """Return a row as a line of the file, and its hash."""
    text = json.dumps({**row, "before": before}, separators=(",", ":"), allow_nan=False)
    body = text[:-1].encode()
    last = hashlib.sha256(body).hexdigest()
    return body + f',"hash":"{last}"}}\n'.encode(), last


def _row(line: bytes, before: str) -> tuple[dict[str, Any], str]:
    """Return the row of a line and its hash; refuse one that was changed or does not follow."""
    body, end = line[:-HASH], line[-HASH:]
    last = hashlib.sha256(body).hexdigest()
    if len(line) > LONGEST or end != f',"hash":"{last}"}}'.encode():
        raise LedgerError("must be as it was written, found that it was changed.")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or "kind" not in row:
        raise LedgerError("must be a row of a ledger, found something else.")
    if row.get("before") != before:
        raise LedgerError("must follow the line before, found that one was changed or taken out.")
    return row, last


def _append(handle: int, line: bytes) -> None:
    """Write a line at the end and wait until it lasts."""
    while line:
        line = line[os.write(handle, line) :]
    os.fsync(handle)


def _now() -> str:
    with contextlib.suppress(ValueError, OverflowError, OSError):  # a clock far off
        return datetime.now(UTC).isoformat(timespec="seconds")
    return "unknown"

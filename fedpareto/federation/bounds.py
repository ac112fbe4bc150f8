"""How much a data file may ask for, so that a small file cannot fill the memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from fedpareto.errors import DataError

FREE = 64 * 2**20  # bytes that any file may expand to
RATIO = 100  # bytes that a byte on disk may expand to, beyond those
CELL = 64  # bytes that a cell of a table takes while it is read


def check_room(path: Path, size: int) -> None:
    """Refuse a file whose arrays take far more bytes than it has, or do not fit the memory."""
    check_expansion(str(path), path.stat().st_size, size)


def check_expansion(path: str, held: int, size: int) -> None:
    """Refuse bytes whose arrays take far more bytes, or do not fit the memory."""
    if size > FREE + RATIO * held:
        raise DataError(
            f"{path}: must not expand to more than {RATIO} times its size, found {size:,} bytes of "
            f"arrays in a file of {held:,} bytes. If that is right, save it with np.savez, which "
            "does not compress."
        )
    most = memory(2**40) // 2
    if size > most:
        raise DataError(
            f"{path}: its arrays must fit half of the memory, {most:,} bytes, found "
            f"{size:,} bytes. Keep fewer rows in it."
        )


@contextlib.contextmanager
def bounded(path: Path) -> Iterator[None]:
    """Let a library that allocates what a file asks for fail where that is too much.

    It is a limit of the whole process, held for as long as one file is read. Where the system has
    no such limit, or does not say how much is in use, there is none.
    """
    used = _used()
    if not used:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    room = 4 * (FREE + RATIO * path.stat().st_size)
    most = used + min(room, memory(2**40) // 2)
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _used() -> int:
    """Return how many bytes of data the process holds; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[5]  # of data and stacks
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0


def memory(unknown: int) -> int:
    """Return the bytes of memory of this machine, or another number where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return unknown

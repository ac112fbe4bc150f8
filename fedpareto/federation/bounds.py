"""How much a data file may ask for, so that a small file cannot fill the memory."""

from __future__ import annotations

import os
from pathlib import Path

from fedpareto.errors import DataError

FREE = 64 * 2**20  # bytes that any file may expand to
RATIO = 100  # bytes that a byte on disk may expand to, beyond those


def check_room(path: Path, size: int) -> None:
    """Refuse a file whose arrays take far more bytes than it has, or do not fit the memory."""
    held = path.stat().st_size
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


def memory(unknown: int) -> int:
    """Return the bytes of memory of this machine, or another number where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return unknown

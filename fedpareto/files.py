"""Write files whole: a reader finds the old file or the new one, never half of one."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its place, then move it there; what it replaces keeps its mode.

    A link stays a link: the file that it leads to is replaced.
    """
    target = path.resolve()
    handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        if target.exists():
            shutil.copymode(target, beside)
        else:
            os.chmod(beside, 0o666 & ~_umask())
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise


def _umask() -> int:
    """Return which permissions new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask

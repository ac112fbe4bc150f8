"""Download files, each checked against its published md5 sum before it is kept."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from fedpareto.errors import DataError


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded."""

    url: str
    path: str  # below the data directory
    md5: str


def download(remote: Remote, folder: Path, timeout: float = 20.0) -> Path:
    """Download a file unless it is there, and return its path.

    Raises OSError if it cannot be reached, and DataError if its md5 sum is wrong.
    """
    target = folder / remote.path
    if target.is_file():
        return target
    with urllib.request.urlopen(remote.url, timeout=timeout) as answer:
        content = answer.read()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != remote.md5:
        raise DataError(
            f"{remote.url}: must have the md5 sum {remote.md5}, found {found}. It was not kept; "
            f"fetch it by hand to {target}."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target

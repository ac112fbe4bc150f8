"""Downloads, each checked against its published sum before it is kept."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from fedpareto.errors import DataError


@dataclass(frozen=True)
class Remote:
    """A file to fetch: where from, where to below the data directory, and its md5 sum."""

    url: str
    path: str
    md5: str


def download(remote: Remote, folder: Path, timeout: float = 20.0) -> Path:
    """Fetch a file unless it is there; OSError where it cannot be reached, DataError where its sum is wrong."""
    target = folder / remote.path
    if target.is_file():
        return target
    with urllib.request.urlopen(remote.url, timeout=timeout) as answer:
        content = answer.read()
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != remote.md5:
        raise DataError(
            f"{remote.url}: must have the md5 sum {remote.md5}, found {found}. It was not kept; fetch it by hand to {target}."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target

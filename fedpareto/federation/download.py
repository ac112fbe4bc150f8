"""Download files, and check them against their published md5 sums: when fetched, and when read."""

from __future__ import annotations

import functools
import hashlib
import os
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import IO

from fedpareto.errors import DataError

LARGEST = 256 * 2**20  # bytes of a download; CIFAR-10, the largest, has 163 MiB
CHUNK = 2**20


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded."""

    url: str
    path: str  # below the data directory
    md5: str


def download(remote: Remote, folder: Path, timeout: float = 20.0) -> Path:
    """Download a file unless it is there, and return its path.

    It is written beside its place and moved there when whole; after a kill it is started anew.
    Raises OSError if it cannot be reached or breaks off, and DataError if it is another file.
    """
    target = folder / remote.path
    if target.is_file():
        return target
    with urllib.request.urlopen(remote.url, timeout=timeout) as answer:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clear(target)
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                _lock(file)
                found = _copy(answer, file, remote)
            if found != remote.md5:
                raise DataError(
                    f"{remote.url}: must have the md5 sum {remote.md5}, found {found}. It was not "
                    f"kept; fetch it by hand to {target}."
                )
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return target


def _copy(answer: HTTPResponse, file: IO[bytes], remote: Remote) -> str:
    """Write an answer to a file as it comes, and return its md5 sum."""
    summed = hashlib.md5(usedforsecurity=False)
    while piece := answer.read(CHUNK):
        file.write(piece)
        summed.update(piece)
        if file.tell() > LARGEST:
            raise DataError(
                f"{remote.url}: must have at most {LARGEST:,} bytes, found more. It was not kept."
            )
    if answer.length:
        raise OSError(f"{remote.url} broke off, {answer.length:,} bytes before its end")
    return summed.hexdigest()


def _lock(file: IO[bytes]) -> None:
    """Hold a file until it is closed or the process ends; raise OSError if another holds it."""
    try:
        import fcntl
    except ImportError:  # Windows, which does not remove open files
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _clear(target: Path) -> None:
    """Remove what downloads of a file that were killed have left."""
    for part in target.parent.glob(f"{target.name}.*.part"):
        with suppress(OSError), part.open("rb") as file:
            _lock(file)
            part.unlink()


def verify(path: Path, md5: str) -> None:
    """Refuse a file that is not the one published; a file that has not changed is read once."""
    held = path.stat()
    found = _md5(path, held.st_size, held.st_mtime_ns)
    if found != md5:
        raise DataError(
            f"{path}: must be the file as published, with the md5 sum {md5}, found {found}. Delete "
            "it and it is fetched again. Data of your own: an .npz file."
        )


@functools.lru_cache(maxsize=64)
def _md5(path: Path, size: int, changed: int) -> str:
    """Return the md5 sum of a file; its size and time of change tell its versions apart."""
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, functools.partial(hashlib.md5, usedforsecurity=False)
        ).hexdigest()

"""Write files whole: a reader finds the old file or the new one, never half of one."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedpareto.errors import OutputError, SettingError

DATABASE = b"SQLite format 3\0"
MARKS = {  # how files begin that fedpareto writes, so that it may write them again
    "page": (b"<!doctype html>",),
    "picture": (b"\x89PNG\r\n\x1a\n", b"<?xml"),
    "model card": (b"# Model card:",),
    "result": (b'{\n "name": ',),
    "study": (),  # written over by force alone: nothing tells one study file from another
}
OURS = {  # what they hold besides
    "page": b"fedpareto</title>",
    "picture": b"fedpareto",
    "model": b'"fedpareto"',
}
ENDS = {  # how files of each kind are called: an empty one called so may be filled
    "page": (".html", ".htm"),
    "picture": (".png", ".svg"),
    "model": (".safetensors",),
    "model card": (".md",),
    "result": (".json",),
    "study": (".toml",),
}
HEAD = 2**16  # bytes that tell what a file is
MOST_OF_A_STUDY = 2**20  # bytes: more is no study, and would be read for ever
KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
BESIDE = ("-wal", "-shm", "-lock", "-journal")  # what SQLite and the lock keep beside a database

Check = Callable[[bytes], None]


def write_whole(path: Path, content: bytes, check: Check | None = None) -> None:
    """Write a file beside its place, read it back, then move it there.

    What it replaces keeps its mode. A link stays a link: the file that it leads to is replaced.
    check is given what was read back, and raises where that is not what was meant.
    """
    _refuse_special(path)
    with _explained(path):
        target = path.resolve()
        if _start(target).startswith(DATABASE):
            raise OutputError(f"{path}: must not be a database: its rows would be lost.")
        beside = _written_beside(target, content, check)
        try:
            if target.exists():
                shutil.copymode(target, beside)
            else:
                os.chmod(beside, 0o666 & ~_umask())
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise
        _sync_folder(target.parent)


def write_again(path: Path, content: bytes, kind: str) -> None:
    """Write a new file, or one of this kind again; what came to its place meanwhile stays."""
    _refuse_special(path)
    _check_kind(path, kind, str(path))
    write_whole(path, content, starts_as(kind))


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a new file with this mode; raise FileExistsError where there is one already.

    It appears whole: it is written beside its place under a name of its own, then linked there.
    """
    target = path.absolute()
    if os.path.lexists(target):
        raise FileExistsError(17, "File exists", str(path))
    beside = _written_beside(target, content, None)
    try:
        os.chmod(beside, mode)
        try:
            os.link(beside, target)  # unlike a rename, it never replaces what came meanwhile
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            os.replace(beside, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
    _sync_folder(target.parent)


def bytes_of(path: Path, most: int) -> bytes:
    """Return what a file holds; raise ValueError where it is no file, or holds more."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe may never answer
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("a pipe, a device or a folder")
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"more than {most} bytes")
    return data


def json_of(path: Path, most: int) -> Any:
    """Return the JSON that a file holds; raise ValueError where there is none."""
    try:
        return json.loads(bytes_of(path, most))
    except RecursionError:
        raise ValueError("lists within lists without end") from None


@contextlib.contextmanager
def log_of(path: Path) -> Iterator[int]:
    """Open an empty log for another process to write into."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def check_output(
    path: Path,
    kind: str,
    inputs: Mapping[str, Path],
    *,
    option: str = "--output",
    force: bool = False,
) -> None:
    """Refuse an output that would overwrite what is read, or a file that is not of its kind.

    inputs are what the command reads, each under the words that an error calls it by. With force
    another study file is replaced too, but never an input, code, data or a database.
    """
    _refuse_special(path, option)
    if not path.parent.is_dir():
        raise SettingError(
            f"{option}: must be in a folder that exists, found {path.parent}. Make it, or name "
            "another."
        )
    for words, held in inputs.items():
        if any(_is_same(path, one) for one in _with_companions(held)):
            raise SettingError(
                f"{option}: must be a file of its own, found {path}, which is {words}: it would "
                "be lost. Name another."
            )
    _check_kind(path, kind, option, force)


def _check_kind(path: Path, kind: str, where: str, force: bool = False) -> None:
    """Refuse to write over a database, or what is not of a kind; where begins the error."""
    if not path.exists():
        return
    with _explained(path):
        start = _start(path)
    if start.startswith(DATABASE):
        raise SettingError(
            f"{where}: must not be a database, found {path}: its rows would be lost. Name another."
        )
    if not start and path.suffix.lower() not in ENDS[kind]:
        raise SettingError(
            f"{where}: must be a new file or a {kind} to write again, found {path}, which is "
            "empty and not called as one: another program may look for it. Name another, or "
            "remove it."
        )
    if start and not _is_of(kind, start) and not (force and _is_study(path)):
        raise SettingError(
            f"{where}: must be a new file or a {kind} to write again, found {path}, which is "
            "something else and would be lost. Name another, or move it away."
        )


def starts_as(kind: str) -> Check:
    """Return a check that a file begins as files of its kind do."""

    def check(content: bytes) -> None:
        if not _is_of(kind, content[:HEAD]):
            raise OutputError(f"output: must begin as a {kind} does, found {content[:16]!r}.")

    return check


def _start(path: Path) -> bytes:
    """Return how a file begins; nothing where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(HEAD)
    except FileNotFoundError:
        return b""


def _is_of(kind: str, start: bytes) -> bool:
    """Say whether a file that begins so is of a kind."""
    if OURS.get(kind, b"") not in start:
        return False
    if kind == "model":  # the length of its head, then the head
        return start[8:9] == b"{" and start[4:8] == b"\0\0\0\0"
    return start.startswith(MARKS[kind])


def _is_study(path: Path) -> bool:
    """Say whether a file is TOML that asks for something, as every study file does."""
    try:
        with path.open("rb") as file:
            found = tomllib.loads(file.read(MOST_OF_A_STUDY).decode())
        return isinstance(found.get("objectives"), dict)
    except (OSError, ValueError, RecursionError):
        return False


def _with_companions(path: Path) -> list[Path]:
    """Return a file and what SQLite keeps beside it if it is a database."""
    return [path, *(path.with_name(path.name + end) for end in BESIDE if path.name)]


def _is_same(path: Path, other: Path) -> bool:
    """Say whether two paths are one file: by name, through links, or by a second name."""
    if path.resolve() == other.resolve():
        return True
    with contextlib.suppress(OSError):
        return path.samefile(other)
    return False


def _refuse_special(path: Path, option: str = "") -> None:
    """Refuse a place where there is something other than a file."""
    where = option or str(path)
    shown = f" {path}," if option else ""
    if not path.name:
        raise SettingError(f"{where}: must name a file, found {str(path)!r}. Name one.")
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{where}: must be a file that can be written, found{shown} {_reason(error)}. "
            "Name another."
        ) from None
    if kind != stat.S_IFREG:
        raise SettingError(
            f"{where}: must be a file, found{shown} {KINDS.get(kind, 'a device')}. Name another."
        )


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what the system says into an error that names the file, and says what is left."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path}: must be a file that can be written, found: {_reason(error)}. What was there "
            "before is as it was. Make room or name another, and run the command again."
        ) from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _written_beside(target: Path, content: bytes, check: Check | None) -> str:
    """Write a file beside its place and sync it; return its path once it reads as it should."""
    handle, beside = tempfile.mkstemp(dir=target.parent, prefix=".fedpareto-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with open(beside, "rb") as file:
            found = file.read()
        if found != content:
            raise OutputError(
                f"{target}: must read as it was written, found other bytes. What was there before "
                "is as it was. Check the disk."
            )
        if check is not None:
            check(found)
    except BaseException:
        os.unlink(beside)
        raise
    return beside


def _sync_folder(folder: Path) -> None:
    """Make a rename last; where folders cannot be synced, it lasts as the system sees fit."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    """Return which permissions new files of this process do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def folder_of_examples() -> Path:
    """Return where the examples are: within the installed package, or beside it in its source."""
    package = Path(__file__).parent
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"

"""What another process needs to train blocks: the problem, its data, and the same versions."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpareto import __version__
from fedpareto.errors import DeviceLost, FedparetoError, told
from fedpareto.evaluate import Job, results_of
from fedpareto.problem import Problem, SendsData
from fedpareto.settings import folders, import_from, may_be_found, own_hashes, own_loaded
from fedpareto.trials import Result

Fetch = Callable[[], tuple[Problem, Any]]  # the problem, and its data if it sends them


@dataclass(frozen=True)
class Terms:
    """What must hold in a process that trains blocks of a run."""

    versions: Mapping[str, str]  # of all that rows depend on
    own: Mapping[str, str]  # a hash of the file of each name of the user's own
    folders: tuple[str, ...]  # beside study files, where those files may lie
    path: tuple[str, ...]  # where Python looks for modules
    threads: int  # that a large training uses
    run: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True)
class Answer:
    """What a process made of a block."""

    results: Sequence[Result] = ()
    said: tuple[str, ...] = ()  # what it had to tell the user on the way
    refused: str = ""  # why it trained nothing: the user must mend something


class Unreachable(Exception):
    """What a process needs was not to be had just now; elsewhere or later it may be."""


def terms(threads: int) -> Terms:
    """Return what must hold wherever blocks of this process are trained."""
    beside = tuple(map(str, folders()))
    path = tuple(p for p in sys.path if p)
    return Terms(versions(), own_hashes(own_loaded()), beside, path, threads)


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that rows depend on; fedpareto's with a hash of its files."""
    import numpy
    import torch

    root = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return {
        "fedpareto": f"{__version__} ({digest.hexdigest()})",
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "torch": torch.__version__.partition("+")[0],
        "numpy": numpy.__version__,
    }


def trained(need: Terms, fetch: Fetch, jobs: Sequence[Job], seed: int, where: str) -> Answer:
    """Train a block in this process, once it holds what it needs."""
    with _heard() as said:
        try:
            problem = _problem(need, fetch)
            results = results_of(problem, jobs, seed, where)
        except DeviceLost:
            os._exit(1)  # whoever hands out blocks starts another process, and finds the culprit
        except FedparetoError as error:
            return Answer(said=tuple(said), refused=str(error))
    return Answer(results, tuple(said))


_held: dict[str, Problem] = {}  # by run: what this process works on


def _problem(need: Terms, fetch: Fetch) -> Problem:
    """Return the problem of a run, fetched once in a process, after the versions are compared."""
    if need.run in _held:
        return _held[need.run]
    import torch

    sys.path.extend(p for p in need.path if p not in sys.path and Path(p).exists())
    for folder in filter(Path.is_dir, map(Path, reversed(need.folders))):
        import_from(folder)
    for name in need.own:
        may_be_found(name.partition(":")[0])
    check(need.versions, versions())
    check(need.own, own_hashes(need.own))
    try:
        problem, data = fetch()
    except Unreachable:
        raise
    except Exception as error:
        found = str(error).strip().splitlines() or [told(error)]
        raise FedparetoError(
            f"worker: must be able to import all that the study names, found {found[-1]}. "
            "Install it on every machine, or put it beside the study file."
        ) from error
    if isinstance(problem, SendsData):
        problem.take_data(data)
    torch.set_num_threads(need.threads)
    _held.clear()
    _held[need.run] = problem
    return problem


def check(wanted: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Refuse a process that has another version of something that rows depend on."""
    for name, version in wanted.items():
        if found.get(name) != version:
            raise FedparetoError(
                f"worker: must have {name} as the run was started with, {version}, found "
                f"{found.get(name)}: rows would not be the same. Install that version there."
            )


@contextlib.contextmanager
def _heard() -> Iterator[list[str]]:
    """Collect what is said to the user, for the process that asked to say it."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    log = logging.getLogger("fedpareto")
    listener = Listener(logging.WARNING)
    before = log.propagate
    log.addHandler(listener)
    log.propagate = False
    try:
        yield lines
    finally:
        log.removeHandler(listener)
        log.propagate = before


def said_by(where: str, lines: Iterable[str]) -> None:
    """Say what a worker had to say, once each."""
    log = logging.getLogger("fedpareto")
    for line in lines:
        if (where, line) not in _repeated:
            _repeated.add((where, line))
            log.warning("%s: %s", where, line)


_repeated: set[tuple[str, str]] = set()

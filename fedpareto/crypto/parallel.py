"""Use all cores: processes for work in Python, threads for work in a library that frees the GIL."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")

Work = Callable[[Sequence[T]], list[U]]
# a forked process on macOS may not use its frameworks
FORKS = hasattr(os, "fork") and sys.platform != "darwin"
SMALL = 32  # fewer items are done before a process has started


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def forked(work: Work[T, U], items: Sequence[T], workers: int | None) -> list[U]:
    """Return work(items), shared out among forks of this process where the system can fork.

    The work must draw from the system's randomness only: every fork has the same state of any other
    generator.
    """
    mine, *others = _shares(items, workers if FORKS else 1)
    children = []
    try:
        for share in others:
            children.append(_child(work, share))
        done = work(mine)
        for (_, pipe), share in zip(children, others, strict=True):
            done += _result(pipe) or work(share)
        return done
    except BaseException:
        for pid, _ in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise
    finally:
        for pid, pipe in children:
            pipe.close()
            with suppress(ChildProcessError):  # the program may have set SIGCHLD to be ignored
                os.waitpid(pid, 0)


def threaded(work: Work[T, U], items: Sequence[T], workers: int | None) -> list[U]:
    """Return work(items), shared out among threads."""
    shares = _shares(items, workers)
    if len(shares) == 1:
        return work(items)
    with ThreadPoolExecutor(len(shares)) as pool:
        return [one for done in pool.map(work, shares) for one in done]


def _shares(items: Sequence[T], workers: int | None) -> list[Sequence[T]]:
    """Return the items in equal parts, one for each worker, or fewer parts if items are few."""
    if workers is None:
        workers = cores()
    parts = max(1, min(workers, len(items) // (SMALL // 2)))
    if len(items) < SMALL:
        parts = 1
    ends = [len(items) * i // parts for i in range(parts + 1)]
    return [items[a:b] for a, b in pairwise(ends)]


def _child(work: Work[T, U], share: Sequence[T]) -> tuple[int, Any]:
    """Start a fork that works and writes its result to a pipe; return its id and the pipe."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads; the fork takes no lock they could hold
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(writes)
        return pid, os.fdopen(reads, "rb")
    with suppress(BaseException):
        gc.disable()  # the fork must not free what the parent holds, such as a GPU's memory
        os.close(reads)
        with os.fdopen(writes, "wb") as out:
            pickle.dump(work(share), out, pickle.HIGHEST_PROTOCOL)
    os._exit(0)


def _result(pipe: Any) -> Any:
    """Return what a fork wrote, or None if it was stopped before the end."""
    try:
        return pickle.load(pipe)
    except (EOFError, pickle.UnpicklingError):
        return None

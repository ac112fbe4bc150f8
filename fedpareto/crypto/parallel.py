"""Use all cores: processes where Python itself is the work, threads where a library works and lets others run."""

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
FORKS = (
    hasattr(os, "fork") and sys.platform != "darwin"
)  # a forked process on macOS may not use its frameworks
SMALL = 32  # fewer items are done before a process has started


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def forked(work: Work[T, U], items: Sequence[T], workers: int | None) -> list[U]:
    """Return work(items), shared out among copies of this process; alone where there are no copies to be had.

    The work must draw from the system's randomness only: a copy has the same state of any other generator.
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
            with suppress(ChildProcessError):  # where the program has asked not to be told of them
                os.waitpid(pid, 0)


def threaded(work: Work[T, U], items: Sequence[T], workers: int | None) -> list[U]:
    """Return work(items), shared out among threads."""
    shares = _shares(items, workers)
    if len(shares) == 1:
        return work(items)
    with ThreadPoolExecutor(len(shares)) as pool:
        return [one for done in pool.map(work, shares) for one in done]


def _shares(items: Sequence[T], workers: int | None) -> list[Sequence[T]]:
    parts = max(1, min(cores() if workers is None else workers, len(items) // (SMALL // 2)))
    if len(items) < SMALL:
        parts = 1
    ends = [len(items) * i // parts for i in range(parts + 1)]
    return [items[a:b] for a, b in pairwise(ends)]


def _child(work: Work[T, U], share: Sequence[T]) -> tuple[int, Any]:
    """Start a copy of this process that does the work and writes what came out into a pipe."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12 warns of threads; the copy takes no lock they could hold
        pid = os.fork()
    if pid:
        os.close(writes)
        return pid, os.fdopen(reads, "rb")
    with suppress(BaseException):
        gc.disable()  # what the parent holds (a GPU's memory) is not the copy's to free
        os.close(reads)
        with os.fdopen(writes, "wb") as out:
            pickle.dump(work(share), out, pickle.HIGHEST_PROTOCOL)
    os._exit(0)


def _result(pipe: Any) -> Any:
    """Return what a copy wrote, or None where it was stopped before the end."""
    try:
        return pickle.load(pipe)
    except (EOFError, pickle.UnpicklingError):
        return None

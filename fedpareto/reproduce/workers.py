"""Train many studies, several at a time, and say how far all of them are.

A worker is a process that trains one study after another. It may be killed at any time: the rows of
a study are its whole state.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fedpareto.errors import DeviceLost, FedparetoError
from fedpareto.loop import database, run
from fedpareto.report.progress import whole
from fedpareto.reproduce.lending import borrowing
from fedpareto.store import Store
from fedpareto.study import Study, load_study

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

SHARED = 2.0  # what several studies get from one GPU; 1 is what one alone gets
PATIENCE = 1.0  # seconds between looks at the clock and at the workers
Tell = Callable[[Path, float], None]  # which study, and what share of it is done


@dataclass(frozen=True)
class Work:
    """A study file to train, and the seconds that it is expected to take.

    It begins when `after` is finished, and takes over the rows that both need.
    """

    path: Path
    expected: float
    after: Path | None = None


class OutOfTime(Exception):
    """Raised between two blocks once the time given is over."""


def speed_up(scale: str, jobs: int) -> float:
    """Return how much faster than one by one so many studies at a time are.

    At quick scale each has a core of its own, at the paper's they share one GPU.
    """
    return jobs if scale == "quick" else min(jobs, SHARED)


def train(
    work: Sequence[Work], jobs: int = 1, seconds: float | None = None, stream: TextIO | None = None
) -> bool:
    """Train studies, the longest first, and return whether all were finished in the time given."""
    longest = sorted(work, key=lambda w: (w.after is not None, -w.expected))
    until = None if seconds is None else time.monotonic() + seconds
    if seconds == 0 or not work:
        return not work
    with whole_bar(longest, stream or sys.stderr) as tell:
        if jobs == 1:
            return _one_by_one(longest, until, tell)
        return _at_once(longest, jobs, until, tell)


def train_one(work: Work, tell: Tell, until: float | None = None) -> None:
    """Train one study to its budget, from wherever its rows stand."""
    path = work.path
    study = load_study(path)

    def watch(store: Store) -> None:
        tell(path, done(study, store))
        if until is not None and time.monotonic() > until:
            raise OutOfTime

    if not _finished(study):
        run(study, evaluate=borrowing(study, work.after), watch=watch).close()
    tell(path, 1.0)


def _finished(study: Study) -> bool:
    """Say whether a study has all its rows: then nothing of it is trained, nor is its baseline."""
    if not database(study).is_file():
        return False
    with Store.read(database(study)) as store:
        store.check(study.identity)
        return store.finished() >= study.budget


def done(study: Study, store: Store) -> float:
    """Return what share of a study is done."""
    return min(1.0, max(store.trainings() / study.repeats, store.finished()) / study.budget)


def _one_by_one(work: Sequence[Work], until: float | None, tell: Tell) -> bool:
    try:
        for one in work:
            train_one(one, tell, until)
    except OutOfTime:
        return False
    return True


def _at_once(work: Sequence[Work], jobs: int, until: float | None, tell: Tell) -> bool:
    """Train in several processes, which are killed when the time is over."""
    context = multiprocessing.get_context("spawn")
    tasks: Any = context.Queue()
    told: Any = context.Queue()
    line = Line(work, tasks, jobs)
    workers = [context.Process(target=work_on, args=(tasks, told)) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    try:
        return _until_all_are_done(line, workers, told, until, tell)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
        for channel in (tasks, told):
            channel.cancel_join_thread()


class Line:
    """The studies that are left, each put into the queue once what it waits for is done."""

    def __init__(self, work: Sequence[Work], tasks: Any, jobs: int) -> None:
        self.left = {w.path for w in work}
        self._waiting = list(work)
        self._tasks = tasks
        self._jobs = jobs
        self._hand_out()

    def done(self, path: Path) -> None:
        """Count a study as done, whether it was trained or failed, and let others begin."""
        self.left.discard(path)
        if self._waiting:
            self._hand_out()

    def _hand_out(self) -> None:
        for work in [w for w in self._waiting if w.after not in self.left]:
            self._waiting.remove(work)
            self._tasks.put(work)
        if not self._waiting:
            for _ in range(self._jobs):
                self._tasks.put(None)


def _until_all_are_done(
    line: Line, workers: Sequence[Any], told: Any, until: float | None, tell: Tell
) -> bool:
    """Wait for every study; return whether all were finished in time, raise what went wrong."""
    faults = []
    while line.left and (until is None or time.monotonic() < until):
        with contextlib.suppress(queue.Empty):
            path, share, fault = told.get(timeout=PATIENCE)
            tell(path, share)
            if fault:
                faults.append(fault)
            if fault or share == 1:
                line.done(path)
            continue
        if not any(w.is_alive() for w in workers) and told.empty():
            raise FedparetoError(
                f"reproduce: {len(line.left)} studies must still be trained, found no process that "
                "trains: each was ended from outside, perhaps for memory. What was finished is "
                "kept; run again with fewer --jobs."
            )
    if faults:
        raise FedparetoError(faults[0])
    return not line.left


def work_on(tasks: Queue[Work | None], told: Queue[tuple[Path, float, str]]) -> None:
    """Train studies from a queue until none is left, or until nobody waits for them any more."""
    parent = multiprocessing.parent_process()

    def tell(path: Path, share: float) -> None:
        if parent is not None and not parent.is_alive():
            os._exit(1)
        told.put((path, share, ""))

    while (work := _next(tasks)) is not None:
        try:
            train_one(work, tell)
        except FedparetoError as error:
            told.put((work.path, 0.0, str(error)))
            if isinstance(error, DeviceLost):
                return  # the others go on; the same command goes on with this study
        _let_go()


def _next(tasks: Queue[Work | None]) -> Work | None:
    """Wait for the next study; there is none once nobody hands them out any more."""
    parent = multiprocessing.parent_process()
    while True:
        with contextlib.suppress(queue.Empty):
            return tasks.get(timeout=PATIENCE)
        if parent is not None and not parent.is_alive():
            return None


def _let_go() -> None:
    """Give a device's memory back, which other workers need."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextlib.contextmanager
def whole_bar(work: Sequence[Work], stream: TextIO) -> Iterator[Tell]:
    """Give a function to call as studies come on, which shows how far all of them are."""
    expected = {w.path: w.expected for w in work}
    shares = dict.fromkeys(expected, 0.0)
    with whole("reproduce", sum(expected.values()), stream) as show:

        def tell(path: Path, share: float) -> None:
            shares[path] = share
            finished = sum(share == 1 for share in shares.values())
            done = sum(expected[p] * s for p, s in shares.items())
            show(done, f"{finished} of {len(shares)} studies, now {path.stem}")

        yield tell

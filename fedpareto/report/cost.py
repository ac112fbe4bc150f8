"""What is left of a study costs, in seconds of training, before it is trained."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from fedpareto.errors import FedparetoError, guarded
from fedpareto.federation import Federation
from fedpareto.federation.timing import block_seconds
from fedpareto.problem import Checks, is_private
from fedpareto.report.progress import in_words, progress
from fedpareto.report.proposing import proposing_seconds
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.words import visible

Shown = Callable[[Study, Path], AbstractContextManager[Callable[[Store], None]]]
WORTH_SAYING = 5.0  # seconds of proposals
A_WHILE = 100.0  # seconds, from which on hours are said too


def estimate(study: Study, rows: Path) -> str:
    """Return a line that says how much is left to train and about how long it takes.

    By the trainings so far; before the first, by a few rounds, unless the data are private: on
    those nothing is trained for this. Proposals are timed on rows that are made up.
    """
    try:
        if isinstance(study.problem, Checks):
            study.problem.check()
        found = _beside(study, rows)
    except FedparetoError:  # the run itself says what is wrong
        return ""
    trials, trainings = (study.budget, study.budget * study.repeats) if found is None else found[0]
    if trainings <= 0:
        return "nothing is left to train"
    what = f"{trials} {'trial' if trials == 1 else 'trials'}"
    what += f" × {study.repeats} repeats" if study.repeats > 1 else ""
    parts = [*_training(study, trials, found[1] if found else 0.0), *_proposing(study, trials)]
    return f"{what}: about {' and '.join(parts)}" if parts else what


def _training(study: Study, trials: int, each: float) -> list[str]:
    """Return how long so many trials train, by the seconds of a training so far or by a try."""
    blocks = _blocks(study, trials)
    if each:
        seconds = blocks * study.problem.block * each  # a block that is not full takes as long
        return [f"{in_words(max(1.0, seconds))} of training, by those so far"]
    block = _probed(study)
    return [] if block is None else [f"{in_words(max(1.0, blocks * block))} of training"]


def _proposing(study: Study, trials: int) -> list[str]:
    """Return how long so many trials take to be proposed; nothing if that is next to nothing."""
    seconds = _tried(lambda: proposing_seconds(study, study.budget - trials))
    if seconds is None or seconds < WORTH_SAYING:
        return []
    return [f"{in_words(seconds)} of proposing trials"]


def training_time(study: Study, store: Store) -> str:
    """Return about how long one training takes, by those so far; nothing before the first.

    It is that of a whole block, since a training alone is padded to one.
    """
    works = store.works().values()
    trainings = sum(work.trainings for work in works)
    if not trainings:
        return ""
    each = sum(work.seconds for work in works) / trainings
    return f", about {in_words(max(1.0, each * study.problem.block))}"


def proposing_time(store: Store) -> str:
    """Return how long proposing every trial took at most: what sessions took beside training."""
    trained = sum(work.seconds for work in store.works().values())
    rest = max(1.0, store.seconds() - trained)
    return f"at most about {in_words(rest)}, by the sessions so far"


@contextlib.contextmanager
def announced(study: Study, rows: Path) -> Iterator[Callable[[Store], None]]:
    """Say about how long a study takes, then show how far it has come; give what `run` calls."""
    line = estimate(study, rows)
    if line:
        print(visible(f"{study.name}: {line}"), file=sys.stderr, flush=True)
    with progress(study) as watch:
        yield watch


@contextlib.contextmanager
def quietly(study: Study, rows: Path) -> Iterator[Callable[[Store], None]]:
    """Say nothing; give what `run` calls."""
    yield lambda store: None


def _beside(study: Study, rows: Path) -> tuple[tuple[int, int], float] | None:
    """Return trials and trainings left, and the seconds of a training; None without a database."""
    if not rows.is_file() or not rows.stat().st_size:
        return None
    with Store.read(rows) as store:
        store.check(study.identity)
        left = study.budget - store.finished(), study.budget * study.repeats - store.trainings()
        works = store.works().values()
        trainings = sum(work.trainings for work in works)
        return left, sum(work.seconds for work in works) / trainings if trainings else 0.0


def _blocks(study: Study, trials: int) -> int:
    """Return how many blocks so many trials take, every repeat."""
    batch, size = study.optimizer.batch, max(1, study.problem.block)
    whole, rest = divmod(trials, batch)
    return (whole * math.ceil(batch / size) + math.ceil(rest / size)) * study.repeats


def _probed(study: Study) -> float | None:
    """Return the seconds of a block, by a few rounds; None where that is not known or not to be."""
    problem = study.problem
    if not isinstance(problem, Federation) or is_private(problem):
        return None
    return _tried(lambda: block_seconds(problem))


def _tried(timed: Callable[[], float | None]) -> float | None:
    """Return what was timed; None if it fails: the run itself says what is wrong."""
    with contextlib.suppress(Exception), _quiet(), guarded():
        return timed()
    return None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Say nothing of what the run says again."""
    log = logging.getLogger("fedpareto")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def cost_left(study: Study, store: Store | None, workers: int | None = None) -> str:
    """Return a line that says how many trainings are left, and what they cost.

    By those so far; before the first, by a few rounds in this process.
    """
    left = study.budget * study.repeats - (store.trainings() if store else 0)
    if left <= 0:
        return "cost: nothing is left to train"
    works = store.works().values() if store else ()
    trainings = sum(work.trainings for work in works)
    if trainings == 0:
        return f"cost: at most {left} trainings; {_guessed(study, workers)}"
    each = sum(work.seconds for work in works) / trainings
    return (
        f"cost: at most {left} trainings of {each:.3g} s (the mean of {trainings} so far) are "
        f"{_worker_seconds(left * each, workers)}"
    )


def _guessed(study: Study, workers: int | None) -> str:
    """Say what a whole study costs before its first training."""
    blocks = _blocks(study, study.budget)
    each = _probed(study)
    if each is None:
        return (
            "what one takes is not known before the first. To know it, run with a small --budget, "
            "then again: nothing is trained twice."
        )
    return (
        f"by a few rounds on this machine, {_worker_seconds(blocks * each, workers)}. "
        "Other machines may take longer or less: to know it, run with a small --budget, then "
        "again: nothing is trained twice."
    )


def _worker_seconds(total: float, workers: int | None) -> str:
    """Say how long one worker takes, and all of them."""
    words = f"{max(1.0, total):.0f} s of one worker"
    if total >= A_WHILE:
        words += f", {total / 3600:.3g} hours"
    if workers:
        need = "1 worker needs" if workers == 1 else f"{workers} workers need"
        words += f"; {need} at least {max(1.0, total / workers):.0f} s"
    return words

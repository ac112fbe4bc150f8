"""How far a study has come: a bar in a terminal or notebook, elsewhere a line now and then."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import numpy as np

from fedpareto.front import hypervolume, knee, nondominated, share_of_box
from fedpareto.problem import feasible, judges, listening, reference
from fedpareto.report.text import shown
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.words import visible

if TYPE_CHECKING:
    from rich.console import Console

FIRST = 30.0  # seconds before the first line
BETWEEN = 60.0  # seconds from one line to the next
WORTH_SAYING = 2.0  # seconds left of work that has no bar
OFTEN = 0.2  # seconds from one look of a notebook's line to the next
REST = 20  # times as long as it took to find the best so far, until it is sought again


class Screen(Protocol):
    """What shows how far a study has come."""

    def show(self, done: float, seen: str) -> None:
        """Show how many trials are done, and the best so far; an empty text leaves it as it was."""


@contextlib.contextmanager
def progress(study: Study, stream: TextIO | None = None) -> Iterator[Callable[[Store], None]]:
    """Give a function to call after every block, which shows how far the study has come.

    It shows trials done, time left, the hypervolume and the best so far.
    """
    with screen_of(study, stream or sys.stderr) as screen:
        evaluations, done, due = -1, 0.0, 0.0

        def inside(trainings: float) -> None:
            screen.show(min(done + trainings / study.repeats, study.budget), "")

        def watch(store: Store) -> None:
            nonlocal evaluations, done, due
            # A trial finished with fewer trainings is finished too.
            done = max(store.trainings() / study.repeats, store.finished())
            began = time.monotonic()
            last = store.finished() == study.budget
            seen = ""
            if store.finished() > evaluations and (began >= due or last):
                evaluations = store.finished()
                seen = visible(best_so_far(study, store))
                due = time.monotonic() + REST * (time.monotonic() - began)
            screen.show(done, seen)

        with listening(inside):
            yield watch


@contextlib.contextmanager
def screen_of(study: Study, stream: TextIO) -> Iterator[Screen]:
    """Give what shows on a stream how many of a study's trials are done."""
    from rich.console import Console

    if Console().is_jupyter:
        with _in_notebook(study) as line:
            yield line
    elif stream.isatty():
        with _bar(study, Console(file=stream)) as bar:
            yield bar
    else:
        yield Lines(study.name, study.budget, trials_of(study), stream)


@contextlib.contextmanager
def _bar(study: Study, console: Console) -> Iterator[Screen]:
    """Give a bar on a console."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    whole = Column(no_wrap=True)
    cut = Column(no_wrap=True, ratio=1)  # the best so far gives way on a narrow terminal
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(table_column=whole),
        TextColumn("trials"),
        TimeRemainingColumn(elapsed_when_finished=True, table_column=whole),
        TextColumn("{task.fields[seen]}", markup=False, table_column=cut),
    )
    with Progress(*columns, console=console, expand=True) as bar:
        yield Bar(bar, bar.add_task(visible(study.name), total=study.budget, seen=""))


class Bar:
    """A bar of rich."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar = bar
        self._task = task

    def show(self, done: float, seen: str) -> None:
        """Move the bar."""
        said = {"seen": seen} if seen else {}
        self._bar.update(self._task, completed=done, **said)


@contextlib.contextmanager
def _in_notebook(study: Study) -> Iterator[Screen]:
    """Give a bar with a line of text below a notebook's cell, which changes in place."""
    from IPython.display import display

    line = NotebookBar(study.name, study.budget, trials_of(study))
    shown = display(line, display_id=True)  # type: ignore[no-untyped-call]
    line.changed = lambda: shown.update(line)
    try:
        yield line
    finally:
        line.changed()


class NotebookBar:
    """A bar and a line of text as a notebook shows them, without widgets."""

    def __init__(
        self,
        name: str,
        whole: float,
        words: Callable[[float], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = visible(name)
        self._whole = whole
        self._words = words
        self._pace = Pace(whole, clock)
        self._done = 0.0
        self._seen = ""
        self._next = 0.0
        self.changed: Callable[[], None] = lambda: None

    def show(self, done: float, seen: str) -> None:
        """Show it anew if the last time is long enough ago."""
        now = self._pace.now(done)
        self._done, self._seen = done, seen or self._seen
        if now >= self._next:
            self._next = now + OFTEN
            self.changed()

    def __repr__(self) -> str:
        """Return the line of text."""
        over = self._done >= self._whole
        how_long = in_words(self._pace.taken) if over else self._pace.left(self._done)
        parts = (self._words(self._done), how_long, self._seen)
        return f"{self._name}: {'; '.join(part for part in parts if part)}"

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self._done:g}" max="{self._whole:g}"></progress>'
        return f"<div>{bar} {escape(repr(self))}</div>"


@contextlib.contextmanager
def whole(name: str, total: float, stream: TextIO) -> Iterator[Callable[[float, str], None]]:
    """Give a function to call with how much of work is done, and with what is done now.

    It moves a bar on a terminal, and writes a line now and then elsewhere.
    """
    if not stream.isatty():
        yield Lines(name, total, lambda done: f"{done / total:.0%}", stream).show
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=Console(file=stream)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, now: bar.update(task, completed=done, description=visible(now))


@contextlib.contextmanager
def saying_how_long(name: str, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Print a line about how long work goes on that tells how much is done, once it is clear."""
    began, said = clock(), False

    def hear(share: float) -> None:
        nonlocal said
        left = (clock() - began) / share * (1 - share)
        if not said and left > WORTH_SAYING:
            print(f"{name}: about {in_words(left)} left", file=sys.stderr, flush=True)
            said = True

    with listening(hear):
        yield


def trials_of(study: Study) -> Callable[[float], str]:
    """Give a function that says of how many trials so many are done."""
    return lambda done: f"{done:.0f} of {study.budget} trials"


class Pace:
    """How long work has taken, and how long the rest takes if it goes on as it went."""

    def __init__(self, whole: float, clock: Callable[[], float]) -> None:
        self._whole = whole
        self._clock = clock
        self._had: float | None = None  # what was done before
        self.began = clock()
        self.taken = 0.0  # seconds, when last looked at

    def now(self, done: float) -> float:
        """Return what the clock says now, when so much is done."""
        self._had = done if self._had is None else self._had
        now = self._clock()
        self.taken = now - self.began
        return now

    def left(self, done: float) -> str:
        """Say how long the rest takes; nothing before there is a pace."""
        gained = done - (self._had or 0.0)
        if gained <= 0:
            return ""
        return f"about {in_words(self.taken / gained * (self._whole - done))} left"


class Lines:
    """A plain line now and then, for logs."""

    def __init__(
        self,
        name: str,
        whole: float,
        words: Callable[[float], str],
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._words = words
        self._stream = stream
        self._pace = Pace(whole, clock)
        self._next = self._pace.began + FIRST
        self._seen = ""

    def show(self, done: float, seen: str) -> None:
        """Print a line if the last one is long enough ago."""
        now = self._pace.now(done)
        self._seen = seen or self._seen
        if now < self._next:
            return
        self._next = now + BETWEEN
        parts = [self._words(done), self._pace.left(done), self._seen]
        text = "; ".join(part for part in parts if part)
        print(f"{visible(self._name)}: {text}", file=self._stream, flush=True)


def in_words(seconds: float) -> str:
    """Return a length of time as people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def best_so_far(study: Study, store: Store) -> str:
    """Return the hypervolume and the best point so far, in a few words."""
    objectives, known = study.problem.objectives, store.known(study.problem)
    y = np.vstack([known.judged, known.free_judged])
    y = y[feasible(judges(study.problem), y)][:, : len(objectives)]
    y = y[nondominated(y)]
    corner = reference(objectives)
    volume = hypervolume(y, corner)
    share = share_of_box(volume, corner)
    text = f"hypervolume {volume:.4f}" + (f", share {share:.4f}" if np.isfinite(share) else "")
    if len(y) == 0:
        return f"{text} · none within the limits yet"
    best = y[knee(y, corner)]
    return f"{text} · best " + ", ".join(
        f"{o.name} {shown(o, v)}" for o, v in zip(objectives, best, strict=True)
    )

"""A progress bar on stderr while a study runs; nothing where stderr is not a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

import numpy as np

from fedpareto.front import hypervolume, knee
from fedpareto.problem import feasible, judges, listening, reference
from fedpareto.report.text import shown
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.trials import known_of
from fedpareto.words import visible


@contextlib.contextmanager
def progress(study: Study, stream: TextIO | None = None) -> Iterator[Callable[[Store], None]]:
    """Give a function to call after every block, which shows how far the study has come.

    It shows trials done, time left, the hypervolume and the best so far.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield lambda store: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("trials"),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[seen]}", markup=False),
    )
    with Progress(*columns, console=Console(file=stream)) as bar:
        task = bar.add_task(visible(study.name), total=study.budget, seen="")
        evaluations, done = -1, 0.0

        def inside(share: float) -> None:
            bar.update(
                task,
                completed=min(done + share * study.problem.block / study.repeats, study.budget),
            )

        def watch(store: Store) -> None:
            nonlocal evaluations, done
            # A trial finished with fewer trainings is finished too.
            done = max(store.trainings() / study.repeats, store.finished())
            bar.update(task, completed=done)
            if store.finished() > evaluations:
                evaluations = store.finished()
                bar.update(task, seen=visible(best_so_far(study, store)))

        with listening(inside):
            yield watch


def best_so_far(study: Study, store: Store) -> str:
    """Return the hypervolume and the best point so far, in a few words."""
    objectives, known = study.problem.objectives, known_of(study.problem, store.trials())
    y = np.vstack([known.judged, known.free_judged])
    y = y[feasible(judges(study.problem), y)][:, : len(objectives)]
    text = f"hypervolume {hypervolume(y, reference(objectives)):.4f}"
    if len(y) == 0:
        return f"{text} · none within the limits yet"
    best = y[knee(y, reference(objectives))]
    return f"{text} · best " + ", ".join(
        f"{o.name} {shown(o, v)}" for o, v in zip(objectives, best, strict=True)
    )

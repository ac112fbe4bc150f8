"""A study's rows as plain data: the points, the front, the recommended point."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError
from fedpareto.front import nondominated, share_of_box
from fedpareto.history import History
from fedpareto.noise import derive
from fedpareto.problem import (
    Judge,
    Knows,
    Limit,
    Objective,
    feasible,
    is_private,
    judges,
    reference,
)
from fedpareto.report.choose import Baselines, Point, aim_of, best, held, recommend
from fedpareto.report.volumes import hypervolumes
from fedpareto.space import FloatArray
from fedpareto.store import Audit, Store, last_of
from fedpareto.study import Study
from fedpareto.trials import Trial, check_alike, known_of
from fedpareto.words import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


class Dealt(Protocol):
    """Data that are dealt to clients."""

    @property
    def clients(self) -> int:
        """How many clients there are."""


@runtime_checkable
class Deals(Protocol):
    """A problem that deals data to clients, and can say who holds what."""

    @property
    def data(self) -> Dealt: ...

    def examples(self) -> int:
        """How many records there are for training, of all clients."""

    def split_table(self, seed: int) -> NDArray[np.int64]:
        """Return how many training examples of each class each client holds in a repeat, [K,C]."""


@dataclass(frozen=True, repr=False)
class View:
    """What a study shows."""

    study: Study
    points: tuple[Point, ...]  # every trial that was measured
    front: tuple[Point, ...]  # of the feasible ones; of all, where none is
    failed: tuple[Trial, ...]
    curve: tuple[float, ...]  # hypervolume after each finished trial
    recommended: Point | None
    why: str
    trainings: int = 0  # of all finished trials together
    knee: Point | None = None  # beside the recommended point
    baselines: Baselines = Baselines()
    audits: tuple[Audit, ...] = ()  # the last of each attack on each point

    def __repr__(self) -> str:
        star = "none" if self.recommended is None else f"trial {self.recommended.trial}"
        share = f", share {self.share:.4g} of the reference box" if np.isfinite(self.share) else ""
        return (
            f"View({visible(self.study.name)}: {self.evaluations} trials, {len(self.front)} on the "
            f"front, hypervolume {self.hypervolume:.4g}{share}, recommended {star})"
        )

    def _repr_html_(self) -> str:
        """Return the front as a picture and a table, as a notebook shows it."""
        from fedpareto.report.notebook import html_of

        return html_of(self)

    def to_pandas(self) -> DataFrame:
        """Return every point as a row: objectives, settings, measures, and whether on the front."""
        from fedpareto.report.notebook import frame_of

        return frame_of(self)

    def plot(self, plot: str = "front", axes: Axes | None = None) -> Axes:
        """Draw the front, hypervolume, split, settings or clients with matplotlib."""
        from fedpareto.report.notebook import drawn

        return drawn(self, plot, axes)

    @property
    def evaluations(self) -> int:
        return len(self.curve)

    @property
    def hypervolume(self) -> float:
        return self.curve[-1] if self.curve else 0.0

    @property
    def share(self) -> float:
        """The hypervolume in units of the box up to the reference; nan where there is no box."""
        return share_of_box(self.hypervolume, reference(self.objectives))

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return self.study.problem.objectives

    @property
    def judges(self) -> tuple[Judge, ...]:
        """What points are judged by: the objectives, then the limits beside them."""
        return judges(self.study.problem)

    @property
    def reference(self) -> dict[str, float]:
        return {o.name: o.reference for o in self.objectives}


UNHELD = "Trials alone are not held against always giving the same answer: view(study, store) is."


def view(study: Study, trials: Sequence[Trial] | Store, baselines: Baselines | None = None) -> View:
    """Look at a study's trials; give the store, so that they are held against its baselines."""
    if isinstance(trials, Store):
        return view_of(study, trials)
    alone = baselines is None
    baselines = baselines or Baselines()
    finished = [
        t if t.runs else dataclasses.replace(t, runs=study.repeats)
        for t in trials
        if t.state != "pending"
    ]
    objectives = study.problem.objectives
    known = known_of(study.problem, finished)
    asked = judges(study.problem)
    holds = feasible(asked, known.judged)
    points = [
        _point(t, asked, row, ok)
        for t, row, ok in zip(finished, known.judged, holds, strict=True)
        if t.state == "done"
    ]
    points += _on_the_way(study, finished, known)
    front = best([p for p in points if p.feasible] or points, objectives)
    aim = aim_of(study.problem, baselines, points)
    chosen = recommend(front, aim)
    if alone and aim.measure and chosen.point is not None:
        chosen = dataclasses.replace(chosen, why=f"{chosen.why} {UNHELD}")
    return View(
        study,
        tuple(points),
        tuple(front),
        tuple(t for t in finished if t.state == "failed"),
        tuple(hypervolumes(known, asked)),
        chosen.point,
        chosen.why,
        sum(t.runs for t in finished),
        chosen.knee,
        baselines,
    )


def view_of(study: Study, store: Store) -> View:
    """Look at the trials of a study's store, with the largest budget that it was run with.

    An adaptive search on private data pays for that one.
    """
    largest = max(study.budget, store.budget())
    trials = store.trials()
    check_alike(store.path, study.problem.space, trials)
    seen = view(dataclasses.replace(study, budget=largest), trials, held(store))
    return dataclasses.replace(seen, audits=tuple(last_of(store.audits())))


def _on_the_way(study: Study, finished: Sequence[Trial], known: History) -> list[Point]:
    """Return what runs showed on the way that nothing beats, as points of runs that end there.

    What has less of a limited measure is not beaten: it may be wanted under a lower limit.
    """
    asked = judges(study.problem)
    holds = feasible(asked, known.free_judged)
    rows = np.vstack([known.judged[~known.failed], known.free_judged[holds]])
    kept = np.flatnonzero(holds)[nondominated(rows)[len(rows) - int(holds.sum()) :]]
    if not len(kept):
        return []
    settings = study.problem.space.decode(known.free_x[kept])
    names = [n for n in finished[0].measures if n not in {o.measure for o in asked}]
    also: Mapping[str, FloatArray] = {}
    if isinstance(study.problem, Knows):
        with contextlib.suppress(DataError):  # of an older database, without what it needs of them
            also = study.problem.known(settings, names)
    out = []
    for j, i in enumerate(kept):
        measures = {name: float(column[j]) for name, column in also.items()}
        row = known.free_judged[i]
        measures |= {o.measure: float(v) for o, v in zip(asked, row, strict=True)}
        ended = dataclasses.replace(
            finished[known.free_of[i]],
            settings={name: column[j] for name, column in settings.items()},
            spread={},
            measures=measures,
        )
        out.append(_point(ended, asked, row, True))
    return out


def _point(trial: Trial, asked: Sequence[Judge], row: FloatArray, holds: bool) -> Point:
    values = list(zip(asked, row, strict=True))
    return Point(
        trial.number,
        trial.settings,
        {o.name: float(v) for o, v in values if isinstance(o, Objective)},
        trial.measures,
        trial.spread,
        bool(holds),
        trial.runs,
        {o.name: float(v) for o, v in values if isinstance(o, Limit)},
    )


def by_budget(seen: View) -> list[tuple[float, list[Point]]]:
    """Return the front of the first two objectives within each of three budgets of the third."""
    third = seen.objectives[2].name
    values = sorted(p.objectives[third] for p in seen.front)
    budgets = sorted(
        {values[max(0, round(share * len(values)) - 1)] for share in (1 / 3, 2 / 3, 1.0)}
    )
    return [
        (b, best([p for p in seen.front if p.objectives[third] <= b], seen.objectives[:2]))
        for b in budgets
    ]


def split_table(seen: View) -> NDArray[np.int64] | None:
    """Return how many examples of each class each client holds in the first repeat, [K,C].

    None where the problem deals no data, or these are private or cannot be read.
    """
    problem = seen.study.problem
    if not isinstance(problem, Deals) or is_private(problem):
        return None
    try:
        found = problem.split_table(derive(seen.study.seed, "repeat", 0))
    except DataError:
        return None
    return found if len(found) else None

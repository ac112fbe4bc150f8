"""A study's rows as plain data: the front, the recommended point, the hypervolume's growth."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DataError, SettingError, did_you_mean
from fedpareto.front import hypervolume, knee, nondominated, share_of_box
from fedpareto.history import History
from fedpareto.noise import derive
from fedpareto.privacy import rounded_up
from fedpareto.problem import Knows, Objective, feasible, is_private, reference
from fedpareto.space import FloatArray
from fedpareto.store import Store
from fedpareto.study import Study
from fedpareto.trials import Trial, known_of
from fedpareto.words import notebook_table, short, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

MOST_VOLUMES = 2000  # hypervolumes that are computed for a curve


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

    def split_table(self, seed: int) -> NDArray[np.int64]:
        """Return how many training examples of each class each client holds in a repeat, [K,C]."""


@dataclass(frozen=True, repr=False)
class Point:
    """A trial that was measured."""

    trial: int
    settings: dict[str, Any]
    objectives: dict[str, float]
    measures: dict[str, float]
    spread: dict[str, float]
    feasible: bool
    runs: int = 1  # trainings that it is the mean of

    def __repr__(self) -> str:
        parts = (
            ", ".join(f"{visible(k)} {short(v)}" for k, v in of.items())
            for of in (self.objectives, self.settings)
        )
        return f"Point(trial {self.trial}: {' at '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return objectives, settings and measures, as a notebook shows them."""
        tables = (self.objectives, self.settings, self.measures)
        rows = [(k, short(v)) for of in tables for k, v in of.items()]
        return notebook_table(f"trial {self.trial}", rows)


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

    def __repr__(self) -> str:
        star = "none" if self.recommended is None else f"trial {self.recommended.trial}"
        return (
            f"View({visible(self.study.name)}: {self.evaluations} trials, {len(self.front)} on the "
            f"front, hypervolume {self.hypervolume:.4g}, recommended {star})"
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
    def reference(self) -> dict[str, float]:
        return {o.name: o.reference for o in self.objectives}


def view(study: Study, trials: Sequence[Trial]) -> View:
    """Look at a study's trials."""
    finished = [
        t if t.runs else dataclasses.replace(t, runs=study.repeats)
        for t in trials
        if t.state != "pending"
    ]
    objectives = study.problem.objectives
    known = known_of(study.problem, finished)
    holds = feasible(objectives, known.y)
    points = [
        _point(t, objectives, row, ok)
        for t, row, ok in zip(finished, known.y, holds, strict=True)
        if t.state == "done"
    ]
    points += _on_the_way(study, finished, known)
    front = best([p for p in points if p.feasible] or points, objectives)
    chosen, why = recommend(front, objectives)
    return View(
        study,
        tuple(points),
        tuple(front),
        tuple(t for t in finished if t.state == "failed"),
        tuple(hypervolumes(known, objectives)),
        chosen,
        why,
        sum(t.runs for t in finished),
    )


def view_of(study: Study, store: Store) -> View:
    """Look at the trials of a study's store, with the largest budget that it was run with.

    An adaptive search on private data pays for that one.
    """
    largest = max(study.budget, store.budget())
    return view(dataclasses.replace(study, budget=largest), store.trials())


def _on_the_way(study: Study, finished: Sequence[Trial], known: History) -> list[Point]:
    """Return what runs showed on the way that nothing beats, as points of runs that end there."""
    objectives = study.problem.objectives
    holds = feasible(objectives, known.free_y)
    rows = np.vstack([known.y[~known.failed], known.free_y[holds]])
    kept = np.flatnonzero(holds)[nondominated(rows)[len(rows) - int(holds.sum()) :]]
    if not len(kept):
        return []
    settings = study.problem.space.decode(known.free_x[kept])
    names = [n for n in finished[0].measures if n not in {o.measure for o in objectives}]
    also: Mapping[str, FloatArray] = {}
    if isinstance(study.problem, Knows):
        also = study.problem.known(settings, names)
    out = []
    for j, i in enumerate(kept):
        measures = {name: float(column[j]) for name, column in also.items()}
        measures |= {o.measure: float(v) for o, v in zip(objectives, known.free_y[i], strict=True)}
        ended = dataclasses.replace(
            finished[known.free_of[i]],
            settings={name: column[j] for name, column in settings.items()},
            spread={},
            measures=measures,
        )
        out.append(_point(ended, objectives, known.free_y[i], True))
    return out


def hypervolumes(known: History, objectives: Sequence[Objective]) -> list[float]:
    """Return the hypervolume after each row, of all so far that holds every limit.

    What runs showed on the way counts too.
    """
    rows = [row[None] for row in known.y]
    if len(known.free_of):
        ways = [known.free_y[known.free_of == i] for i in range(len(known))]
        rows = [np.vstack([row, way]) for row, way in zip(rows, ways, strict=True)]
    return growth(rows, objectives, reference(objectives))


def growth(
    rows: Sequence[FloatArray], objectives: Sequence[Objective], corner: FloatArray
) -> list[float]:
    """Return the hypervolume up to a corner [m] after each of some sets of rows [·,m].

    Only rows that hold every limit count.
    """
    front = np.empty((0, len(corner)))
    curve = []
    volume = 0.0
    # Of many trials, the volume is computed after every few, and at the end.
    pace = max(1, len(rows) // MOST_VOLUMES)
    for i, new in enumerate(rows, 1):
        new = new[feasible(objectives, new)]
        beaten = np.all(front[None] <= new[:, None], axis=2)  # [new, front]
        fresh = new[~np.any(beaten, axis=1)]
        if len(fresh):
            both = np.vstack([front, fresh])
            front = both[nondominated(both)]
        if (len(fresh) and pace == 1) or (pace > 1 and (i % pace == 0 or i == len(rows))):
            volume = hypervolume(front, corner)
        curve.append(volume)
    return curve


def _point(trial: Trial, objectives: Sequence[Objective], row: FloatArray, holds: bool) -> Point:
    values = {o.name: float(v) for o, v in zip(objectives, row, strict=True)}
    return Point(
        trial.number, trial.settings, values, trial.measures, trial.spread, bool(holds), trial.runs
    )


def _matrix(points: Sequence[Point], objectives: Sequence[Objective]) -> FloatArray:
    return np.array([[p.objectives[o.name] for o in objectives] for p in points]).reshape(
        len(points), len(objectives)
    )


def best(points: Sequence[Point], objectives: Sequence[Objective]) -> list[Point]:
    """Return the non-dominated points, one of equals, in the order of the first objective."""
    y = _matrix(points, objectives)
    front = {
        tuple(row): p
        for row, p, kept in reversed(list(zip(y, points, nondominated(y), strict=True)))
        if kept
    }
    return [front[row] for row in sorted(front)]


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


def recommend(front: Sequence[Point], objectives: Sequence[Objective]) -> tuple[Point | None, str]:
    """Return the knee of a front and why: what its neighbours would gain and cost."""
    if not front:
        return None, "No trial was measured."
    if not front[0].feasible:
        return (
            None,
            "No trial holds every limit: loosen a limit, widen a range or raise the budget.",
        )
    if len(front) == 1:
        return (
            front[0],
            "The only point on the front: no other is as good in any objective without being worse "
            "in another.",
        )
    i = knee(_matrix(front, objectives), reference(objectives))
    text = (
        "The knee: nearest to the best of every objective at once, each in units of the way from "
        "its best to its reference."
    )
    steps = [_step(front[i], front[j], objectives) for j in (i - 1, i + 1) if 0 <= j < len(front)]
    return front[i], " ".join([text, *steps])


def _step(here: Point, there: Point, objectives: Sequence[Objective]) -> str:
    """Say what a move from one point of the front to another gains and costs."""
    change = {o.name: there.objectives[o.name] - here.objectives[o.name] for o in objectives}
    gains = [f"{-d:.3g} less {name}" for name, d in change.items() if d < 0]
    costs = [f"{d:.3g} more {name}" for name, d in change.items() if d > 0]
    return f"From here to trial {there.trial}: {' and '.join(gains)} for {' and '.join(costs)}."


def pick(seen: View, limits: Mapping[str, float], prefer: str | None = None) -> tuple[Point, str]:
    """Return the best point that holds these limits and the study's own, and why.

    Best is the least of the preferred objective, the others breaking ties; without a preference,
    the knee of what is left.
    """
    names = [o.name for o in seen.objectives]
    for name in [*limits, *([prefer] if prefer else [])]:
        if name not in names:
            raise SettingError(
                f"{name}: must be an objective of the study. {did_you_mean(name, names)}"
            )
    for name, limit in limits.items():
        if math.isnan(limit):
            raise SettingError(f"{name}: a limit must be a number, found {limit}.")
    left = [
        p
        for p in seen.points
        if p.feasible and all(p.objectives[n] <= limit for n, limit in limits.items())
    ]
    asked = (
        " and ".join(f"{name} ≤ {limit:g}" for name, limit in limits.items())
        or "the study's own limits"
    )
    if not left:
        raise SettingError(
            f"pick: some trial must hold {asked}, found none among {len(seen.points)}. "
            f"The least found: {_least(seen)}. Loosen a limit or raise the budget."
        )
    front = best(left, seen.objectives)
    if prefer:
        order = [prefer, *(n for n in names if n != prefer)]
        return min(
            front, key=lambda p: [p.objectives[n] for n in order]
        ), f"The least {prefer} under {asked}."
    chosen, why = recommend(front, seen.objectives)
    assert chosen is not None
    return chosen, f"Under {asked}: {why[0].lower()}{why[1:]}"


def _least(seen: View) -> str:
    if not seen.points:
        return "nothing was measured"
    least = [(o, min(p.objectives[o.name] for p in seen.points)) for o in seen.objectives]
    return ", ".join(
        f"{o.name} {rounded_up(v) if o.measure.startswith('epsilon') else f'{v:.4g}'}"
        for o, v in least
    )


def split_table(seen: View) -> NDArray[np.int64] | None:
    """Return how many examples of each class each client holds in the first repeat, [K,C].

    None where the problem deals no data, or these are private or cannot be read.
    """
    problem = seen.study.problem
    if not isinstance(problem, Deals) or is_private(problem):
        return None
    try:
        return problem.split_table(derive(seen.study.seed, "repeat", 0))
    except DataError:
        return None

"""Which point is recommended, and why: within limits, and surely better than a constant answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.baselines import TRIVIAL, UNPROTECTED
from fedpareto.errors import SettingError, did_you_mean
from fedpareto.front import knee, nondominated
from fedpareto.history import SURE, pooled
from fedpareto.privacy import rounded_up
from fedpareto.problem import HasBaselines, Judge, Limit, Objective, Problem, limits_of, reference
from fedpareto.space import FloatArray
from fedpareto.store import Store
from fedpareto.trials import Baseline, deviation, mean
from fedpareto.words import notebook_table, short, visible

if TYPE_CHECKING:
    from fedpareto.report.points import View

KNEE = "knee"
KNEE_IS = (
    "nearest to the best of every objective at once, each in units of the way from its best to its "
    "reference"
)


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
    limited: dict[str, float] = field(default_factory=dict)  # of each limit beside the objectives

    @property
    def judged(self) -> dict[str, float]:
        """All that it is judged by: objectives, then limited measures."""
        return self.objectives | self.limited

    def __repr__(self) -> str:
        parts = (
            ", ".join(f"{visible(k)} {short(v)}" for k, v in of.items())
            for of in (self.judged, self.settings)
        )
        return f"Point(trial {self.trial}: {' at '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return objectives, settings and measures, as a notebook shows them."""
        tables = (self.judged, self.settings, self.measures)
        rows = [(k, short(v)) for of in tables for k, v in of.items()]
        return notebook_table(f"trial {self.trial}", rows)


@dataclass(frozen=True)
class Held:
    """A baseline over its repeats."""

    measures: dict[str, float] = field(default_factory=dict)  # means
    spread: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Baselines:
    """What trials are held against; None for what was not measured."""

    trivial: Held | None = None
    unprotected: Held | None = None


def held(store: Store) -> Baselines:
    """Return the baselines that a store keeps."""
    return Baselines(_held(store.baselines(TRIVIAL)), _held(store.baselines(UNPROTECTED)))


def _held(repeats: Sequence[Baseline]) -> Held | None:
    """Return the mean of a baseline over its repeats; None without any."""
    if not repeats:
        return None
    error = next((b.error for b in repeats if b.error), None)
    shared = [n for n in repeats[0].measures if all(n in b.measures for b in repeats)]
    columns = {n: [b.measures[n] for b in repeats] for n in shared}
    means = {n: mean(c) for n, c in columns.items()}
    spread = {n: deviation(c, means[n]) for n, c in columns.items()}
    return Held(means, spread, repeats[0].settings, error)


@dataclass(frozen=True)
class Aim:
    """What a choice goes by."""

    objectives: tuple[Objective, ...]
    loss: str | None = None  # the objective that is neither privacy nor cost
    measure: str = ""  # of the loss, which baselines have too
    trivial: float = math.nan  # that of the best constant answer
    noise: float = 0.0  # standard deviation of one training's loss
    beside: tuple[Limit, ...] = ()  # limits that are no objectives

    def limits(self, asked: Mapping[str, float]) -> dict[str, float]:
        """Return the limits on anything but the loss: the study's, and tighter ones asked for."""
        judges: tuple[Judge, ...] = (*self.objectives, *self.beside)
        own = {o.name: o.limit for o in judges if o.limit is not None}
        both = own | {n: min(v, own.get(n, math.inf)) for n, v in asked.items()}
        return {name: limit for name, limit in both.items() if name != self.loss}

    def value(self, point: Point) -> float:
        """Return how good a point's models are; nan where that is not known."""
        measures = {o.measure: point.objectives[o.name] for o in self.objectives}
        return measures.get(self.measure, point.measures.get(self.measure, math.nan))

    def useful(self, point: Point) -> bool:
        """Say whether a point surely beats the best constant answer, as far as both are known.

        A lead that luck may give, of the best of many that learned nothing, is none.
        """
        lead = self.trivial - self.value(point)
        return self.loss is None or not lead <= self.luck(point)

    def luck(self, point: Point) -> float:
        """Return by how much a point may look better than it is."""
        return SURE * self.noise / math.sqrt(point.runs)


def called(measure: str) -> str:
    """Return the name of a measure, without the module that one of the user's own comes from."""
    return measure.rpartition(":")[2]


def aim_of(problem: Problem, baselines: Baselines, points: Sequence[Point] = ()) -> Aim:
    """Return what choices of a study go by, with the noise that repeats of these points show."""
    if not isinstance(problem, HasBaselines) or problem.loss is None:
        return Aim(problem.objectives, beside=limits_of(problem))
    measure = problem.loss_measure
    trivial = baselines.trivial.measures.get(measure, math.nan) if baselines.trivial else math.nan
    return Aim(
        problem.objectives,
        problem.loss.name,
        measure,
        trivial,
        noise=_noise(points, measure),
        beside=limits_of(problem),
    )


def _noise(points: Sequence[Point], measure: str) -> float:
    """Return the standard deviation of one training, pooled; 0 where nothing was repeated."""
    repeated = [p for p in points if p.runs > 1 and measure in p.spread]
    if not repeated:
        return 0.0
    spread = np.array([[p.spread[measure]] for p in repeated])
    return float(pooled(spread, np.array([p.runs for p in repeated]))[0])


@dataclass(frozen=True)
class Chosen:
    """A choice, why it was made, and the knee beside it."""

    point: Point | None
    why: str
    knee: Point | None = None


def best(points: Sequence[Point], objectives: Sequence[Objective]) -> list[Point]:
    """Return the non-dominated points, one of equals, in the order of the first objective."""
    y = _matrix(points, objectives)
    front = {
        tuple(row): p
        for row, p, kept in reversed(list(zip(y, points, nondominated(y), strict=True)))
        if kept
    }
    return [front[row] for row in sorted(front)]


def _matrix(points: Sequence[Point], objectives: Sequence[Objective]) -> FloatArray:
    return np.array([[p.objectives[o.name] for o in objectives] for p in points]).reshape(
        len(points), len(objectives)
    )


def recommend(front: Sequence[Point], aim: Aim, asked: Mapping[str, float] | None = None) -> Chosen:
    """Return what to take of a front, and why.

    Within limits, the study's or those asked for, it is the point of least loss, with the knee
    beside it; without any limit it is the knee. A point that does not beat the best constant
    answer is never taken.
    """
    if not front:
        return Chosen(None, "No trial was measured.")
    if not front[0].feasible:
        why = "No trial holds every limit: loosen a limit, widen a range or raise the budget."
        return Chosen(None, why)
    left = [p for p in front if aim.useful(p)]
    if not left:
        return Chosen(None, no_use(front, aim))
    if len(left) == 1:
        return Chosen(left[0], _alone(front, aim), left[0])
    i = knee(_matrix(left, aim.objectives), reference(aim.objectives))
    limits = aim.limits(asked or {})
    if aim.loss is None or not limits:
        return Chosen(left[i], _knee_why(left, i, aim.objectives), left[i])
    least = least_of(left, aim.loss, aim.objectives)
    return Chosen(least, _least_why(least, left[i], aim, under(limits)), left[i])


def _alone(front: Sequence[Point], aim: Aim) -> str:
    """Say why there is one point to take."""
    if len(front) == 1:
        return (
            "The only point on the front: no other is as good in any objective without being worse "
            "in another."
        )
    return (
        f"The only point on the front that beats always giving the same answer, which has "
        f"{aim.measure} {aim.trivial:.4g}."
    )


def under(limits: Mapping[str, float]) -> str:
    """Return limits as words."""
    return " and ".join(f"{name} ≤ {limit:g}" for name, limit in limits.items())


def least_of(points: Sequence[Point], name: str, objectives: Sequence[Objective]) -> Point:
    """Return the point with the least of an objective, the others breaking ties in their order."""
    order = [name, *(o.name for o in objectives if o.name != name)]
    return min(points, key=lambda p: [p.objectives[n] for n in order])


def no_use(front: Sequence[Point], aim: Aim) -> str:
    """Say that nothing on a front beats the best constant answer, and what would help."""
    least = min(front, key=aim.value)
    return (
        "No point within the limits is worth recommending. "
        f"{_no_better(aim, least, 'the best')} {_what_helps(front, aim)}"
    )


def _what_helps(front: Sequence[Point], aim: Aim) -> str:
    """Say what may make models better."""
    limits = aim.limits({})
    near = [name for name, most in limits.items() if max(p.judged[name] for p in front) > most / 2]
    loosen = f"Loosen the limit on {' or '.join(near)}, take" if near else "Take"
    return f"{loosen} more clients or rounds, or widen the ranges of noise and learning rate."


def _no_better(aim: Aim, point: Point, which: str = "this point") -> str:
    """Say that a point does not surely beat the best constant answer."""
    value = aim.value(point)
    answer = f"Always giving the same answer has {called(aim.measure)} {aim.trivial:.4g}"
    found = f"{answer}, and {which} has {value:.4g}"
    if value >= aim.trivial:
        return f"{found}: such a model is of no use."
    return (
        f"{found}, which luck may give: trainings of the same settings differ by {aim.noise:.2g}. "
        "Such a model is not known to be of use."
    )


def _knee_why(left: Sequence[Point], i: int, objectives: Sequence[Objective]) -> str:
    """Say that a point is the knee, and what its neighbours would gain and cost."""
    near = [left[j] for j in (i - 1, i + 1) if 0 <= j < len(left)]
    return " ".join([f"The knee: {KNEE_IS}.", *(_step(left[i], p, objectives) for p in near)])


def _least_why(least: Point, middle: Point, aim: Aim, within: str) -> str:
    """Say that a point has the least loss within limits, and what the knee would gain and cost."""
    text = f"The least {aim.loss} within {within}."
    if least is middle:
        return f"{text} It is the knee too: {KNEE_IS}."
    step = _step(least, middle, aim.objectives)
    return f"{text} Beside it stands the knee, {KNEE_IS}. {step}"


def _step(here: Point, there: Point, objectives: Sequence[Objective]) -> str:
    """Say what a move from one point of the front to another gains and costs."""
    change = {o.name: there.objectives[o.name] - here.objectives[o.name] for o in objectives}
    gains = [f"{-d:.3g} less {name}" for name, d in change.items() if d < 0]
    costs = [f"{d:.3g} more {name}" for name, d in change.items() if d > 0]
    return f"From here to trial {there.trial}: {' and '.join(gains)} for {' and '.join(costs)}."


def pick(seen: View, limits: Mapping[str, float], prefer: str | None = None) -> tuple[Point, str]:
    """Return the best point that holds these limits and the study's own, and why.

    Best is the least of the preferred objective, the others breaking ties; or "knee". Without a
    preference it is the least loss, where a limit is stated, or else the knee.
    """
    aim = aim_of(seen.study.problem, seen.baselines, seen.points)
    names = [o.name for o in seen.objectives]
    limited = [judge.name for judge in seen.judges]
    if prefer and prefer != KNEE and prefer not in names:
        raise SettingError(
            f"{prefer}: must be an objective of the study. {did_you_mean(prefer, names)}"
        )
    for name in limits:
        if name not in limited:
            raise SettingError(
                f"{name}: must be an objective or a limit of the study. "
                f"{did_you_mean(name, limited)}"
            )
    for name, limit in limits.items():
        if math.isnan(limit):
            raise SettingError(f"{name}: a limit must be a number, found {limit}.")
    left = [
        p
        for p in seen.points
        if p.feasible and all(p.judged[n] <= limit for n, limit in limits.items())
    ]
    own = "the study's own limits"
    limited_by_study = any(judge.limit is not None for judge in seen.judges)
    within = under(limits) or (own if limited_by_study else "")
    if not left:
        raise SettingError(
            f"pick: some trial must hold {within or own}, found none among {len(seen.points)}. "
            f"{_least(seen)} Loosen a limit or raise the budget."
        )
    front = best(left, seen.objectives)
    useful = any(aim.useful(p) for p in front)
    goal = aim if useful else replace(aim, trivial=math.nan)
    point, why = _picked(front, goal, limits, within, prefer)
    return point, why if useful else f"{why} {_no_better(aim, point)}"


def _picked(
    front: Sequence[Point], aim: Aim, limits: Mapping[str, float], within: str, prefer: str | None
) -> tuple[Point, str]:
    """Return the point of a front that was asked for, and why."""
    goals = aim.objectives
    if prefer is not None and prefer in {o.name for o in goals}:
        useful = [p for p in front if aim.useful(p)]
        under_which = f" under {within}" if within else ""
        return least_of(useful, prefer, goals), f"The least {prefer}{under_which}."
    if prefer == KNEE:
        front, aim = [p for p in front if aim.useful(p)], replace(aim, loss=None)
    chosen = recommend(front, aim, limits)
    assert chosen.point is not None
    if chosen.why.startswith("The least"):  # which names the limits
        return chosen.point, chosen.why
    return chosen.point, f"Under {within}: {_lower(chosen.why)}" if within else chosen.why


def _lower(text: str) -> str:
    return f"{text[0].lower()}{text[1:]}"


def _least(seen: View) -> str:
    """Say the least of each objective and limited measure, of different trials."""
    if not seen.points:
        return "Nothing was measured."
    least = [(o, min(p.judged[o.name] for p in seen.points)) for o in seen.judges]
    found = ", ".join(
        f"{o.name} {rounded_up(v) if o.measure.startswith('epsilon') else f'{v:.4g}'}"
        for o, v in least
    )
    return f"The least of each by itself, in trials of their own: {found}."

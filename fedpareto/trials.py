"""Trials: settings tried and what was measured of them, as rows and as a history."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import DamagedStore
from fedpareto.history import History
from fedpareto.problem import Problem, free_variable, limits_of
from fedpareto.settings import least
from fedpareto.space import FloatArray, Space


@dataclass(frozen=True)
class Trial:
    """One setting tried."""

    number: int
    batch: int
    point: tuple[float, ...]
    settings: dict[str, Any]
    state: str = "pending"  # or done, failed
    measures: dict[str, float] = field(default_factory=dict)  # mean over repeats
    spread: dict[str, float] = field(default_factory=dict)  # standard deviation over repeats
    error: str | None = None
    repeats_left: tuple[int, ...] = ()
    curves: dict[str, list[float]] = field(default_factory=dict)  # measure → after 1, 2, … rounds
    runs: int = 0  # trainings so far; of a finished trial, those that the means are of


HERE = "this process"
MOST_REPEATS = 10_000  # of a trial
MOST_TRIALS = 10_000_000  # of a study


@dataclass(frozen=True)
class Ran:
    """Where a training ran, on what, and for how long; no row of a trial depends on it."""

    where: str
    device: str
    seconds: float


@dataclass(frozen=True)
class Result:
    """What one training of a trial gave: measures, or the reason why not."""

    trial: int
    repeat: int
    measures: dict[str, float]
    error: str | None = None
    curves: dict[str, list[float]] = field(default_factory=dict)
    ran: Ran | None = None


@dataclass(frozen=True)
class Baseline:
    """One repeat of what trials are held against: no trial itself."""

    settings: dict[str, Any]
    measures: dict[str, float]
    error: str | None = None


def known_of(problem: Problem, trials: Sequence[Trial]) -> History:
    """Return what finished trials, and their runs on the way, tell of objectives and limits."""
    done = [t for t in trials if t.state != "pending"]
    measures = [o.measure for o in problem.objectives]
    limited = [limit.measure for limit in limits_of(problem)]
    return history_of(done, measures, problem.space, free_variable(problem), limited)


def unlike(space: Space, point: Sequence[float], settings: Mapping[str, Any]) -> str:
    """Return what keeps a row from being a point of a space, after its column; nothing if none."""
    if len(point) != len(space):
        return f"column point: must have {len(space)} numbers, found {len(point)}"
    lacking = [name for name in space.names if name not in settings]
    if lacking:
        return f"column settings: must have {', '.join(space.names)}, found no {lacking[0]}"
    return ""


def check_alike(path: Path, space: Space, trials: Sequence[Trial]) -> None:
    """Refuse trials of a database that are no points of the study's space."""
    for trial in trials:
        wrong = unlike(space, trial.point, trial.settings)
        if wrong:
            raise DamagedStore(path, f"table trials, row {trial.number}, {wrong}")


def history_of(
    trials: Sequence[Trial],
    measures: Sequence[str],
    space: Space | None = None,
    free: str | None = None,
    limited: Sequence[str] = (),
) -> History:
    """Return finished trials as a history; one that failed has nan for objectives.

    measures are the objectives', limited those under a limit beside them.

    With a space and the variable in it along which a run tells shorter ones, the history also holds
    what runs showed on the way.
    """
    n = len(trials)
    m = len(measures)
    judged = [*measures, *limited]
    d = len(trials[0].point) if trials else len(space or ())
    means = [_values(t.measures, judged, t.state == "done") for t in trials]
    spreads = [_values(t.spread, judged, t.state == "done" and t.runs > 1) for t in trials]
    y, beside = np.split(np.array(means, dtype=np.float64).reshape(n, len(judged)), [m], axis=1)
    history = History(
        np.array([t.point for t in trials], dtype=np.float64).reshape(n, d),
        y,
        np.array([t.batch for t in trials], dtype=np.int64),
        runs=np.array([max(1, t.runs) for t in trials], dtype=np.int64),
        spread=np.array(spreads, dtype=np.float64).reshape(n, len(judged)),
        limited=beside,
    )
    if space is None or free is None:
        return history
    free_x, shown, free_of = _on_the_way(trials, judged, space, free)
    y, beside = np.split(shown, [m], axis=1)
    return replace(history, free_x=free_x, free_y=y, free_of=free_of, free_limited=beside)


def _values(held: Mapping[str, float], names: Sequence[str], valid: bool) -> list[float]:
    """Return the named values; nan for one that is missing, and for all that do not count."""
    return [held.get(name, math.nan) if valid else math.nan for name in names]


def _on_the_way(
    trials: Sequence[Trial], measures: Sequence[str], space: Space, free: str
) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    """Return what runs showed before their end: points [e,d], measures [e,m], trials [e]."""
    place = space.names.index(free)
    variable = space.variables[place]
    points = []
    values = []
    of = []
    for i, trial in enumerate(trials):
        for value, shown in along(trial, measures, free, int(least(variable))):
            point = list(trial.point)
            point[place] = variable.encode(value)
            points.append(point)
            values.append(shown)
            of.append(i)
    return (
        np.array(points, dtype=np.float64).reshape(-1, len(space)),
        np.array(values, dtype=np.float64).reshape(-1, len(measures)),
        np.array(of, dtype=np.int64),
    )


def along(
    trial: Trial, measures: Sequence[str], free: str, first: int
) -> Iterator[tuple[int, list[float]]]:
    """Yield each length, from the first, that a run passed on its way, and its measures there."""
    if trial.state != "done" or any(m not in trial.curves for m in measures):
        return
    shown_for = min(len(trial.curves[m]) for m in measures)  # less, of a row changed by hand
    for value in range(first, min(int(trial.settings[free]), shown_for + 1)):
        shown = [trial.curves[m][value - 1] for m in measures]
        if all(map(math.isfinite, shown)):
            yield value, shown


def read_curves(text: str | None) -> dict[str, list[float]]:
    """Return curves as JSON holds them."""
    return {
        name: [math.nan if v is None else v for v in values]
        for name, values in json.loads(text or "{}").items()
    }


def write_curves(curves: Mapping[str, Sequence[float]]) -> str | None:
    """Return curves as JSON, None for none."""
    rows = {
        name: [float(v) if math.isfinite(v) else None for v in values]
        for name, values in curves.items()
    }
    return json.dumps(rows) if rows else None


def mean_curves(repeats: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """Return the mean over repeats after every round."""
    names = [name for name in repeats[0] if all(name in r for r in repeats)]
    return {
        name: [mean(values) for values in zip(*(r[name] for r in repeats), strict=False)]
        for name in names
    }


def mean(values: Sequence[float]) -> float:
    """Return the mean, without overflow on the way."""
    return math.fsum(v / len(values) for v in values)


def deviation(values: Sequence[float], middle: float) -> float:
    """Return the sample standard deviation, 0 for a single value."""
    return math.hypot(*((v - middle) / math.sqrt(max(1, len(values) - 1)) for v in values))


def printable(text: str) -> str:
    """Return text that can be stored and printed anywhere: what cannot is written as in Python."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)

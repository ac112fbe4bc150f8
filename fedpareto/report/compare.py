"""Compare studies: hypervolumes up to one reference point, their spread over seeds, and fronts."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import SettingError, StoreError, shown
from fedpareto.federation import MEASURES
from fedpareto.front import nondominated
from fedpareto.privacy import VIEWS
from fedpareto.problem import Judge, Limit, Objective, feasible
from fedpareto.report.volumes import growth
from fedpareto.space import FloatArray
from fedpareto.store import Audit, Store, last_of
from fedpareto.trials import Trial, along


@dataclass(frozen=True)
class Found:
    """A point within the limits: a trial at its end, or after some of its rounds."""

    values: tuple[float, ...]  # [m]
    seed: int
    trial: Trial
    settings: dict[str, Any]


# Constants that the scale of a proxy depends on beside the mechanism: the beginning of a measure's
# name → the mechanism's settings, each with the value of a study that does not name it.
SCALED_BY: dict[str, dict[str, object]] = {
    "gu24_eq2": {"leakage_c": 1.0},
    "kang23_eq13_smooth": {},
    "kang23_eq13": {"leakage_c1": 1.0},
    "kang23_eq15": {"c2": 8.0, "leakage_rounds": 1, "withheld": "l2"},
    "xiao25_eq7": {"noise_on": "sum"},
}


@dataclass(frozen=True)
class Group:
    """One study, run with one seed or several."""

    label: str
    seeds: tuple[int, ...]
    # [seeds, evaluations] hypervolume after each trial, as far as every seed has come
    curves: FloatArray
    # the whole study file except name, budget and seed
    identity: dict[str, Any] = field(repr=False)
    objectives: tuple[Objective, ...] = field(repr=False)
    y: FloatArray = field(repr=False)  # [n,m] points of all seeds together, within the limits
    of: NDArray[np.int64] = field(repr=False)  # [n], index into trials
    rounds: NDArray[np.int64] = field(repr=False)  # [n], after how many rounds; 0 for the end
    trials: tuple[tuple[int, Trial], ...] = field(repr=False)  # seed and trial
    # the last of each attack on each point, with the seed of the study
    audits: tuple[tuple[int, Audit], ...] = field(default=(), repr=False)

    @property
    def last(self) -> tuple[float, float]:
        """Return the mean and spread over seeds of the hypervolume at the end."""
        return float(self.curves[:, -1].mean()), self.spread(-1)

    def spread(self, at: int) -> float:
        """Return the spread over seeds of the hypervolume after a trial; 0 for one seed."""
        if len(self.seeds) == 1:
            return 0.0
        return float(self.curves[:, at].std(ddof=1))

    @cached_property
    def kept(self) -> NDArray[np.int64]:
        """Return which rows of y are on the front, in the order of the first objective.

        Of equals it is one: the end of a trial before what it showed on the way.
        """
        kept = np.flatnonzero(nondominated(self.y))
        if not len(kept):
            return np.asarray(kept)
        kept = kept[np.argsort(self.rounds[kept] > 0, kind="stable")]
        return np.asarray(kept[np.unique(self.y[kept], axis=0, return_index=True)[1]])

    @property
    def front(self) -> FloatArray:
        """Return the front of all seeds together, [n,m]."""
        return np.asarray(self.y[self.kept])

    def found(self, row: int) -> Found:
        """Return a row of y with the trial that it comes from."""
        seed, trial = self.trials[self.of[row]]
        settings = trial.settings
        if self.rounds[row]:
            settings = settings | {"rounds": int(self.rounds[row])}
        return Found(tuple(map(float, self.y[row])), seed, trial, settings)

    def epsilons(self, view: str) -> FloatArray:
        """Return the true ε of each row of y for a view.

        A row after some of a trial's rounds has the ε of the whole trial, which is no less.
        """
        return self._stated[view]

    @cached_property
    def _stated(self) -> dict[str, FloatArray]:
        out = {}
        for view in VIEWS:
            name = f"epsilon_{view}"
            values = [trial.measures.get(name, math.nan) for _, trial in self.trials]
            out[view] = np.array(values, dtype=np.float64)[self.of]
        return out

    @property
    def mechanism(self) -> str:
        """Return the name of the mechanism, or the names of a chain."""
        table = self.identity.get("mechanism", {})
        if "links" in table:
            return " + ".join(str(link["name"]) for link in table["links"])
        return str(table.get("name", "none"))

    def scale(self, j: int) -> tuple[str, ...]:
        """Return what the scale of objective j, a proxy, depends on: mechanism and constants."""
        measure = self.objectives[j].measure
        table = self.identity.get("mechanism", {})
        held = {name: v for link in table.get("links", [table]) for name, v in link.items()}
        family = next((name for name in SCALED_BY if measure.startswith(name)), "")
        constants = SCALED_BY.get(family, {})
        terms = [f"{name} = {held.get(name, usual)}" for name, usual in constants.items()]
        return (self.mechanism, measure, *terms)


@dataclass(frozen=True)
class Comparison:
    """Studies with the same objectives, measured up to one reference point."""

    objectives: tuple[Objective, ...]
    reference: dict[str, float]
    groups: tuple[Group, ...]

    @property
    def mechanisms(self) -> list[str]:
        """Return the names of all mechanisms, each once."""
        return sorted({g.mechanism for g in self.groups})


def compare(
    paths: Sequence[str | Path], reference: Mapping[str, float] | None = None
) -> Comparison:
    """Compare several studies, given as study files with a database beside each, or as databases.

    Databases that differ in nothing but the seed are one study. Unless given, each coordinate of
    the reference point is the largest of the studies' own.
    """
    seen = [_read(Path(p)) for p in paths]
    if not seen:
        raise SettingError("compare: must be given at least one study, found none.")
    objectives = _common(seen)
    names = [o.name for o in objectives]
    corner = {
        name: max(one.objectives[j].reference for one in seen) for j, name in enumerate(names)
    }
    for name, value in (reference or {}).items():
        if name not in names:
            raise SettingError(
                f"compare: a reference must name one of {', '.join(names)}, found {name!r}."
            )
        corner[name] = value
    volume = math.prod(corner.values())
    if not math.isfinite(volume):
        raise SettingError(
            f"compare: the box up to the reference point must have a finite volume, found {volume} "
            f"for {', '.join(f'{name} {value:g}' for name, value in corner.items())}."
        )
    grouped: dict[str, list[_Seen]] = {}
    for one in seen:
        grouped.setdefault(one.key, []).append(one)
    groups = [_group(members, np.array(list(corner.values()))) for members in grouped.values()]
    return Comparison(objectives, corner, _apart(groups))


def _apart(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return the studies with different labels: those with the same one are numbered."""
    count = Counter(g.label for g in groups)
    met = Counter[str]()
    out = []
    for g in groups:
        if count[g.label] == 1:
            out.append(g)
        else:
            met[g.label] += 1
            out.append(replace(g, label=f"{g.label} {met[g.label]}"))
    return tuple(out)


@dataclass(frozen=True)
class _Seen:
    """The content of one database."""

    name: str
    identity: dict[str, Any]
    objectives: tuple[Objective, ...]
    limits: tuple[Limit, ...]
    trials: list[Trial]
    audits: list[Audit]

    @property
    def key(self) -> str:
        """Return a text that is equal for databases of one study with different seeds."""
        return json.dumps(self.without_seed, sort_keys=True)

    @property
    def without_seed(self) -> dict[str, Any]:
        """Return the study file without its seed."""
        return {k: v for k, v in self.identity.items() if k != "seed"}

    @property
    def seed(self) -> int:
        """Return the seed of the study."""
        return int(self.identity["seed"])

    @property
    def label(self) -> str:
        """Return the study's name and optimizer."""
        return f"{self.name} ({self.identity['optimizer']['name']})"

    @property
    def judges(self) -> tuple[Judge, ...]:
        """What rows are judged by: the objectives, then the limits beside them."""
        return (*self.objectives, *self.limits)

    @cached_property
    def rows(self) -> list[tuple[FloatArray, list[int]]]:
        """Return for each finished trial its points [·,m+c], and after how many rounds each was.

        The first point is the trial's end, with 0 for its rounds. The others are measured on the
        way, if rounds are searched.
        """
        measures = [o.measure for o in self.judges]
        out = []
        for trial in self.trials:
            end = [math.nan] * len(measures)
            if trial.state == "done":
                end = [trial.measures.get(m, math.nan) for m in measures]
            way = []
            if self._first_rounds is not None:
                way = list(along(trial, measures, "rounds", self._first_rounds))
            points = np.array([end, *(shown for _, shown in way)], dtype=np.float64)
            out.append((points, [0, *(rounds for rounds, _ in way)]))
        return out

    @property
    def _first_rounds(self) -> int | None:
        """Return the least number of rounds in the search; None if rounds are fixed."""
        rounds = self.identity.get("training", {}).get("rounds")
        if not isinstance(rounds, dict):
            return None
        if "low" in rounds:
            return int(rounds["low"])
        return int(min(rounds.get("choices", [1])))


def _read(path: Path) -> _Seen:
    """Return the content of a database, given by its own path or by that of its study file."""
    database = path
    if path.suffix != ".db":
        database = path.with_suffix(".db")
    with Store.read(database) as store:
        identity = store.identity
        _check_identity(database, identity)
        if identity.get("privacy", {}).get("private_data"):
            store.check_noise()
        trials = [t for t in store.trials() if t.state != "pending"]
        name, audits = store.name, last_of(store.audits())
    if not _from_file(identity):
        raise SettingError(
            f"compare: {database} must be of a study that was read from a file, found one made in "
            "Python."
        )
    if not trials:
        raise SettingError(
            f"compare: {database} must hold finished trials, found none. Run the study first."
        )
    objectives = tuple(map(_objective, identity["objectives"]))
    limits = tuple(Limit(**table) for table in identity.get("limits", []))
    return _Seen(name, identity, objectives, limits, trials, audits)


def _check_identity(database: Path, identity: Mapping[str, Any]) -> None:
    """Refuse the description of a study, changed by hand, that holds what no study file does."""
    for name in ("privacy", "training", "mechanism", "data", "optimizer"):
        if not isinstance(identity.get(name, {}), dict):
            raise _unreadable(database, name, identity[name])
    view = identity.get("privacy", {}).get("view", "server")
    if view not in VIEWS:
        raise _unreadable(database, "privacy.view", view)
    links = identity.get("mechanism", {}).get("links", [])
    if not isinstance(links, list) or not all(isinstance(link, dict) for link in links):
        raise _unreadable(database, "mechanism.links", links)
    rounds = identity.get("training", {}).get("rounds", 1)
    held = rounds if isinstance(rounds, dict) else {"low": rounds}
    ends = held.get("choices", [held.get("low", 1)])
    if not isinstance(ends, list) or not ends or not all(type(n) is int and n > 0 for n in ends):
        raise _unreadable(database, "training.rounds", rounds)


def _unreadable(database: Path, key: str, found: object) -> StoreError:
    return StoreError(
        f"{database}: table study, column identity: {key} must be what a study file holds, found "
        f"{shown(found)}."
    )


def _from_file(identity: Mapping[str, Any]) -> bool:
    """Say whether a stored description has what every study file gives."""
    objectives = identity.get("objectives")
    if not isinstance(objectives, list) or type(identity.get("seed")) is not int:
        return False
    tables = [identity.get("optimizer"), *objectives, *identity.get("limits", [])]
    return all(isinstance(t, dict) and isinstance(t.get("name"), str) for t in tables)


def _objective(table: Mapping[str, Any]) -> Objective:
    """Return the objective that a table of a stored study describes."""
    keys = ("name", "measure", "limit", "penalty", "reference")
    objective = Objective(**{k: v for k, v in table.items() if k in keys})
    known = MEASURES.get(objective.measure)
    if known is None:
        return replace(objective, proxy=None)
    return replace(objective, proxy=known.proxy)


def _common(seen: Sequence[_Seen]) -> tuple[Objective, ...]:
    """Return the objectives that all studies have, or raise an error that says which differ.

    One proxy may stand for another, since mechanisms have proxies of their own.
    """

    def kinds(one: _Seen) -> list[tuple[str, str]]:
        return [(o.name, "a proxy" if o.proxy else o.measure) for o in one.objectives]

    mine = kinds(seen[0])
    for other in seen[1:]:
        theirs = kinds(other)
        if mine != theirs:
            raise SettingError(
                f"compare: all studies must have the same objectives, found {mine} in "
                f"{seen[0].name} and {theirs} in {other.name}."
            )
    return seen[0].objectives


def _group(members: Sequence[_Seen], corner: FloatArray) -> Group:
    """Return databases of one study, each with its own seed, as one group."""
    first = members[0]
    curves = [growth([y for y, _ in m.rows], m.judges, corner) for m in members]
    shortest = min(map(len, curves))
    rows = [row for m in members for row in m.rows]
    y = np.vstack([y for y, _ in rows])
    of = np.repeat(np.arange(len(rows)), [len(y) for y, _ in rows])
    rounds = np.array([r for _, way in rows for r in way], dtype=np.int64)
    holds = feasible(first.judges, y)
    return Group(
        first.label,
        tuple(m.seed for m in members),
        np.array([c[:shortest] for c in curves]),
        first.without_seed,
        first.objectives,
        y[holds][:, : len(first.objectives)],
        of[holds],
        rounds[holds],
        tuple((m.seed, trial) for m in members for trial in m.trials),
        tuple((m.seed, a) for m in members for a in m.audits),
    )

"""Several studies side by side: hypervolume over evaluations up to one reference point, mean and spread over seeds, and fronts."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from fedpareto.errors import SettingError
from fedpareto.federation import MEASURES
from fedpareto.front import nondominated
from fedpareto.privacy import VIEWS
from fedpareto.problem import Objective, feasible
from fedpareto.report.figures import save
from fedpareto.report.points import growth
from fedpareto.space import FloatArray
from fedpareto.store import Store
from fedpareto.trials import Trial, along

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Found:
    """A point within the limits: where a run ended, or what it showed on its way there."""

    values: tuple[float, ...]  # [m]
    seed: int
    trial: Trial
    settings: dict[str, Any]


@dataclass(frozen=True)
class Group:
    """One study, run with one seed or several."""

    label: str
    seeds: tuple[int, ...]
    curves: FloatArray  # [seeds, evaluations] hypervolume after each trial, as far as every seed has come
    identity: dict[str, Any] = field(
        repr=False
    )  # the study file in full, but for name, budget and seed
    objectives: tuple[Objective, ...] = field(repr=False)
    y: FloatArray = field(repr=False)  # [n,m] of all seeds together, within the limits
    of: NDArray[np.int64] = field(repr=False)  # [n], which of the trials
    rounds: NDArray[np.int64] = field(
        repr=False
    )  # [n], after how many rounds; 0 where the run ended
    trials: tuple[tuple[int, Trial], ...] = field(repr=False)  # seed and trial

    @property
    def last(self) -> tuple[float, float]:
        """Return the mean and spread over seeds of the hypervolume at the end."""
        return float(self.curves[:, -1].mean()), self.spread(-1)

    def spread(self, at: int) -> float:
        return float(self.curves[:, at].std(ddof=1)) if len(self.seeds) > 1 else 0.0

    @cached_property
    def kept(self) -> NDArray[np.int64]:
        """Which rows of y are on the front, in the order of the first objective."""
        kept = np.flatnonzero(nondominated(self.y))
        return np.asarray(kept[np.argsort(self.y[kept, 0], kind="stable")])

    @property
    def front(self) -> FloatArray:
        return np.asarray(self.y[self.kept])

    def found(self, row: int) -> Found:
        """Return a row of y with where it comes from."""
        seed, trial = self.trials[self.of[row]]
        way = {"rounds": int(self.rounds[row])} if self.rounds[row] else {}
        return Found(tuple(map(float, self.y[row])), seed, trial, trial.settings | way)

    def epsilons(self, view: str) -> FloatArray:
        """Return the true ε of each row of y for a view; that of the whole run, which is no less, for what it showed on its way."""
        return self._stated[view]

    @cached_property
    def _stated(self) -> dict[str, FloatArray]:
        stated = {
            view: [t.measures.get(f"epsilon_{view}", math.nan) for _, t in self.trials]
            for view in VIEWS
        }
        return {
            view: np.array(values, dtype=np.float64)[self.of] for view, values in stated.items()
        }

    @property
    def mechanism(self) -> str:
        """Return how clients protect what they send, in a word or a chain of words."""
        table = self.identity.get("mechanism", {})
        return (
            " + ".join(str(link["name"]) for link in table["links"])
            if "links" in table
            else str(table.get("name", "none"))
        )


@dataclass(frozen=True)
class Comparison:
    """Studies with the same objectives, measured up to one reference point."""

    objectives: tuple[Objective, ...]
    reference: dict[str, float]
    groups: tuple[Group, ...]

    @property
    def mechanisms(self) -> list[str]:
        return sorted({g.mechanism for g in self.groups})


def compare(
    paths: Sequence[str | Path], reference: Mapping[str, float] | None = None
) -> Comparison:
    """Look at several studies together: study files, each with its database beside it, or databases.

    Databases that differ in nothing but the seed are one study. The reference point is the largest of theirs unless given.
    """
    seen = [_read(Path(p)) for p in paths]
    if not seen:
        raise SettingError("compare: must be given at least one study, found none.")
    objectives = _common(seen)
    unknown = [name for name in reference or {} if name not in [o.name for o in objectives]]
    if unknown:
        raise SettingError(
            f"compare: a reference must name one of {', '.join(o.name for o in objectives)}, found {unknown[0]!r}."
        )
    corner = {
        o.name: max(s.objectives[j].reference for s in seen) for j, o in enumerate(objectives)
    } | dict(reference or {})
    grouped: dict[str, list[_Seen]] = {}
    for one in seen:
        grouped.setdefault(one.key, []).append(one)
    groups = [_group(members, np.array(list(corner.values()))) for members in grouped.values()]
    return Comparison(objectives, corner, _apart(groups))


def _apart(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Number the studies that would have the same label."""
    count, met = Counter(g.label for g in groups), Counter[str]()
    out = []
    for g in groups:
        met[g.label] += 1
        out.append(g if count[g.label] == 1 else replace(g, label=f"{g.label} {met[g.label]}"))
    return tuple(out)


@dataclass(frozen=True)
class _Seen:
    """What a database says."""

    name: str
    identity: dict[str, Any]
    objectives: tuple[Objective, ...]
    trials: list[Trial]

    @property
    def key(self) -> str:
        return json.dumps({k: v for k, v in self.identity.items() if k != "seed"}, sort_keys=True)

    @property
    def label(self) -> str:
        return f"{self.name} ({self.identity['optimizer']['name']})"

    @cached_property
    def rows(self) -> list[tuple[FloatArray, list[int]]]:
        """Return what each finished trial showed, at its end and on the way, [·,m], and after how many rounds, 0 for its end."""
        measures = [o.measure for o in self.objectives]
        rounds = self.identity.get("training", {}).get("rounds")
        first = (
            rounds.get("low", min(rounds.get("choices", [1]))) if isinstance(rounds, dict) else None
        )
        out = []
        for trial in self.trials:
            end = [
                trial.measures.get(m, math.nan) if trial.state == "done" else math.nan
                for m in measures
            ]
            way = list(along(trial, measures, "rounds", int(first))) if first is not None else []
            out.append(
                (
                    np.array([end, *(shown for _, shown in way)], dtype=np.float64),
                    [0, *(value for value, _ in way)],
                )
            )
        return out


def _read(path: Path) -> _Seen:
    database = path if path.suffix == ".db" else path.with_suffix(".db")
    with Store.read(database) as store:
        identity, trials = store.identity, [t for t in store.trials() if t.state != "pending"]
        name = store.name
    if not isinstance(identity.get("objectives"), list):
        raise SettingError(
            f"compare: {database} must be of a study that was read from a file, found one made in Python."
        )
    keys = ("name", "measure", "limit", "penalty", "reference")
    objectives = tuple(
        Objective(**{k: v for k, v in table.items() if k in keys})
        for table in identity["objectives"]
    )
    if not trials:
        raise SettingError(
            f"compare: {database} must hold finished trials, found none. Run the study first."
        )
    return _Seen(
        name, identity, tuple(replace(o, proxy=_proxy(o.measure)) for o in objectives), trials
    )


def _proxy(measure: str) -> str | None:
    known = MEASURES.get(measure)
    return known.proxy if known else None


def _common(seen: Sequence[_Seen]) -> tuple[Objective, ...]:
    """Return the objectives that all have, or say which differ; one proxy may stand for another, as mechanisms have their own."""
    for other in seen[1:]:
        mine, theirs = (
            [(o.name, "a proxy" if o.proxy else o.measure) for o in s.objectives]
            for s in (seen[0], other)
        )
        if mine != theirs:
            raise SettingError(
                f"compare: all studies must have the same objectives, found {mine} in {seen[0].name} and {theirs} in "
                f"{other.name}."
            )
    return seen[0].objectives


def _group(members: Sequence[_Seen], corner: FloatArray) -> Group:
    first = members[0]
    curves = [growth([y for y, _ in m.rows], m.objectives, corner) for m in members]
    shortest = min(map(len, curves))
    rows = [row for m in members for row in m.rows]
    y = np.vstack([y for y, _ in rows])
    of = np.repeat(np.arange(len(rows)), [len(y) for y, _ in rows])
    rounds = np.array([r for _, way in rows for r in way], dtype=np.int64)
    holds = feasible(first.objectives, y)
    return Group(
        first.label,
        tuple(int(m.identity["seed"]) for m in members),
        np.array([c[:shortest] for c in curves]),
        {k: v for k, v in first.identity.items() if k != "seed"},
        first.objectives,
        y[holds],
        of[holds],
        rounds[holds],
        tuple((int(m.identity["seed"]), t) for m in members for t in m.trials),
    )


def comparison_data(found: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data, the form of `fedpareto compare --json`."""
    return {
        "reference": found.reference,
        "studies": [
            {
                "label": g.label,
                "mechanism": g.mechanism,
                "seeds": list(g.seeds),
                "evaluations": g.curves.shape[1],
                "hypervolume": g.last[0],
                "spread": g.last[1],
                "curve": g.curves.mean(0).tolist(),
                "front": [
                    dict(zip(found.reference, map(float, row), strict=True)) for row in g.front
                ],
            }
            for g in found.groups
        ],
    }


def comparison_table(found: Comparison) -> Table:
    """Return the hypervolume of each study at a quarter, half and all of its evaluations."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (
        "study",
        "seeds",
        "evaluations",
        "at a quarter",
        "at half",
        "hypervolume",
        "spread",
        "on the front",
    ):
        out.add_column(heading, justify="left" if heading == "study" else "right", no_wrap=True)
    for row in comparison_rows(found):
        out.add_row(*row)
    return out


def comparison_rows(found: Comparison) -> list[tuple[str, ...]]:
    """Return the rows of the table, the largest hypervolume first."""
    out: list[tuple[str, ...]] = []
    for g in sorted(found.groups, key=lambda g: -g.last[0]):
        n, mean = g.curves.shape[1], g.curves.mean(0)
        spread = f"± {g.last[1]:.4f}" if len(g.seeds) > 1 else "one seed"
        out.append(
            (
                g.label,
                str(len(g.seeds)),
                str(n),
                f"{mean[max(0, n // 4 - 1)]:.4f}",
                f"{mean[max(0, n // 2 - 1)]:.4f}",
                f"{mean[-1]:.4f}",
                spread,
                str(len(g.front)),
            )
        )
    return out


def comparison_figures(found: Comparison, stem: Path) -> list[Path]:
    """Draw hypervolume over evaluations and, of two objectives or more, the fronts on the first two; return the paths."""
    drawn = [save(_draw_curves, found, stem.with_name(f"{stem.name}-hypervolume.png"))]
    if len(found.objectives) > 1:
        drawn.append(save(_draw_fronts, found, stem.with_name(f"{stem.name}-fronts.png")))
    return drawn


def _draw_curves(axes: Axes, found: Comparison) -> None:
    for i, g in enumerate(found.groups):
        n, mean = np.arange(1, g.curves.shape[1] + 1), g.curves.mean(0)
        axes.plot(n, mean, color=f"C{i}", label=g.label)
        if len(g.seeds) > 1:
            deviation = g.curves.std(0, ddof=1)
            axes.fill_between(n, mean - deviation, mean + deviation, color=f"C{i}", alpha=0.2)
    corner = ", ".join(f"{name} {value:g}" for name, value in found.reference.items())
    axes.set(
        xlabel="evaluations",
        ylabel="hypervolume",
        title=f"Reference {corner}; mean and spread over seeds",
    )
    axes.legend(frameon=False)


def _draw_fronts(axes: Axes, found: Comparison) -> None:
    y, x = found.objectives[0], found.objectives[1]
    for i, g in enumerate(found.groups):
        axes.plot(g.front[:, 1], g.front[:, 0], "o", color=f"C{i}", markersize=4, label=g.label)
    axes.set(
        xlabel=f"{x.name} (proxy)" if x.proxy else x.name,
        ylabel=y.name,
        title="Fronts of all seeds together",
    )
    axes.legend(frameon=False)

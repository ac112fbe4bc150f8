"""Several studies side by side: hypervolume over evaluations up to one reference point, mean and spread over seeds, and fronts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from fedpareto.errors import SettingError
from fedpareto.front import nondominated
from fedpareto.problem import Objective, feasible
from fedpareto.report.figures import save
from fedpareto.report.points import growth
from fedpareto.space import FloatArray
from fedpareto.store import Store
from fedpareto.trials import Trial, along

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Group:
    """One study, run with one seed or several."""

    label: str
    seeds: tuple[int, ...]
    curves: FloatArray  # [seeds, evaluations] hypervolume after each trial, as far as every seed has come
    front: FloatArray  # [n,m] of all seeds together, within the limits

    @property
    def last(self) -> tuple[float, float]:
        """Return the mean and spread over seeds of the hypervolume at the end."""
        return float(self.curves[:, -1].mean()), self.spread(-1)

    def spread(self, at: int) -> float:
        return float(self.curves[:, at].std(ddof=1)) if len(self.seeds) > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """Studies with the same objectives, measured up to one reference point."""

    objectives: tuple[Objective, ...]
    reference: dict[str, float]
    groups: tuple[Group, ...]


def compare(paths: Sequence[str | Path], reference: Mapping[str, float] | None = None) -> Comparison:
    """Look at several studies together: study files, each with its database beside it, or databases.

    Databases that differ in nothing but the seed are one study. The reference point is the largest of theirs unless given.
    """
    seen = [_read(Path(p)) for p in paths]
    if not seen:
        raise SettingError("compare: must be given at least one study, found none.")
    objectives = _common(seen)
    unknown = [name for name in reference or {} if name not in [o.name for o in objectives]]
    if unknown:
        raise SettingError(f"compare: a reference must name one of {', '.join(o.name for o in objectives)}, found {unknown[0]!r}.")
    corner = {o.name: max(s.objectives[j].reference for s in seen) for j, o in enumerate(objectives)} | dict(reference or {})
    grouped: dict[str, list[_Seen]] = {}
    for one in seen:
        grouped.setdefault(one.key, []).append(one)
    groups = [_group(members, np.array(list(corner.values()))) for members in grouped.values()]
    return Comparison(objectives, corner, tuple(groups))


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

    def rows(self) -> list[FloatArray]:
        """Return what each finished trial showed, at its end and on the way, [·,m]."""
        measures = [o.measure for o in self.objectives]
        rounds = self.identity.get("training", {}).get("rounds")
        first = rounds.get("low", min(rounds.get("choices", [1]))) if isinstance(rounds, dict) else None
        out = []
        for trial in self.trials:
            end = [trial.measures.get(m, math.nan) if trial.state == "done" else math.nan for m in measures]
            way = [shown for _, shown in along(trial, measures, "rounds", int(first))] if first is not None else []
            out.append(np.array([end, *way], dtype=np.float64))
        return out


def _read(path: Path) -> _Seen:
    database = path if path.suffix == ".db" else path.with_suffix(".db")
    with Store.read(database) as store:
        identity, trials = store.identity, [t for t in store.trials() if t.state != "pending"]
        name = store.name
    if not isinstance(identity.get("objectives"), list):
        raise SettingError(f"compare: {database} must be of a study that was read from a file, found one made in Python.")
    keys = ("name", "measure", "limit", "penalty", "reference", "proxy")
    objectives = tuple(Objective(**{k: v for k, v in table.items() if k in keys}) for table in identity["objectives"])
    if not trials:
        raise SettingError(f"compare: {database} must hold finished trials, found none. Run the study first.")
    return _Seen(name, identity, objectives, trials)


def _common(seen: Sequence[_Seen]) -> tuple[Objective, ...]:
    """Return the objectives that all have, or say which differ."""
    first = seen[0].objectives
    for other in seen[1:]:
        mine, theirs = ([(o.name, o.measure) for o in s.objectives] for s in (seen[0], other))
        if mine != theirs:
            raise SettingError(f"compare: all studies must have the same objectives, found {mine} in {seen[0].name} and {theirs} in "
                               f"{other.name}.")
    return first


def _group(members: Sequence[_Seen], corner: FloatArray) -> Group:
    curves = [growth(m.rows(), m.objectives, corner) for m in members]
    shortest = min(map(len, curves))
    rows = np.vstack([row for m in members for row in m.rows()])
    rows = rows[feasible(members[0].objectives, rows)]
    front = rows[nondominated(rows)]
    return Group(members[0].label, tuple(int(m.identity["seed"]) for m in members), np.array([c[:shortest] for c in curves]),
                 front[np.argsort(front[:, 0], kind="stable")])


def comparison_data(found: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data, the form of `fedpareto compare --json`."""
    return {"reference": found.reference, "studies": [
        {"label": g.label, "seeds": list(g.seeds), "evaluations": g.curves.shape[1], "hypervolume": g.last[0], "spread": g.last[1],
         "curve": g.curves.mean(0).tolist(), "front": [dict(zip(found.reference, map(float, row), strict=True)) for row in g.front]}
        for g in found.groups]}


def comparison_table(found: Comparison) -> Table:
    """Return the hypervolume of each study at a quarter, half and all of its evaluations."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("study", "seeds", "evaluations", "at a quarter", "at half", "hypervolume", "spread", "on the front"):
        out.add_column(heading, justify="left" if heading == "study" else "right", no_wrap=True)
    for g in sorted(found.groups, key=lambda g: -g.last[0]):
        n, mean = g.curves.shape[1], g.curves.mean(0)
        spread = f"± {g.last[1]:.4f}" if len(g.seeds) > 1 else "one seed"
        out.add_row(g.label, str(len(g.seeds)), str(n), f"{mean[max(0, n // 4 - 1)]:.4f}", f"{mean[max(0, n // 2 - 1)]:.4f}",
                    f"{mean[-1]:.4f}",
                    spread, str(len(g.front)))
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
    axes.set(xlabel="evaluations", ylabel="hypervolume", title=f"Reference {corner}; mean and spread over seeds")
    axes.legend(frameon=False)


def _draw_fronts(axes: Axes, found: Comparison) -> None:
    y, x = found.objectives[0], found.objectives[1]
    for i, g in enumerate(found.groups):
        axes.plot(g.front[:, 1], g.front[:, 0], "o", color=f"C{i}", markersize=4, label=g.label)
    axes.set(xlabel=f"{x.name} (proxy)" if x.proxy else x.name, ylabel=y.name, title="Fronts of all seeds together")
    axes.legend(frameon=False)

"""Xiao 2025, Table 1: error, size and privacy budget of the final populations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedpareto.front import knee, nondominated
from fedpareto.problem import feasible, judges, reference
from fedpareto.reproduce.experiment import (
    Comparison,
    Experiment,
    Found,
    Line,
    Panel,
    Rows,
    shown,
)
from fedpareto.reproduce.judge import missing
from fedpareto.reproduce.races import XIAO
from fedpareto.trials import known_of

# Table 1, MNIST with CNN: error and size as shares, budget
TABLE = {"nsga2": (0.0195, 0.5419, 0.4911), "fedmoeac": (0.0165, 0.3129, 0.1123)}
NAMES = ("error", "size", "budget")


def chosen(rows: Rows) -> list[float] | None:
    """Return the knee of a study's front; the paper does not say which point its table shows."""
    objectives = rows.study.problem.objectives
    known = known_of(rows.study.problem, rows.trials)
    y = known.y[feasible(judges(rows.study.problem), known.judged)]
    if len(y) == 0:
        return None
    y = y[nondominated(y)]
    return [float(v) for v in y[knee(y, reference(objectives))]]


def table1(rows: Mapping[str, Rows]) -> Found:
    """Report Table 1 for MNIST with the CNN."""
    compared = []
    lines = []
    places = list(range(len(NAMES)))
    for algorithm, paper in TABLE.items():
        found = [chosen(r) for name, r in rows.items() if f"-{algorithm}-" in name]
        points = np.array([point for point in found if point is not None])
        lines.append(Line(f"{algorithm}, paper", places, paper, "points", "paper"))
        if len(points):
            lines.append(Line(f"{algorithm}, ours", places, points.mean(axis=0).tolist(), "points"))
        for i, name in enumerate(NAMES):
            compared.append(_cell(algorithm, name, paper[i], points[:, i] if len(points) else []))
    axes = ("error, size, budget", "value")
    return Found(tuple(compared), (Panel("MNIST, CNN", *axes, tuple(lines), log=False),))


def _cell(algorithm: str, name: str, paper: float, ours: np.typing.ArrayLike) -> Comparison:
    """Compare one cell: the paper's number against mean ± two standard deviations over seeds."""
    what = f"{name} of {algorithm}"
    values = np.asarray(ours, dtype=float)
    if len(values) < 2:
        return missing(what, shown(paper), "Table 1", "fewer than two seeds found a point.")
    mean = float(values.mean())
    spread = float(values.std(ddof=1))
    inside = abs(paper - mean) <= 2 * spread
    words = "within" if inside else "outside"
    why = f"{what}: the paper's {shown(paper)} lies {words} two deviations of our knee."
    said = f"{shown(mean)} ± {shown(spread)} over {len(values)} seeds"
    verdict = "agrees" if inside else "differs"
    return Comparison(what, shown(paper), "Table 1", said, verdict, why)


EXPERIMENTS = (
    Experiment(
        "xiao25-table1", "FedMOEAC and NSGA-II in numbers", "VGG and CIFAR-10", XIAO, table1
    ),
)

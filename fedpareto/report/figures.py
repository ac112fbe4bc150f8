"""Figures as PNG files, for a paper or a slide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.errors import MissingPackage
from fedpareto.report.points import Point, View, best, split_table
from fedpareto.report.text import column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#9aa0a6"  # apart for colour-blind readers
CLASSES = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866", "#44bb99", "#222255")
MOST_CLIENTS = 50


def write_figures(seen: View, stem: Path) -> list[Path]:
    """Write the front, the hypervolume and the split as PNG files beside each other and return their paths."""
    drawn: dict[str, Callable[[Axes, View], None]] = {"front": draw_front, "hypervolume": draw_hypervolume}
    if split_table(seen) is not None:
        drawn["split"] = draw_split
    return [save(draw, seen, stem.with_name(f"{stem.name}-{name}.png")) for name, draw in drawn.items()]


def save(draw: Callable[[Axes, Any], None], seen: Any, path: Path) -> Path:
    """Draw on fresh axes, write the figure and return its path."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackage("matplotlib", "figures", "drawing PNG figures") from None
    figure = Figure(figsize=(7.2, 4.6), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    draw(axes, seen)
    figure.savefig(path, metadata={"Software": "fedpareto"})
    return path


def _xy(points: Sequence[Point], seen: View) -> tuple[list[float], list[float]]:
    """Return the coordinates of points: the first two objectives, or trial number and objective where there is one."""
    names = [o.name for o in seen.objectives]
    if len(names) == 1:
        return [float(p.trial) for p in points], [p.objectives[names[0]] for p in points]
    return [p.objectives[names[1]] for p in points], [p.objectives[names[0]] for p in points]


def draw_front(axes: Axes, seen: View) -> None:
    """Draw every trial, the front and the recommended point on the first two objectives."""
    on_front = set(map(id, seen.front))
    groups = [("outside the limits", [p for p in seen.points if not p.feasible], GREY, "none"),
              ("within the limits", [p for p in seen.points if p.feasible and id(p) not in on_front], GREY, GREY)]
    for label, points, edge, face in groups:
        if points:
            axes.scatter(*_xy(points, seen), s=16, edgecolors=edge, facecolors=face, linewidths=0.8, label=label)
    for label, front, colour in _fronts(seen):
        x, y = _xy(front, seen)
        if len(seen.objectives) > 1:
            axes.step(x, y, where="post", color=colour, alpha=0.5)
        axes.scatter(x, y, s=30, color=colour, label=label, zorder=3)
    if seen.recommended:
        axes.scatter(*_xy([seen.recommended], seen), s=170, facecolors="none", edgecolors=ORANGE, linewidths=2.2,
                     label=f"recommended (trial {seen.recommended.trial})", zorder=4)
    _label(axes, seen)
    axes.legend(frameon=False, fontsize=9)
    axes.set_title(f"{seen.study.name}: {seen.evaluations} trials", loc="left", fontsize=12)


def _fronts(seen: View) -> list[tuple[str, list[Point], str]]:
    """Return the front; of three objectives, one for each of three budgets of the third."""
    if len(seen.objectives) < 3 or not seen.front:
        return [("Pareto front", _in_order(seen.front, seen), BLUE)]
    third = seen.objectives[2].name
    budgets = np.quantile([p.objectives[third] for p in seen.front], [0.33, 0.67, 1.0])
    out = []
    for budget, colour in zip(budgets, (GREEN, "#cc79a7", BLUE), strict=True):
        within = [p for p in seen.front if p.objectives[third] <= budget]
        out.append((f"{third} ≤ {budget:.3g}", _in_order(best(within, seen.objectives[:2]), seen), colour))
    return out


def _in_order(points: Sequence[Point], seen: View) -> list[Point]:
    """Return points from left to right."""
    return [p for _, p in sorted(zip(_xy(points, seen)[0], points, strict=True), key=lambda pair: pair[0])]


def _label(axes: Axes, seen: View) -> None:
    if len(seen.objectives) == 1:
        axes.set_xlabel("trial")
        axes.set_ylabel(column(seen.objectives[0]))
        return
    axes.set_ylabel(column(seen.objectives[0]))
    axes.set_xlabel(column(seen.objectives[1]))
    for objective, line in zip(seen.objectives[:2], (axes.axhline, axes.axvline), strict=True):
        if objective.limit is not None:
            line(objective.limit, color=ORANGE, linestyle="--", linewidth=1)


def draw_hypervolume(axes: Axes, seen: View) -> None:
    """Draw the hypervolume after each trial."""
    axes.plot(range(1, len(seen.curve) + 1), seen.curve, color=BLUE, drawstyle="steps-post")
    axes.set_xlabel("trials")
    corner = ", ".join(f"{name} {value:g}" for name, value in seen.reference.items())
    axes.set_ylabel("hypervolume")
    axes.set_title(f"hypervolume {seen.hypervolume:.4f} (reference {corner})", loc="left", fontsize=12)


def draw_split(axes: Axes, seen: View) -> None:
    """Draw how many images of each class the clients hold, at most fifty clients."""
    table = split_table(seen)
    assert table is not None
    shown, below = table[:MOST_CLIENTS], np.zeros(len(table[:MOST_CLIENTS]))
    for c in range(table.shape[1]):
        axes.bar(range(len(shown)), shown[:, c], bottom=below, width=0.85, label=str(c), color=CLASSES[c % len(CLASSES)])
        below = below + shown[:, c]
    axes.set_xlabel("client" if len(shown) == len(table) else f"client (the first {len(shown)} of {len(table):,})")
    axes.set_ylabel("training images")
    axes.set_title("who holds what, by class, in the first repeat", loc="left", fontsize=12)
    if table.shape[1] <= len(CLASSES):
        axes.legend(frameon=False, fontsize=8, ncols=1, loc="center left", bbox_to_anchor=(1, 0.5))

"""Draw figures of a study as PNG or SVG files, for a paper or a slide."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.errors import MissingPackage, SettingError
from fedpareto.files import write_again
from fedpareto.report.choose import Point, aim_of
from fedpareto.report.points import Deals, View, by_budget, split_table
from fedpareto.report.text import column, share_text
from fedpareto.words import short, visible_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# colour-blind readers can distinguish them
BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#009e73"
GREY = "#9aa0a6"
PURPLE = "#cc79a7"
CLASSES = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccbb44",
    "#66ccee",
    "#aa3377",
    "#bbbbbb",
    "#ee8866",
    "#44bb99",
    "#222255",
)
MOST_CLIENTS = 50
MOST_LINES = 1500  # trials beside the front that are drawn as lines
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.labelsize": 11,
    "axes.titlesize": 12,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedpareto",
}


def write_figures(
    seen: View,
    stem: Path,
    kinds: Collection[str] = ("png",),
    plots: Collection[str] = ("front", "hypervolume", "split"),
) -> list[Path]:
    """Write plots of a study as PNG or SVG files and return their paths.

    A plot for which the study has no data is left out.
    """
    written = []
    for name in plots:
        if not has_data(name, seen):
            continue
        for kind in kinds:
            path = stem.with_name(f"{stem.name}-{name}.{kind}")
            written.append(save(PLOTS[name], seen, path))
    return written


def has_data(plot: str, seen: View) -> bool:
    """Say whether a study has what a plot shows."""
    if plot == "split":
        return split_table(seen) is not None
    if plot == "settings":
        return len(_dimensions(seen)) > 1
    if plot == "clients":
        return bool(_clients(seen))
    return True


def save(draw: Callable[[Axes, Any], None], seen: Any, path: Path) -> Path:
    """Draw on fresh axes, write the figure and return its path."""
    kind = picture_kind(path)
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackage("matplotlib", "figures", "drawing PNG figures") from None
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.6), dpi=160, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        draw(axes, seen)
        # without the date, the same study gives the same file
        words = {"Date": None, "Creator": "fedpareto"}
        metadata = words if kind == "svg" else {"Software": "fedpareto"}
        drawn = io.BytesIO()
        with warnings.catch_warnings():
            # a letter that the font lacks is drawn as a box
            warnings.filterwarnings("ignore", message="Glyph")
            figure.canvas.print_figure(drawn, format=kind, metadata=metadata)
    write_again(path, drawn.getvalue(), "picture")
    return path


def picture_kind(path: Path) -> str:
    """Return png or svg, as the name of a picture's file ends."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise SettingError(f"{path}: a figure must end in .png or .svg, found {path.name!r}.")
    return kind


def words(text: object) -> str:
    """Return a text that matplotlib draws as it is: no formula, no control character.

    A label that begins with _ would be left out of the legend.
    """
    shown = visible_lines(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _xy(points: Sequence[Point], seen: View) -> tuple[list[float], list[float]]:
    """Return the coordinates of points: y is the first objective, x is the second.

    With one objective x is the trial's number.
    """
    names = [o.name for o in seen.objectives]
    y = [p.objectives[names[0]] for p in points]
    if len(names) == 1:
        return [float(p.trial) for p in points], y
    return [p.objectives[names[1]] for p in points], y


def draw_front(axes: Axes, seen: View) -> None:
    """Draw every trial, the front and the recommended point on the first two objectives."""
    on_front = set(map(id, seen.front))
    outside = [p for p in seen.points if not p.feasible]
    within = [p for p in seen.points if p.feasible and id(p) not in on_front]
    look: dict[str, Any] = {"s": 16, "edgecolors": GREY, "linewidths": 0.8}
    if outside:
        x, y = _xy(outside, seen)
        axes.scatter(x, y, facecolors="none", label="outside the limits", **look)
    if within:
        x, y = _xy(within, seen)
        axes.scatter(x, y, facecolors=GREY, label="within the limits", **look)
    for label, front, colour, shape in _fronts(seen):
        x, y = _xy(front, seen)
        if len(seen.objectives) > 1:
            axes.step(x, y, where="post", color=colour, alpha=0.5)
        axes.scatter(x, y, s=30, color=colour, marker=shape, label=label, zorder=3)
    if seen.recommended:
        axes.scatter(
            *_xy([seen.recommended], seen),
            s=170,
            facecolors="none",
            edgecolors=ORANGE,
            linewidths=2.2,
            label=f"recommended (trial {seen.recommended.trial})",
            zorder=4,
        )
    if seen.knee and seen.knee is not seen.recommended:
        x, y = _xy([seen.knee], seen)
        label = f"knee (trial {seen.knee.trial})"
        axes.scatter(x, y, s=70, marker="D", facecolors="none", edgecolors=ORANGE, label=label)
    _fit(axes, seen)
    _draw_unprotected(axes, seen)
    _label(axes, seen)
    axes.legend(frameon=False, fontsize=9)
    title = words(f"{seen.study.name}: {seen.evaluations} trials")
    axes.set_title(title, loc="left", fontsize=12)


def _draw_unprotected(axes: Axes, seen: View) -> None:
    """Draw how good the federation is without protection, where that is what goes up."""
    aim = aim_of(seen.study.problem, seen.baselines)
    held = seen.baselines.unprotected
    first = seen.objectives[0]
    if held is None or aim.measure not in held.measures or first.measure != aim.measure:
        return
    value = held.measures[aim.measure]
    axes.axhline(value, color=GREY, linestyle=":", label=f"without protection ({short(value)})")


def _fit(axes: Axes, seen: View) -> None:
    """Make axes logarithmic if values span more than two decades, or else cut off outliers."""
    if not seen.front or len(seen.objectives) == 1:
        return
    y, x = seen.objectives[:2]
    all_x, all_y = _xy(seen.points, seen)
    front_x, front_y = _xy(seen.front, seen)
    _fit_axis(axes.set_xscale, axes.set_xlim, all_x, front_x, x.limit)
    _fit_axis(axes.set_yscale, axes.set_ylim, all_y, front_y, y.limit)


def _fit_axis(
    set_scale: Callable[..., Any],
    set_limits: Callable[..., Any],
    everything: Sequence[float],
    front: Sequence[float],
    limit: float | None,
) -> None:
    """Fit one axis to all values such that outliers do not squash the front."""
    values = [v for v in everything if np.isfinite(v)]
    low = min(values, default=0.0)
    high = max(values, default=0.0)
    if low > 0 and high / low > 100:
        set_scale("log")
        return
    first = min(front)
    last = max(front)
    if limit is not None:
        last = max(last, limit)
    most = max(last, min(float(np.quantile(values, 0.95)), first + 3 * (last - first)))
    if np.isfinite(most) and high - low > 1.3 * (most - low) > 0:
        room = 0.04 * (most - low)
        set_limits(low - room, most + room)


def _fronts(seen: View) -> list[tuple[str, list[Point], str, str]]:
    """Return the fronts to draw, each with label, colour and shape.

    Three objectives have a front for each of three budgets of the third.
    """
    if len(seen.objectives) < 3 or not seen.front:
        return [("Pareto front", _in_order(seen.front, seen), BLUE, "o")]
    third = seen.objectives[2].name
    looks = zip((GREEN, PURPLE, BLUE), ("o", "s", "^"), strict=True)
    return [
        (words(f"{third} ≤ {budget:.3g}"), _in_order(points, seen), colour, shape)
        for (budget, points), (colour, shape) in zip(by_budget(seen), looks, strict=False)
    ]


def _in_order(points: Sequence[Point], seen: View) -> list[Point]:
    """Return points from left to right."""
    x, _ = _xy(points, seen)
    pairs = sorted(zip(x, points, strict=True), key=lambda pair: pair[0])
    return [point for _, point in pairs]


def _label(axes: Axes, seen: View) -> None:
    """Name the axes by the objectives, and draw their limits."""
    if len(seen.objectives) == 1:
        axes.set_xlabel("trial")
        axes.set_ylabel(words(column(seen.objectives[0])))
        return
    axes.set_ylabel(words(column(seen.objectives[0])))
    axes.set_xlabel(words(column(seen.objectives[1])))
    for objective, line in zip(seen.objectives[:2], (axes.axhline, axes.axvline), strict=True):
        if objective.limit is not None:
            line(objective.limit, color=ORANGE, linestyle="--", linewidth=1)


def draw_hypervolume(axes: Axes, seen: View) -> None:
    """Draw the hypervolume after each trial."""
    axes.plot(range(1, len(seen.curve) + 1), seen.curve, color=BLUE, drawstyle="steps-post")
    axes.set_xlabel("trials")
    corner = ", ".join(f"{name} {value:g}" for name, value in seen.reference.items())
    axes.set_ylabel("hypervolume")
    share = share_text(seen.share)
    title = words(f"hypervolume {seen.hypervolume:.4f}{share} (reference {corner})")
    axes.set_title(title, loc="left", fontsize=12)


def draw_split(axes: Axes, seen: View) -> None:
    """Draw how many records of each class the clients hold, at most fifty clients."""
    table = split_table(seen)
    problem = seen.study.problem
    assert table is not None
    assert isinstance(problem, Deals)
    clients = problem.data.clients
    shown = table[:MOST_CLIENTS]
    below = np.zeros(len(shown))
    for c in range(table.shape[1]):
        axes.bar(
            range(len(shown)),
            shown[:, c],
            bottom=below,
            width=0.85,
            label=str(c),
            color=CLASSES[c % len(CLASSES)],
        )
        below = below + shown[:, c]
    label = "client"
    if len(shown) < clients:
        label = f"client (the first {len(shown)} of {clients:,})"
    axes.set_xlabel(label)
    axes.set_ylabel("training records")
    axes.set_title("who holds what, by class, in the first repeat", loc="left", fontsize=12)
    if table.shape[1] <= len(CLASSES):
        axes.legend(frameon=False, fontsize=8, ncols=1, loc="center left", bbox_to_anchor=(1, 0.5))


def _dimensions(seen: View) -> list[tuple[str, list[float]]]:
    """Return the axes of parallel coordinates, name → [n]: settings and objectives that differ."""
    if not seen.points:
        return []
    names = seen.points[0].settings
    settings = [(name, _numbers([p.settings[name] for p in seen.points])) for name in names]
    goals = [(o.name, [p.objectives[o.name] for p in seen.points]) for o in seen.objectives]
    return [(name, values) for name, values in [*settings, *goals] if min(values) < max(values)]


def _numbers(values: Sequence[Any]) -> list[float]:
    """Return values as numbers; choices that are not numbers are numbered by their text."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return [float(v) for v in values]
    choices = sorted(set(map(str, values)))
    return [float(choices.index(str(v))) for v in values]


def draw_settings(axes: Axes, seen: View) -> None:
    """Draw trials as lines through settings and objectives: the front in colour, of others some."""
    from matplotlib.collections import LineCollection

    dimensions = _dimensions(seen)
    lines = np.column_stack([_unit(values) for _, values in dimensions])  # [n, dimensions]
    front = set(map(id, seen.front))
    kinds = [2 if p is seen.recommended else int(id(p) in front) for p in seen.points]
    every = max(1, -(-kinds.count(0) // MOST_LINES))
    for kind, colour, alpha, width in (
        (0, GREY, 0.15, 0.7),
        (1, BLUE, 0.5, 1.0),
        (2, ORANGE, 1.0, 2.4),
    ):
        mine = [line for line, of in zip(lines, kinds, strict=True) if of == kind]
        some = mine[:: 1 if kind else every]
        drawn = [np.column_stack([range(len(line)), line]) for line in some]
        many = LineCollection(drawn, colors=colour, alpha=alpha, linewidths=width, zorder=2)
        axes.add_collection(many)
    axes.autoscale_view()
    labels = [
        "\n".join([*words(name).split("_"), f"{min(values):.3g} to {max(values):.3g}"])
        for name, values in dimensions
    ]
    axes.set_xticks(range(len(dimensions)), labels, fontsize=8)
    axes.set_yticks([])
    axes.grid(axis="x", alpha=0.6)
    title = "settings and objectives: the front, and the recommended trial"
    if every > 1:
        title = title.replace(", and", ",") + f", 1 in {every} others"
    axes.set_title(title, loc="left", fontsize=12)


def _unit(values: Iterable[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return values scaled to [0, 1], by their logarithm if they span more than two decades."""
    x = np.asarray(list(values), dtype=np.float64)
    if x.min() > 0 and x.max() / x.min() > 100:
        x = np.log(x)
    return np.asarray((x - x.min()) / (x.max() - x.min()))


def _clients(seen: View) -> list[Point]:
    """Return the front's points with a known worst client, the least average error first."""
    known = [p for p in seen.front if np.isfinite(p.measures.get("test_error_worst", np.nan))]
    return sorted(known, key=lambda p: p.measures["test_error"])


def draw_clients(axes: Axes, seen: View) -> None:
    """Draw the test error of the average and of the worst client along the front.

    Bars show the spread over repeats.
    """
    points = _clients(seen)
    for name, label, shape, colour in (
        ("test_error", "average", "o", BLUE),
        ("test_error_worst", "worst client", "^", ORANGE),
    ):
        axes.errorbar(
            range(len(points)),
            [p.measures[name] for p in points],
            [p.spread.get(name, 0.0) for p in points],
            fmt=shape,
            color=colour,
            markersize=5,
            elinewidth=0.9,
            capsize=2,
            label=label,
        )
    axes.set_xticks([])
    axes.set_xlabel("points of the front, in order")
    axes.set_ylabel("test error")
    axes.set_title("the average and the worst client along the front", loc="left", fontsize=12)
    axes.legend(frameon=False, fontsize=9)


PLOTS: dict[str, Callable[[Axes, View], None]] = {
    "front": draw_front,
    "hypervolume": draw_hypervolume,
    "split": draw_split,
    "settings": draw_settings,
    "clients": draw_clients,
}

"""The figure of an experiment: its panels side by side, the paper's in green, ours beside it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, save, words
from fedpareto.reproduce.experiment import Line, Panel

COLOURS = (BLUE, ORANGE, PURPLE, GREY, "#e69f00", "#56b4e9", "#000000")
PAPER = (GREEN, "#8fd0bc")  # of the paper's first line, and of its second
MARKERS = "osD^v<>"  # points of several lines lie on one another
ACROSS = 3  # panels in a row
WIDTH, HEIGHT = 4.2, 3.4  # inches of a panel


def panels_of(result: Mapping[str, Any]) -> tuple[Panel, ...]:
    """Return the panels that a result, as it is written, holds."""
    return tuple(
        Panel(**{**p, "lines": tuple(Line(**line) for line in p["lines"])})
        for p in result["panels"]
    )


def write_figure(panels: Sequence[Panel], path: Path) -> Path:
    """Draw panels into a PNG or SVG file, and return its path."""
    return save(_draw, panels, path)


def _draw(axes: Any, panels: Sequence[Panel]) -> None:
    figure = axes.figure
    axes.remove()
    across = min(ACROSS, max(1, len(panels)))
    down = math.ceil(len(panels) / across)
    figure.set_size_inches(max(5.0, WIDTH * across), HEIGHT * max(1, down))
    places = places_of(panels)
    for i, panel in enumerate(panels, 1):
        _panel(figure.add_subplot(down, across, i), panel, places)


def places_of(panels: Sequence[Panel]) -> dict[tuple[str, str], int]:
    """Return which colour each label has: the same in all panels, though one may lack lines."""
    places: dict[tuple[str, str], int] = {}
    for panel in panels:
        for i, line in enumerate(panel.lines):
            before = sum(other.of == line.of for other in panel.lines[:i])
            key = (line.of, line.label)
            places[key] = max(before, places.get(key, 0))
    return places


def _panel(axes: Any, panel: Panel, places: Mapping[tuple[str, str], int]) -> None:
    bars = sum(line.style == "bars" for line in panel.lines)
    for place, line in enumerate(panel.lines):
        after = sum(other.of == line.of for other in panel.lines[place + 1 :])
        before = places[line.of, line.label]
        colours = PAPER if line.of == "paper" else COLOURS
        colour = colours[before % len(colours)]
        if line.style == "bars":
            _bars(axes, line, colour, place, bars)
        else:
            _line(axes, line, colour, MARKERS[before % len(MARKERS)], 1.6 + 0.8 * after)
    axes.set_title(words(panel.title), fontsize=9)
    axes.set_xlabel(words(panel.x), fontsize=8)
    axes.set_ylabel(words(panel.y), fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.tick_params(labelsize=7, which="both")
    _scales(axes, panel)
    if len(panel.lines) > 1:
        axes.legend(frameon=False, fontsize=6)


def _scales(axes: Any, panel: Panel) -> None:
    """Set logarithmic axes, the names of groups, and whole numbers where all are."""
    if "x" in panel.log:
        axes.set_xscale("log")
    if "y" in panel.log:
        axes.set_yscale("log")
    if panel.groups:
        named = [textwrap.fill(words(g), 14) for g in panel.groups]
        axes.set_xticks(range(len(panel.groups)), named)
        axes.grid(visible=False, axis="x")
        axes.set_axisbelow(True)
    elif "x" not in panel.log and all(float(x).is_integer() for p in panel.lines for x in p.x):
        axes.xaxis.get_major_locator().set_params(integer=True)


def _line(axes: Any, line: Line, colour: str, marker: str, width: float) -> None:
    """Draw a line or points; of lines on one another the lower are wider, so that all are seen."""
    label = words(line.label)
    if line.style == "points":
        axes.scatter(line.x, line.y, s=11, color=colour, marker=marker, alpha=0.75, label=label)
        return
    alone = marker if len(line.x) == 1 else None  # a line of one point would not be seen
    if line.of == "paper":  # beneath ours
        axes.plot(line.x, line.y, color=colour, label=label, linewidth=3.5, alpha=0.7, zorder=1.5)
    else:
        axes.plot(line.x, line.y, color=colour, label=label, linewidth=width, marker=alone)


def _bars(axes: Any, line: Line, colour: str, place: int, of: int) -> None:
    """Draw a line's bars beside those of the others, each with its number."""
    width = 0.8 / of
    x = np.asarray(line.x) + (place - (of - 1) / 2) * width
    drawn = axes.bar(x, line.y, width, color=colour, label=words(line.label))
    axes.bar_label(drawn, fmt="%.3g", fontsize=6, padding=1)

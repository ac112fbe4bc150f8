"""The figure of an experiment: its panels side by side, the paper's in green, ours beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fedpareto.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, save, words
from fedpareto.reproduce.experiment import Found, Line, Panel

COLOURS = (BLUE, ORANGE, PURPLE, GREY, "#e69f00", "#56b4e9", "#000000")
ACROSS = 3  # panels in a row
WIDTH, HEIGHT = 4.2, 3.4  # inches of a panel


def write_figure(found: Found, path: Path) -> Path:
    """Draw all panels of an experiment into a PNG or SVG file, and return its path."""
    return save(_draw, found, path)


def _draw(axes: Any, found: Found) -> None:
    figure = axes.figure
    axes.remove()
    across = min(ACROSS, max(1, len(found.panels)))
    down = math.ceil(len(found.panels) / across)
    figure.set_size_inches(max(5.0, WIDTH * across), HEIGHT * max(1, down))
    for i, panel in enumerate(found.panels, 1):
        _panel(figure.add_subplot(down, across, i), panel)


def _panel(axes: Any, panel: Panel) -> None:
    place = 0
    for line in panel.lines:
        colour = GREEN if line.of == "paper" else COLOURS[place % len(COLOURS)]
        place += line.of == "ours"
        _line(axes, line, colour)
    axes.set_title(words(panel.title), fontsize=9)
    axes.set_xlabel(words(panel.x), fontsize=8)
    axes.set_ylabel(words(panel.y), fontsize=8)
    if panel.log:
        axes.set(xscale="log", yscale="log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.tick_params(labelsize=7)
    axes.legend(frameon=False, fontsize=6)


def _line(axes: Any, line: Line, colour: str) -> None:
    if line.style == "points":
        axes.scatter(line.x, line.y, s=9, color=colour, label=words(line.label))
    else:
        axes.plot(line.x, line.y, color=colour, label=words(line.label))

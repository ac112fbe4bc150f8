"""A comparison as data, as a table and as figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from fedpareto.front import share_of_box
from fedpareto.report.compare import Comparison, Group
from fedpareto.report.compare_audits import audits_data
from fedpareto.report.figures import save, words
from fedpareto.report.text import as_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADINGS = (  # of comparison_rows
    "study",
    "seeds",
    "evaluations",
    "at a quarter",
    "at half",
    "hypervolume",
    "spread",
    "share",
    "on the front",
)


def comparison_data(found: Comparison) -> dict[str, Any]:
    """Return the comparison as a dictionary, the form of `fedpareto compare --json`."""
    studies = [_group_data(g, found.reference) for g in found.groups]
    return {"reference": found.reference, "studies": studies}


def _share(g: Group, reference: Mapping[str, float]) -> float:
    """Return a study's hypervolume in units of the box up to the reference."""
    return share_of_box(g.last[0], np.array(list(reference.values())))


def _group_data(g: Group, reference: Mapping[str, float]) -> dict[str, Any]:
    hypervolume, spread = g.last
    share = _share(g, reference)
    return {
        "label": g.label,
        "mechanism": g.mechanism,
        "seeds": list(g.seeds),
        "evaluations": g.curves.shape[1],
        "hypervolume": hypervolume,
        "spread": spread,
        "share": share if math.isfinite(share) else None,
        "curve": g.curves.mean(0).tolist(),
        "front": [dict(zip(reference, map(float, row), strict=True)) for row in g.front],
        "audits": audits_data(g),
    }


def comparison_table(found: Comparison) -> Table:
    """Return the hypervolume of each study at a quarter, half and all of its evaluations."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    out.add_column(HEADINGS[0], justify="left", no_wrap=True)
    for heading in HEADINGS[1:]:
        out.add_column(heading, justify="right", no_wrap=True)
    for row in comparison_rows(found):
        out.add_row(*map(as_cell, row))
    return out


def comparison_rows(found: Comparison) -> list[tuple[str, ...]]:
    """Return a row for each study under HEADINGS, the largest hypervolume first."""
    ranked = sorted(found.groups, key=lambda g: -g.last[0])
    return [_row(g, _share(g, found.reference)) for g in ranked]


def _row(g: Group, share: float) -> tuple[str, ...]:
    n = g.curves.shape[1]
    mean = g.curves.mean(0)
    spread = f"± {g.last[1]:.4f}" if len(g.seeds) > 1 else "one seed"
    return (
        g.label,
        str(len(g.seeds)),
        str(n),
        f"{mean[max(0, n // 4 - 1)]:.4f}",
        f"{mean[max(0, n // 2 - 1)]:.4f}",
        f"{mean[-1]:.4f}",
        spread,
        f"{share:.4f}" if math.isfinite(share) else "–",
        str(len(g.front)),
    )


def comparison_figures(found: Comparison, stem: Path) -> list[Path]:
    """Draw hypervolumes over evaluations, and fronts on two objectives; return the paths."""
    drawn = [save(_draw_curves, found, stem.with_name(f"{stem.name}-hypervolume.png"))]
    if len(found.objectives) > 1:
        drawn.append(save(_draw_fronts, found, stem.with_name(f"{stem.name}-fronts.png")))
    return drawn


def _draw_curves(axes: Axes, found: Comparison) -> None:
    for i, g in enumerate(found.groups):
        n = np.arange(1, g.curves.shape[1] + 1)
        mean = g.curves.mean(0)
        axes.plot(n, mean, color=f"C{i}", label=words(g.label))
        if len(g.seeds) > 1:
            deviation = g.curves.std(0, ddof=1)
            axes.fill_between(n, mean - deviation, mean + deviation, color=f"C{i}", alpha=0.2)
    corner = ", ".join(f"{name} {value:g}" for name, value in found.reference.items())
    axes.set(
        xlabel="evaluations",
        ylabel="hypervolume",
        title=words(f"Reference {corner}; mean and spread over seeds"),
    )
    axes.legend(frameon=False)


def _draw_fronts(axes: Axes, found: Comparison) -> None:
    y = found.objectives[0]
    x = found.objectives[1]
    for i, g in enumerate(found.groups):
        label = words(g.label)
        axes.plot(g.front[:, 1], g.front[:, 0], "o", color=f"C{i}", markersize=4, label=label)
    axes.set(
        xlabel=words(f"{x.name} (proxy)" if x.proxy else x.name),
        ylabel=words(y.name),
        title="Fronts of all seeds together",
    )
    axes.legend(frameon=False)

"""A low-cost design as text and as a figure: what was trained, the law fitted to it, the front it predicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto import theory
from fedpareto.privacy import rounded_up
from fedpareto.report.figures import BLUE, GREEN, GREY, ORANGE, save
from fedpareto.report.privacy import epsilon_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def design_lines(found: Any, most: int = 10) -> list[str]:
    """Return the design in sentences and a table of the predicted front, thinned; found is a Designed."""
    made, low_high = found.design, found.design.estimate.interval
    lines = [
        f"k = {made.estimate.k:.4g} (95 %: {low_high[0]:.4g} to {low_high[1]:.4g}), from {made.estimate.used} Pareto points of "
        f"{made.estimate.trainings} trainings; {made.estimate.left_out} more were held by the edge of the search box",
        made.message,
        "",
        "predicted front (f1 and f2 by Gu 2024, Eq. 8: proxies)",
        "rounds      sigma         f1         f2   true ε",
    ]
    for i in np.unique(np.linspace(0, len(made.front) - 1, most).astype(int)):
        r = made.front[i]
        lines.append(
            f"{r['rounds']:6.0f} {float(rounded_up(float(r['sigma']))):10.4g} {r['f1']:10.4g} {r['f2']:10.4g} "
            f"{epsilon_text(float(found.epsilon[i])):>8s}"
        )
    lines += [
        "",
        f"trained {found.cost.trainings} small federations, {found.cost.rounds} rounds, {found.seconds:.1f} s",
    ]
    return lines + [
        f"{name}: {o['trainings']} trainings of the real federation, {o['rounds']} rounds, {o['seconds']:.1f} s"
        for name, o in found.others.items()
    ]


def design_figure(found: Any, path: Path) -> Path:
    """Draw experimental Pareto points, the fitted law and the predicted front, and return the path."""
    return save(draw_design, found, path)


def draw_design(axes: Axes, found: Any) -> None:
    """Draw noise against rounds: what the small federation showed, and what follows for the real one."""
    made, points = found.design, found.points
    axes.scatter(
        points["rounds"],
        points["sigma"],
        s=9,
        color=GREY,
        label="Pareto points of the pre-experiment",
    )
    rounds = np.arange(1, made.rounds_max + 1)
    axes.plot(
        rounds,
        theory.sigma_of(rounds, made.estimate.k, found.clients, found.runs.sample_ratio[0]),
        color=BLUE,
        label=f"law fitted to them, k = {made.estimate.k:.3g}",
    )
    most, fewest = (
        theory.sigma_of(rounds, k, made.clients, made.sample_ratio) for k in made.estimate.interval
    )
    axes.fill_between(rounds, fewest, most, color=GREEN, alpha=0.25, label="what k leaves open")
    axes.plot(
        rounds,
        theory.sigma_of(rounds, made.estimate.k, made.clients, made.sample_ratio),
        color=GREEN,
        label=f"predicted: {made.clients} clients, q = {made.sample_ratio:g}",
    )
    axes.scatter(
        [made.rounds],
        [made.sigma],
        s=70,
        facecolors="none",
        edgecolors=ORANGE,
        linewidths=2,
        zorder=4,
        label="recommended",
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="rounds T",
        ylabel="noise σ of each client",
        title=f"Pareto noise against rounds: kσ²T = qK, slope {made.estimate.slope:.2f} found",
    )
    axes.legend(frameon=False, fontsize=8)

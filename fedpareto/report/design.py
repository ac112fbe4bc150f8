"""A low-cost design as text and as a figure: experiment, fitted law and predicted front."""

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
    """Return a design (a Designed) in lines of text, with `most` rows of the predicted front."""
    made = found.design
    estimate = made.estimate
    low, high = estimate.interval
    lines = [
        f"k = {estimate.k:.4g} (95 %: {low:.4g} to {high:.4g}), from "
        f"{estimate.used} Pareto points of {estimate.trainings} trainings; "
        f"{estimate.left_out} more were held by the edge of the search box",
        made.message,
        *_by_ratio(found),
        "",
        "predicted front (f1 and f2 by Gu 2024, Eq. 8: proxies)",
        "rounds      sigma         f1         f2   true ε",
    ]
    for i in np.unique(np.linspace(0, len(made.front) - 1, most).astype(int)):
        row = made.front[i]
        sigma = float(rounded_up(float(row["sigma"])))
        epsilon = epsilon_text(float(found.epsilon[i]))
        lines.append(
            f"{row['rounds']:6.0f} {sigma:10.4g} {row['f1']:10.4g} {row['f2']:10.4g} {epsilon:>8s}"
        )
    lines += [
        "",
        f"trained {found.cost.trainings} small federations, {found.cost.rounds} rounds, "
        f"{found.seconds:.1f} s",
    ]
    return lines + _costs(found.others)


def _by_ratio(found: Any) -> list[str]:
    """Return a line for each sample ratio, where there are several; the front is the last one's."""
    if len(found.designs) == 1:
        return []
    return [
        f"q = {d.sample_ratio:g}: {d.rounds} rounds with σ = {d.sigma:.4g}" for d in found.designs
    ]


def _costs(others: dict[str, dict[str, Any]]) -> list[str]:
    """Return what each way costs in full, as a table (Gu 2024, Tables II and III)."""
    if not others:
        return []
    lines = ["", f"{'way to a setting':28s} trainings   rounds client-steps   seconds"]
    for name, o in others.items():
        steps = f"{o['client_steps']:,.0f}"
        lines.append(
            f"{name:28s} {o['trainings']:9d} {o['rounds']:8d} {steps:>12s} {o['seconds']:9.1f}"
        )
    within = others["training with budget"]
    kept = "" if within["points"] else ", which nothing tried keeps"
    convergence = others["training until convergence"]
    return [
        *lines,
        f"budget: √(qT)/σ ≤ {within['budget']:.4g}{kept}; converged: loss not down by "
        f"{convergence['tolerance']:g} of itself for {convergence['patience']} rounds; low-cost "
        "design: the small experiment and the training that follows, with every seed",
    ]


def design_figure(found: Any, path: Path) -> Path:
    """Draw the experiment's Pareto points, the fitted law and the predicted front to a file."""
    return save(draw_design, found, path)


def draw_design(axes: Axes, found: Any) -> None:
    """Draw noise against rounds: of the small federation, and predicted for the real one."""
    made = found.design
    points = found.points
    rounds = np.arange(1, made.rounds_max + 1)
    k = made.estimate.k
    label = "Pareto points of the pre-experiment"
    axes.scatter(points["rounds"], points["sigma"], s=9, color=GREY, label=label)
    fitted = theory.sigma_of(rounds, k, found.clients, found.runs.sample_ratio[0])
    axes.plot(rounds, fitted, color=BLUE, label=f"law fitted to them, k = {k:.3g}")
    most, fewest = (
        theory.sigma_of(rounds, end, made.clients, made.sample_ratio)
        for end in made.estimate.interval
    )
    axes.fill_between(rounds, fewest, most, color=GREEN, alpha=0.25, label="what k leaves open")
    predicted = theory.sigma_of(rounds, k, made.clients, made.sample_ratio)
    label = f"predicted: {made.clients} clients, q = {made.sample_ratio:g}"
    axes.plot(rounds, predicted, color=GREEN, label=label)
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

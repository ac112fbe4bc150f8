"""Gu 2024: noise against rounds on the experimental Pareto set, and the k that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpareto import theory
from fedpareto.errors import SettingError
from fedpareto.reproduce.experiment import Comparison, Experiment, Found, Line, Panel, Part, Rows
from fedpareto.reproduce.judge import missing, number, too_wide
from fedpareto.settings import largest, least

QUICK = {
    "repeats": 3,
    "training.rounds": [1, 60],
    "optimizer.points": 8,
    "optimizer.batch": 8,
    "budget": 8,
}


def part(name: str, clients: int, ratio: float, *, steps: int = 20, share: float = 1.0) -> Part:
    """Return a grid over σ at one sample ratio."""
    changes = {
        "name": name,
        "budget": 15,
        "data.clients": clients,
        "data.share": share,
        "training.sample_ratio": ratio,
        "training.local_steps": steps,
    }
    return Part(name, "gu24-lr.toml", changes, QUICK, {"quick": 20.0, "paper": 120.0})


GRID = Part(
    "gu24-lr-q",
    "gu24-lr.toml",
    {"name": "gu24-lr-q"},
    QUICK | {"training.sample_ratio": {"choices": [0.125, 0.375, 0.625]}, "budget": 24},
    {"quick": 60.0, "paper": 900.0},
)
STEPS = {e: part(f"gu24-lr-K10-E{e}", 10, 1.0, steps=e) for e in (5, 10, 20)}
CLIENTS = {k: STEPS[20] if k == 10 else part(f"gu24-lr-K{k}-E20", k, 1.0) for k in (5, 10, 20)}
PRE = part("gu24-lr-pre", 10, 1.0, share=0.1)


def runs_of(rows: Rows) -> theory.Runs:
    """Return the trainings of a grid, every round of them."""
    done = [t for t in rows.trials if t.state == "done"]
    problem: Any = rows.study.problem
    ratios = [t.settings.get("sample_ratio", problem.training.sample_ratio) for t in done]
    losses = np.array([rows.losses[t.number] for t in done])
    return theory.Runs.of([t.settings["sigma"] for t in done], ratios, losses)


def fitted(rows: Rows) -> tuple[theory.Found, theory.Estimate | None]:
    """Return the experimental Pareto set, and k where enough points lie inside the box."""
    problem: Any = rows.study.problem
    found = theory.full_grid(runs_of(rows))
    sigma = problem.mechanism.sigma
    try:
        estimate = theory.estimate_k(
            found.points["rounds"],
            found.points["sigma"],
            problem.data.clients,
            found.points["sample_ratio"],
            rounds_max=int(largest(problem.training.rounds)),
            sigma_min=float(least(sigma)),
            sigma_max=float(largest(sigma)),
        )
    except SettingError:
        return found, None
    return found, estimate


def panel(rows: Rows, paper_k: float) -> Panel:
    """Return the Pareto set beside the paper's law and ours, as σ²/(qK) against T."""
    found, estimate = fitted(rows)
    problem: Any = rows.study.problem
    points = found.points
    rounds = np.arange(1, int(largest(problem.training.rounds)) + 1)
    scaled = points["sigma"] ** 2 / (points["sample_ratio"] * problem.data.clients)
    printed = 1 / paper_k / rounds
    lines = [
        Line("found by training", points["rounds"].tolist(), scaled.tolist(), "points"),
        Line(f"paper, k = {paper_k:g}", rounds.tolist(), printed.tolist(), of="paper"),
    ]
    if estimate:
        law = (1 / estimate.k / rounds).tolist()
        lines.append(Line(f"ours, k = {estimate.k:.3g}", rounds.tolist(), law))
    return Panel(rows.study.name, "rounds T", "σ²/(qK)", tuple(lines), log=True)


def k_of(name: str, paper_k: float, source: str, rows: Mapping[str, Rows]) -> Comparison:
    """Compare the paper's k with that of a grid."""
    what = f"k of {name}"
    _, estimate = fitted(rows[name])
    if estimate is None:
        return missing(what, f"{paper_k:g}", source, "too few Pareto points lie inside the box.")
    return number(what, paper_k, source, estimate.k, estimate.interval)


def one_k(rows: Mapping[str, Rows], claim: str, source: str) -> Comparison:
    """Compare the statement that one k serves several federations: do its intervals meet?"""
    found = {name: fitted(r)[1] for name, r in rows.items()}
    ends = [e.interval for e in found.values() if e is not None]
    if len(ends) < len(found):
        return missing(claim, "the same k", source, "too few Pareto points lie inside the box.")
    meet = max(low for low, _ in ends) <= min(high for _, high in ends)
    ours = ", ".join(f"{name} {e.k:.3g}" for name, e in found.items() if e)
    said = "share" if meet else "do not share"
    why = f"{claim}: the intervals of k {said} a value."
    verdict = "agrees" if meet else "differs"
    if meet and any(map(too_wide, ends)):
        verdict = "open"
        why += " One of them is too wide to call that agreement."
    return Comparison(claim, "the same k", source, ours, verdict, why)


def fig2a(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 2(a)."""
    compared = k_of(GRID.name, 22.0, "Fig. 2, caption", rows)
    return Found((compared,), (panel(rows[GRID.name], 22.0),))


def fig4(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 4(a) to (c)."""
    compared = one_k(rows, "local epochs have next to no influence", "V-C and Fig. 4")
    return Found((compared,), tuple(panel(r, 25.0) for r in rows.values()))


def fig5(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 5(a) to (c)."""
    compared = one_k(rows, "clients enter by kσ²T = qK alone", "V-C and Fig. 5")
    return Found((compared,), tuple(panel(r, 25.0) for r in rows.values()))


def fig6(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 6(a)."""
    compared = k_of(PRE.name, 25.0, "Fig. 6, caption", rows)
    return Found((compared,), (panel(rows[PRE.name], 25.0),))


NO_LENET = "LeNet"
EXPERIMENTS = (
    Experiment("gu24-fig2a", "Pareto set of LR", "nothing", (GRID,), fig2a),
    Experiment("gu24-fig4", "local epochs", NO_LENET, tuple(STEPS.values()), fig4),
    Experiment("gu24-fig5", "number of clients", NO_LENET, tuple(CLIENTS.values()), fig5),
    Experiment("gu24-fig6", "k from a tenth of the data", "LeNet; panels b, c", (PRE,), fig6),
)

"""Gu 2024, Tables II and III: what a design costs, in client-steps, with the same seeds for all.

A client-step is one mini-batch step of one client. Ours is the pre-experiment and the training that
follows. The budget of "training with budget" is the median leakage of the full grid's front.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpareto import theory
from fedpareto.reproduce.experiment import Comparison, Experiment, Found, Line, Panel, Rows
from fedpareto.reproduce.gu24 import GRID, PRE, part, runs_of

REAL = part("gu24-lr-K40-q05", 40, 0.5)
WAYS = ("training with budget", "training until convergence")


def per_ratio(rows: Rows) -> dict[float, theory.Runs]:
    """Return the trainings of a grid, those of each sample ratio together."""
    runs = runs_of(rows)
    out = {}
    for q in np.unique(runs.sample_ratio).tolist():
        mine = runs.sample_ratio == q
        out[q] = theory.Runs.of(runs.sigma[mine], q, runs.loss[mine])
    return out


def client_steps(rows: Rows, ratio: float, rounds: float) -> float:
    """Return the client-steps of so many rounds."""
    problem: Any = rows.study.problem
    return float(rounds * round(ratio * problem.data.clients) * problem.training.local_steps)


def searched(rows: Rows) -> dict[str, float]:
    """Return what the two searches of the real federation cost, in client-steps."""
    limit = float(np.median(theory.full_grid(runs_of(rows)).points["leakage"]))
    spent = dict.fromkeys(WAYS, 0.0)
    for q, runs in per_ratio(rows).items():
        spent[WAYS[0]] += client_steps(rows, q, theory.with_budget(runs, limit).cost.rounds)
        spent[WAYS[1]] += client_steps(rows, q, theory.until_convergence(runs).cost.rounds)
    return spent


def designed(pre: Rows, real: Rows, noises: int) -> float:
    """Return what the low-cost design costs: the pre-experiment, then one training for each σ."""
    small = runs_of(pre)
    problem: Any = pre.study.problem
    seeds, rounds = runs_of(real).loss.shape[1:]
    before = client_steps(pre, problem.training.sample_ratio, small.loss.size)
    each = [client_steps(real, q, noises * seeds * rounds) for q in per_ratio(real)]
    return before + float(np.mean(each))


def table(source: str, ours: float, others: Mapping[str, float]) -> Found:
    """Compare the statement that the design costs less than each search."""
    compared = []
    for name, spent in others.items():
        less = ours < spent
        side = "less" if less else "not less"
        what = f"the design costs less than {name}"
        why = f"{what}: it costs {side}, {ours:,.0f} client-steps against {spent:,.0f}."
        said = f"{ours:,.0f} against {spent:,.0f} client-steps"
        verdict = "agrees" if less else "differs"
        compared.append(Comparison(what, "less", source, said, verdict, why))
    costs = {"design": ours, **others}
    lines = tuple(Line(name, [i], [cost], "points") for i, (name, cost) in enumerate(costs.items()))
    return Found(tuple(compared), (Panel(source, "way", "client-steps", lines),))


def table2(rows: Mapping[str, Rows]) -> Found:
    """Report Table II: one σ for given rounds and sample ratio."""
    pre, real = rows[PRE.name], rows[REAL.name]
    return table("Table II", designed(pre, real, 1), searched(real))


def table3(rows: Mapping[str, Rows]) -> Found:
    """Report Table III: the whole Pareto set, over the sample ratio too."""
    pre, real = rows[PRE.name], rows[GRID.name]
    noises = len(np.unique(runs_of(real).sigma))
    return table("Table III", designed(pre, real, noises), searched(real))


EXPERIMENTS = (
    Experiment("gu24-table2", "cost of one design", "LeNet", (PRE, REAL), table2),
    Experiment("gu24-table3", "cost of the whole Pareto set", "LeNet", (PRE, GRID), table3),
)

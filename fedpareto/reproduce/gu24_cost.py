"""Gu 2024, Tables II and III: what a design costs, in client-steps, with the same seeds for all.

A client-step is one mini-batch step of one client. Ours is the pre-experiment and the training that
follows. The budget of "training with budget" is the median leakage of the full grid's front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpareto import theory
from fedpareto.reproduce import studies_gu24 as studies
from fedpareto.reproduce.experiment import (
    Comparison,
    Experiment,
    Found,
    Line,
    Panel,
    Part,
    Rows,
    shown,
)
from fedpareto.reproduce.gu24 import MODELS, SEEDS, TOO_FEW, WORDS, fitted, round_steps, runs_of
from fedpareto.reproduce.judge import missing

UNLEARNED = 2.2  # a test loss of ten classes; guessing has the logarithm of 10
PLATEAU = ", the plateau on which training begins: nothing was learned"
WAYS = ("training with budget", "training until convergence")


def searched(rows: Sequence[Rows]) -> dict[str, tuple[float, float]]:
    """Return what the two searches of the real federation cost, and the test loss that they find.

    The cost is in client-steps.
    """
    runs = runs_of(rows)
    limit = float(np.median(theory.full_grid(runs).points["leakage"]))
    whole = len(np.unique(runs.sample_ratio)) > 1  # Table III
    found = (theory.with_budget(runs, limit), theory.until_convergence(runs, whole_front=whole))
    return {
        way: (f.cost.client_steps, float(f.points["loss"].min()))
        for way, f in zip(WAYS, found, strict=True)
    }


def designed(pre: Sequence[Rows], real: Sequence[Rows]) -> float | None:
    """Return what the low-cost design costs: the pre-experiment, then the training that follows.

    Where the search has one sample ratio that is one training. Where it has several it is one for
    each σ, with the share of clients that the law gives it, as in `fedpareto design`. None where
    the pre-experiment gives no k.
    """
    estimate = fitted(pre)[1]
    if estimate is None:
        return None
    runs = runs_of(real)
    seeds, rounds = runs.loss.shape[1:]
    sigmas = np.unique(runs.sigma)
    problem: Any = real[0].study.problem
    designs = [
        theory.design(
            estimate,
            clients=problem.data.clients,
            sample_ratio=q,
            rounds_max=rounds,
            sigma_min=float(sigmas[0]),
            sigma_max=float(sigmas[-1]),
        )
        for q in np.unique(runs.sample_ratio).tolist()
    ]
    settings = theory.settings_of(designs, sigmas)
    per_round = sum(round_steps(problem, setting["sample_ratio"]) for setting in settings)
    before = theory.full_grid(runs_of(pre)).cost.client_steps
    return float(before + seeds * rounds * per_round)


def compared(
    words: str, source: str, ours: float, others: Mapping[str, tuple[float, float]]
) -> tuple[list[Comparison], Panel]:
    """Compare the statement that the design costs less than each search."""
    out = []
    for name, (spent, loss) in others.items():
        less = ours < spent
        side = "less" if less else "not less"
        what = claim(words, name)
        why = f"{what}: it costs {side}, {ours:,.0f} client-steps against {spent:,.0f}, which end "
        why += f"at a test loss of {shown(loss)}{PLATEAU if loss > UNLEARNED else ''}."
        said = f"{ours:,.0f} against {spent:,.0f} client-steps"
        verdict = "agrees" if less else "differs"
        out.append(Comparison(what, "less", source, said, verdict, why))
    costs = {"design": ours, **{name: spent for name, (spent, _) in others.items()}}
    millions = [cost / 1e6 for cost in costs.values()]
    line = Line("ours", list(range(len(costs))), millions, "bars")
    title = f"{source}, {words}"
    return out, Panel(title, "", "million client-steps", (line,), groups=tuple(costs))


def claim(words: str, way: str) -> str:
    """Return the statement that is compared."""
    return f"{words}: the design costs less than {way}"


def _open(words: str, source: str, why: str) -> list[Comparison]:
    """Return that the statements about a model cannot be compared."""
    return [missing(claim(words, way), "less", source, why) for way in WAYS]


def _report(source: str, parts: Mapping[str, Sequence[Part]], whole: bool) -> Any:
    """Return the report of a table: one design, or with whole the front over all noises."""

    def report(rows: Mapping[str, Rows]) -> Found:
        found: list[tuple[list[Comparison], Panel | None]] = []
        for model in MODELS:
            pre = [rows[p.name] for p in (studies.public(model),) if p.name in rows]
            real = [rows[p.name] for p in parts[model] if p.name in rows]
            if not pre or len(real) < (2 if whole else 1):
                found.append((_open(WORDS[model], source, "it was not run."), None))
                continue
            ours = designed(pre, real)
            if ours is None:
                found.append((_open(WORDS[model], source, TOO_FEW), None))
                continue
            found.append(compared(WORDS[model], source, ours, searched(real)))
        return Found(
            tuple(c for some, _ in found for c in some),
            tuple(panel for _, panel in found if panel),
        )

    return report


ONE = {model: (studies.real(model),) for model in MODELS}
ALL = {model: studies.grid(model) for model in MODELS}


def _parts(real: Mapping[str, Sequence[Part]]) -> tuple[Part, ...]:
    chosen = [p for model in MODELS for p in (studies.public(model), *real[model])]
    return tuple({p.name: p for p in chosen}.values())


EXPERIMENTS = (
    Experiment(
        "gu24-table2", "cost of one design", SEEDS, _parts(ONE), _report("Table II", ONE, False)
    ),
    Experiment(
        "gu24-table3",
        "cost of the whole Pareto set",
        SEEDS,
        _parts(ALL),
        _report("Table III", ALL, True),
    ),
)

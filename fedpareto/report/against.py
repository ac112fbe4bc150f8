"""What a study's points are held against, in sentences and as plain data."""

from __future__ import annotations

import math
from typing import Any

from fedpareto.baselines import never_unprotected
from fedpareto.problem import HasBaselines
from fedpareto.report.choose import Held, aim_of, called
from fedpareto.report.points import View

NEVER = (
    "The same federation without protection is not trained: on private data it would show what the "
    "study is to hide."
)


def against(seen: View) -> list[str]:
    """Return what always giving the same answer, and training unprotected, would come to."""
    measure = aim_of(seen.study.problem, seen.baselines).measure
    found = seen.baselines
    lines = []
    if found.trivial is not None and measure in found.trivial.measures:
        value = found.trivial.measures[measure]
        lines.append(f"Always giving the same answer has {called(measure)} {value:.4g}.")
    if found.unprotected is not None:
        lines.append(_unprotected(found.unprotected, measure, seen.study.repeats))
    elif measure and never_unprotected(seen.study.problem):
        lines.append(NEVER)
    return lines


def _unprotected(held: Held, measure: str, repeats: int) -> str:
    """Return what the federation without protection came to, and with which settings."""
    chosen = ", ".join(
        f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}" for k, v in held.settings.items()
    )
    how = f" with {chosen}" if chosen else ""
    if held.error is not None:
        return f"The same federation without protection failed{how}: {held.error}."
    spread = held.spread.get(measure, 0.0)
    apart = f" ± {spread:.2g}" if repeats > 1 and spread > 0 else ""
    return (
        f"The same federation without protection has {called(measure)} "
        f"{held.measures.get(measure, math.nan):.4g}{apart}{how}: the settings of the trial that "
        f"lost least, trained {repeats} {'times' if repeats > 1 else 'time'}, not counted as a "
        "trial."
    )


def as_data(seen: View) -> dict[str, Any] | None:
    """Return the baselines as plain data, by the measure of the loss; None where there is none."""
    problem = seen.study.problem
    if not isinstance(problem, HasBaselines) or problem.loss is None:
        return None
    measure = problem.loss_measure
    found = seen.baselines
    return {
        "loss": problem.loss.name,
        "measure": measure,
        "trivial": _plain(found.trivial, measure),
        "unprotected": _plain(found.unprotected, measure),
    }


def _plain(held: Held | None, measure: str) -> dict[str, Any] | None:
    if held is None:
        return None
    value = held.measures.get(measure, math.nan)
    spread = held.spread.get(measure, math.nan)
    return {
        "value": value if math.isfinite(value) else None,
        "spread": spread if math.isfinite(spread) else None,
        "settings": held.settings,
        "error": held.error,
    }

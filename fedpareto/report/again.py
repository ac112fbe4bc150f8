"""How rows and evidence are made again, and where evidence is signed."""

from __future__ import annotations

from collections.abc import Mapping

from fedpareto.report.paper import Html, section, table
from fedpareto.report.points import View
from fedpareto.words import in_shell


def signed() -> Html:
    """Return lines to fill in by hand: who decided, and when."""
    rows = [(what, "_" * 30) for what in ("Prepared by", "Reviewed by", "Date", "Signature")]
    return section("Decided by", table(("who", ""), rows, kind="words"))


def run_again(seen: View, name: str) -> str:
    """Return the command that makes the rows of a study again, those that are there and no more."""
    numbers = [*(point.trial for point in seen.points), *(trial.number for trial in seen.failed)]
    trials = max(numbers, default=seen.study.budget - 1) + 1
    return f"fedpareto run {name} --budget {trials} --seed {seen.study.seed}"


def again(name: str, limits: Mapping[str, float], prefer: str | None) -> str:
    """Return the command that writes this evidence again, with what it was asked."""
    asked = [f"--limit {in_shell(f'{goal}={limit!r}')}" for goal, limit in limits.items()]
    asked += [f"--prefer {in_shell(prefer)}"] if prefer else []
    return " ".join([f"fedpareto report {name} --evidence", *asked])

"""A study: a problem, an optimizer and how far to go."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fedpareto.errors import SettingError, shown
from fedpareto.federation import Average, Federation, Sgd
from fedpareto.federation.blocks import UNSAID
from fedpareto.mechanisms import Chain, Encrypts, links_of
from fedpareto.optimizers import Optimizer
from fedpareto.problem import Judge, Problem, limits_of
from fedpareto.settings import rule_of
from fedpareto.space import range_text
from fedpareto.study.sections import LATER, Head
from fedpareto.study.table import plain
from fedpareto.words import notebook_table, visible


@dataclass(frozen=True, repr=False)
class Study:
    """A problem, an optimizer and how far to go."""

    name: str
    problem: Problem
    optimizer: Optimizer
    budget: int
    seed: int = 0
    repeats: int = 1
    in_flight: int = 0  # batches that may be under way beside the first unfinished one
    path: Path | None = None
    description: dict[str, Any] = field(default_factory=dict)  # the file in full, with defaults

    def __post_init__(self) -> None:
        rules = {f.name: rule_of(f) for f in fields(Head)}
        for key in ("budget", "repeats", "seed", "in_flight"):
            found = getattr(self, key)
            broken = rules[key].broken(found)
            if broken:
                raise SettingError(f"study {self.name}: {key} {broken}, found {shown(found)}.")
        if isinstance(self.problem, Federation) and not self.problem.block:
            # rows must be the same however many are left to train: blocks of one size, padded
            object.__setattr__(self, "problem", replace(self.problem, block=UNSAID))

    def __repr__(self) -> str:
        goals = ", ".join(o.name for o in self.problem.objectives)
        names = ", ".join(self.problem.space.names)
        return (
            f"Study({visible(self.name)}: {visible(goals)} over {visible(names)}; "
            f"{type(self.optimizer).__name__}, {self.budget} trials × {self.repeats})"
        )

    def _repr_html_(self) -> str:
        """Return what is asked and searched, as a notebook shows it."""
        goals = [(f"make small: {o.name}", _asked(o)) for o in self.problem.objectives]
        goals += [(f"keep within: {o.name}", _asked(o)) for o in limits_of(self.problem)]
        searched = [(f"search: {v.name}", range_text(v)) for v in self.problem.space.variables]
        return notebook_table(repr(self), [*goals, *searched])

    @property
    def identity(self) -> dict[str, Any]:
        """What makes it this study: everything but its name and how far to go."""
        if not self.description:
            optimizer = {"name": type(self.optimizer).__name__, **plain(self.optimizer)}
            table = {
                "seed": self.seed,
                "repeats": self.repeats,
                "in_flight": self.in_flight,
                "problem": _problem_table(self.problem),
                "optimizer": optimizer,
            }
            return _without_later(table)
        kept = {k: v for k, v in self.description.items() if k not in ("name", "budget")}
        for name in ("objectives", "limits"):  # in order
            tables = kept.get(name, {}).items()
            kept[name] = [{"name": called, **table} for called, table in tables]
        return _without_later(kept)


def _asked(objective: Judge) -> str:
    """Return a measure in words: its limit, and that it is a proxy where it is one."""
    limit = "" if objective.limit is None else f", at most {objective.limit:g}"
    proxy = f"; a proxy ({objective.proxy}), no guarantee" if objective.proxy else ""
    return f"{objective.measure}{limit}{proxy}"


def _problem_table(problem: Problem) -> Any:
    """Return a problem that was built in Python as plain data."""
    if not isinstance(problem, Federation):
        return plain(problem)
    parts = (
        ("server", problem.server, Average(), "average"),
        ("local", problem.local, Sgd(), "sgd"),
    )
    table = plain(problem)
    for name, made, usual, known in parts:
        kind = type(made)
        called = known if made == usual else f"{kind.__module__}:{kind.__qualname__}"
        table[name] = {"name": called, **plain(made)}
    return _without_later(table)


def _without_later(table: dict[str, Any]) -> dict[str, Any]:
    """Return a description without what came later and has the value that it had before."""
    kept = copy.deepcopy(table)
    for path, before in LATER:
        *outer, last = path
        for inner in _within(kept, outer):
            if last in inner and inner[last] == before:
                del inner[last]
    for place in (["mechanism"], ["mechanism", "links"]):
        for inner in _within(kept, place):
            if inner.get("degree") == 2 and inner.get("scheme") == "paillier":
                inner["degree"] = "2, charged as such"  # as 1 before 0.2, so that rows differ
    return kept


def _within(table: Any, path: Sequence[str]) -> list[dict[str, Any]]:
    """Return the tables at a path; there are several where a list of tables lies on it."""
    tables = [table]
    for key in path:
        found = [t.get(key, {}) for t in tables]
        tables = [t for one in found for t in (one if isinstance(one, list) else [one])]
    return [t for t in tables if isinstance(t, dict)]


def encrypted(study: Study) -> Study:
    """Return the study with its encryption run and not only charged.

    The models are the same, so it is the same study.
    """
    problem: Any = study.problem
    links = links_of(problem.mechanism)
    if not any(isinstance(link, Encrypts) for link in links):
        name = study.description["mechanism"]["name"]
        raise SettingError(f"--encrypt: must go with a mechanism that encrypts, found {name}.")
    made = tuple(_encrypting(link) for link in links)
    chained = isinstance(problem.mechanism, Chain)
    mechanism = replace(problem.mechanism, links=made) if chained else made[0]
    return replace(study, problem=replace(problem, mechanism=mechanism))


def _encrypting(link: Any) -> Any:
    if not isinstance(link, Encrypts):
        return link
    return replace(link, encrypt=True)  # type: ignore[type-var]

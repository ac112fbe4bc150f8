"""Views made up for tests of the page: as many trials as asked, with every measure that a federation tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedpareto import Random, Study, view
from fedpareto.federation.measures import MEASURES
from fedpareto.report.points import View
from fedpareto.testing import continuous
from fedpareto.trials import Trial


def made_up(n: int, m: int = 3, seed: int = 0, name: str = "made up", setting: str = "x2", full: bool = False,
            names: tuple[str, ...] = ("loss", "leakage", "shared")) -> View:
    """Return a view of n trials whose front bends, the last objective with a limit; full: with every measure and its spread."""
    random = np.random.default_rng(seed)
    problem = continuous(lambda x: x[:, :m], m, m, limit=0.9, reference=1.0)
    goals = tuple(replace(o, name=label, measure=f"f{j + 1}")
                  for j, (o, label) in enumerate(zip(problem.objectives, names, strict=False)))
    study = Study(name, replace(problem, objectives=goals), Random(), budget=max(n, 1), repeats=3)
    y = 0.02 + 0.98 * random.random((n, m))
    short = 0.8 / np.sqrt(y).sum(axis=1, keepdims=True) ** 2
    y *= np.maximum(short, 1.0) * (1 + 0.2 * random.random((n, 1)))  # nothing much below a front that bends
    return view(study, [_trial(i, row, random, setting, full) for i, row in enumerate(y)])


def _trial(i: int, row: np.ndarray, random: np.random.Generator, setting: str, full: bool) -> Trial:
    settings = {"rate": float(random.random()), setting: int(random.integers(64)), "kind": ["a", "<b>bold</b>"][i % 2]}
    measures = {f"f{j + 1}": float(v) for j, v in enumerate(row)}
    if full:
        settings |= {f"setting_{j}": float(f"{random.random():.12g}") for j in range(4)}
        measures |= dict(zip(MEASURES, map(float, random.lognormal(0, 3, len(MEASURES))), strict=True))
    spread = {k: float(v) for k, v in zip(measures, random.random(len(measures)) * 0.1, strict=True)}
    return Trial(i, i // 10, (0.5, 0.5), settings, "done", measures, spread if full or i % 2 else {})


def proxied(seen: View) -> View:
    """Return a view whose second objective is a proxy."""
    goals = tuple(replace(o, proxy="Kang 2023, Eq. 13") if o.name == "leakage" else o for o in seen.objectives)
    return replace(seen, study=replace(seen.study, problem=replace(seen.study.problem, objectives=goals)))


def address(path: Path) -> str:
    """Return a file's address for a browser."""
    return path.resolve().as_uri()

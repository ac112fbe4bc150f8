"""Kang 2023: the fronts of Fig. 5, and 6.4, what they say about protection mechanisms.

Leakage 0 agrees with "no leakage" if some setting with it has a true ε of at most 10. A front says
that one number rises as another falls if their rank correlation on it is at most −0.9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpareto.front import nondominated
from fedpareto.problem import reference
from fedpareto.reproduce import studies_kang23 as kang
from fedpareto.reproduce.experiment import Comparison, Experiment, Found, Line, Panel, Rows, shown
from fedpareto.reproduce.judge import ALIKE, above, missing, ranks_alike
from fedpareto.reproduce.races import NAMES, PAIRS, front_at, seeds_of, whole_batches
from fedpareto.space import FloatArray

SMALL = 10.0


def fig5(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 5: the fronts after the same number of generations."""
    compared = []
    panels = []
    for mechanism in kang.MECHANISMS:
        of = {a: seeds_of(rows, kang.label("mnist", mechanism, a)) for a in kang.ALGORITHMS}
        for first, second in PAIRS:
            words = f"{mechanism.upper()}: {NAMES[first]}'s front before {NAMES[second]}'s"
            compared.append(_before(words, of[first], of[second]))
        panels += _fronts(mechanism, of)
    return Found(tuple(compared), tuple(panels))


def _before(words: str, first: Sequence[Rows], second: Sequence[Rows]) -> Comparison:
    """Compare how much of each front the other dominates, seed by seed."""
    both = list(zip(first, second, strict=False))
    if not both:
        return missing(words, "better", "Fig. 5", "it was not run.")
    last = min(whole_batches(r) for pair in both for r in pair)
    fronts = [tuple(_front(r, last) for r in pair) for pair in both]
    gained = [_covered(b, a) for a, b in fronts]
    lost = [_covered(a, b) for a, b in fronts]
    found = above(words, "Fig. 5", gained, lost, "better")
    ours = f"dominates {np.mean(gained):.0%} of it, {np.mean(lost):.0%} of its own is dominated"
    return Comparison(words, "better", "Fig. 5", f"{ours}; {found.ours}", found.verdict, found.why)


def _front(rows: Rows, generation: int) -> FloatArray:
    y = front_at(rows, generation)
    return y[nondominated(y)] if len(y) else y


def _covered(these: Any, by: Any) -> float:
    """Return the share of points [n,m] that some point of the other front dominates."""
    if len(these) == 0 or len(by) == 0:
        return 0.0
    better = (by[None] <= these[:, None]).all(2) & (by[None] < these[:, None]).any(2)  # [n,p]
    return float(np.mean(better.any(axis=1)))


def _fronts(mechanism: str, of: Mapping[str, Sequence[Rows]]) -> list[Panel]:
    """Return the fronts of all algorithms, all seeds of one joined, on the first two axes."""
    lines = []
    names: tuple[str, ...] = ()
    for algorithm, studies in of.items():
        if not studies:
            continue
        objectives = studies[0].study.problem.objectives
        names = tuple(o.name.replace("_", " ") for o in objectives)
        y = np.vstack([_front(r, whole_batches(r)) for r in studies])
        y = y[nondominated(y)] * reference(objectives)
        lines.append(Line(NAMES[algorithm], y[:, 1].tolist(), y[:, 0].tolist(), "points"))
    if not lines:
        return []
    return [Panel(mechanism.upper(), names[1], names[0], tuple(lines))]


def mechanisms(rows: Mapping[str, Rows]) -> Found:
    """Report 6.4."""
    of = {
        m: [
            r
            for size in (kang.POPULATION, kang.SMALL)
            for a in kang.ALGORITHMS
            for r in seeds_of(rows, kang.label("mnist", m, a, size))
        ]
        for m in kang.MECHANISMS
    }
    done = [t.measures for r in of["rd"] for t in r.trials if t.state == "done"]
    leakage = np.array([m["kang23_eq13"] for m in done])
    epsilon = np.array([m["epsilon_server"] for m in done])
    compared = (
        _against("RD: leakage rises as the error falls", of["rd"], 1),
        _against("BC: time rises as the error falls", of["bc"], 1),
        _against("SF: leakage rises as the error falls", of["sf"], 1),
        ranks_alike(
            "Eq. 13 ranks settings as the true ε does", "Eq. 13", leakage.tolist(), epsilon.tolist()
        ),
        _at_zero(leakage, epsilon),
    )
    finite = np.isfinite(epsilon)
    points = Line("settings", leakage[finite].tolist(), epsilon[finite].tolist(), "points")
    panel = Panel("randomization", "leakage, Eq. 13", "true ε, each upload seen", (points,), "y")
    return Found(compared, (panel,))


def _against(what: str, studies: Sequence[Rows], axis: int) -> Comparison:
    """Compare the statement that an objective rises along the front as the error falls."""
    from scipy.stats import spearmanr

    source = "6.4 and Fig. 5"
    found = [front_at(r, whole_batches(r)) for r in studies]
    y = np.vstack(found)[:, [0, axis]] if found else np.empty((0, 2))
    y = y[nondominated(y)] if len(y) else y
    if len(y) < 3:
        return missing(what, "rises", source, "the front has fewer than three points.")
    alike = float(spearmanr(y[:, 0], y[:, 1]).statistic)
    objectives = studies[0].study.problem.objectives
    y = y[np.argsort(y[:, 0])] * reference(objectives)[[0, axis]]
    ends = f"error {shown(y[0, 0])} at {shown(y[0, 1])}, {shown(y[-1, 0])} at {shown(y[-1, 1])}"
    said = f"{ends} ({len(y)} points)"
    verdict = "agrees" if alike <= -ALIKE else "differs"
    return Comparison(what, "rises", source, said, verdict, f"{what}: on the front, {said}.")


def _at_zero(leakage: FloatArray, epsilon: FloatArray) -> Comparison:
    what = "leakage 0 is no leakage"
    at = epsilon[leakage == 0]
    if len(at) == 0:
        return missing(what, "0", "Eq. 13", "no setting has leakage 0.")
    said = f"true ε from {shown(float(at.min()))} to {shown(float(at.max()))}"
    why = f"{what}: settings with it have a {said} if the server sees each upload."
    verdict = "agrees" if at.min() <= SMALL else "differs"
    return Comparison(what, "0", "Eq. 13", said, verdict, why)


EXPERIMENTS = (
    Experiment("kang23-fig5", "fronts on Fashion-MNIST", "nothing", kang.searches(), fig5),
    Experiment(
        "kang23-mechanisms",
        "what fronts say about mechanisms",
        "nothing",
        (*kang.searches(), *kang.few_evaluations()),
        mechanisms,
    ),
)

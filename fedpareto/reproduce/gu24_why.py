"""Experiments behind what differs from Gu 2024: what moves k, Eq. 2, and what a design costs.

They are small on purpose: eight noises and two seeds of ten clients, at both scales.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpareto import theory
from fedpareto.contract import expected_cohorts
from fedpareto.privacy import epsilon, gu24_eq2
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
from fedpareto.reproduce.gu24 import PRINTED, PUBLIC, fitted, runs_of
from fedpareto.reproduce.gu24_cases import BOXES
from fedpareto.reproduce.gu24_cost import UNLEARNED
from fedpareto.reproduce.judge import missing
from fedpareto.space import FloatArray

BASE, UNSAID = "as printed", "–"
VARIANTS: dict[str, dict[str, Any]] = {
    BASE: {},
    "learning rate 0.02": {"training.learning_rate": 0.02},
    "clipping norm 0.1": {"mechanism.clipping_norm": 0.1},
}
VIEWS = ("secagg", "release")
CLIENTS = 40  # of Fig. 2
FEW = {"optimizer.points": 8, "optimizer.batch": 8, "budget": 8, "repeats": 2}


def _variant(words: str, changes: Mapping[str, Any]) -> Part:
    usual = studies.part("lr", 10, 1.0, share=0.1)
    name = f"gu24-lr-why-{words.replace(' ', '-')}"
    table = {**usual.changes, **FEW, **changes, "name": name}
    return Part(name, usual.file, table, {}, {"quick": 45.0, "paper": 5.0})


PARTS = {words: _variant(words, changes) for words, changes in VARIANTS.items()}
LENET = studies.grid("lenet")


def readings(rows: Sequence[Rows]) -> dict[str, float]:
    """Return k of the same Pareto points, read in several ways, away from the ends of T."""
    found, estimate = fitted(rows)
    problem: Any = rows[0].study.problem
    points = found.points
    T = points["rounds"].astype(float)
    scaled = points["sigma"] ** 2 / (points["sample_ratio"] * problem.data.clients)
    last = runs_of(rows).loss.shape[2]
    inner = (last / 10 <= T) & (0.9 * last >= T)
    if inner.sum() < 3:
        return {}
    edge = [1 / (t * scaled[t == T].max()) for t in np.unique(T[inner])]
    late = last / 20 <= T
    slope = (scaled[late] / T[late]).sum() / (1 / T[late] ** 2).sum()
    told = {"our fit": estimate.k} if estimate else {}
    return told | {
        "along the upper edge": float(np.median(edge)),
        "geometric mean": float(np.exp(-np.log(scaled[inner] * T[inner]).mean())),
        "least squares": float(1 / slope),
    }


def _read_otherwise(model: str, rows: Sequence[Rows], printed: float) -> Comparison:
    """Say how far k depends on the way that points are read, and whether one gives the paper's."""
    what = f"k of {model}, read in other ways"
    found = readings(rows) if rows else {}
    if not found:
        return missing(what, UNSAID, "V-C", "too few Pareto points, or it was not run.")
    said = ", ".join(f"{way} {shown(k)}" for way, k in found.items())
    low, high = min(found.values()), max(found.values())
    ends = f"{shown(low)} to {shown(high)}"
    place = "below" if printed < low else "above" if printed > high else "within"
    why = (
        f"{what}: the same points give k from {ends}, by how they are read ({said}); the upper "
        f"edge is the most noise of each T. The paper's {shown(printed)} lies {place} them; it "
        "does not say how its line was fitted."
    )
    return Comparison(what, UNSAID, "V-C", said, UNSAID, why)


def _moved(rows: Mapping[str, Rows]) -> tuple[Comparison, Panel | None]:
    """Say what moves k: learning rate and clipping norm."""
    what = "k of LR by learning rate and clipping norm"
    estimates = {w: fitted([rows[p.name]])[1] for w, p in PARTS.items() if p.name in rows}
    kept = {w: e for w, e in estimates.items() if e}
    if BASE not in kept or len(kept) < 2:
        return missing(what, UNSAID, "V-A", "too few Pareto points, or it was not run."), None
    said = ", ".join(
        f"{w} {shown(e.k)} ({shown(e.interval[0])} to {shown(e.interval[1])})"
        for w, e in kept.items()
    )
    ends = [e.interval for e in kept.values()]
    meet = max(low for low, _ in ends) <= min(high for _, high in ends)
    told = "share a value: none is seen to move k" if meet else "do not all share a value"
    why = (
        f"{what}: with two seeds and eight noises k is {said}. The intervals {told} at this size. "
        "The paper's learning rate is printed, its clipping norm is not."
    )
    bars = Line("ours", list(range(len(kept))), [e.k for e in kept.values()], "bars")
    paper = Line("paper", list(range(len(kept))), [PUBLIC["lr"]] * len(kept), of="paper")
    panel = Panel("LR, a tenth of the data", "", "k", (bars, paper), groups=tuple(kept))
    return Comparison(what, UNSAID, "V-A", said, UNSAID, why), panel


def _plateau(rows: Sequence[Rows]) -> Comparison:
    """Say how long LeNet stays where training begins."""
    what = "LeNet stays on the plateau on which training begins"
    if not rows:
        return missing(what, UNSAID, "V-C", "it was not run.")
    runs = runs_of(rows)
    share = float((runs.mean > UNLEARNED).mean())
    ended = theory.until_convergence(runs, whole_front=True)
    rounds = ended.cost.rounds / ended.cost.trainings
    loss = shown(float(ended.points["loss"].min()))
    said = f"{share:.0%} of all rounds; converged after {rounds:.3g} rounds, at a loss of {loss}"
    why = (
        f"{what}: a test loss above {UNLEARNED:g} (guessing has 2.303) in {said} at the least. "
        "There the loss does not fall as 1/T, which Eq. 8 assumes, and whoever waits five rounds "
        "for it to fall stops before anything is learned, at next to no cost."
    )
    return Comparison(what, UNSAID, "V-C", said, UNSAID, why)


def _ranks(problem: Any) -> Comparison:
    """Rank the settings of Fig. 2(a) by Eq. 2, and by Eq. 2 with q under the root."""
    from scipy.stats import spearmanr

    ratios = studies.RATIOS["lr"]
    sigma, q = (a.ravel() for a in np.meshgrid(np.linspace(0.01, 0.15, 15), ratios))
    rounds = int(problem.training.rounds.high)
    norm = problem.mechanism.clipping_norm
    printed = gu24_eq2(sigma, norm, q, rounds, CLIENTS, problem.privacy.delta(CLIENTS))
    true = {view: _epsilons(problem, view, sigma, q) for view in VIEWS}

    def ranked(proxy: FloatArray) -> str:
        both = [f"{float(spearmanr(proxy, true[view]).statistic):.3f}" for view in VIEWS]
        return f"{both[0]} (sums seen) and {both[1]} (models alone seen)"

    what = "Eq. 2 with q in its denominator"
    turned = printed / q  # √(T/(qK))/σ in place of √(qT/K)/σ
    said = f"Spearman {ranked(turned)}; as printed {ranked(printed)}"
    why = (
        f"{what}: {said}, over the {len(q)} settings of Fig. 2(a), without training. More clients "
        "a round hide one another's noise in a sum, which q in the numerator counts the wrong way."
    )
    return Comparison(what, UNSAID, "Eq. 2", said, UNSAID, why)


def _epsilons(problem: Any, view: str, sigma: FloatArray, q: FloatArray) -> FloatArray:
    """Return the true ε of a view after all rounds, for each noise and sample ratio."""
    return epsilon(
        problem.privacy,
        noise=sigma,
        clipping_norm=problem.mechanism.clipping_norm,
        cohort=expected_cohorts(q, CLIENTS, problem.training.sampling),
        clients=CLIENTS,
        rounds=int(problem.training.rounds.high),
        sampling=problem.training.sampling,
        view=view,
    )


def _case_c() -> Comparison:
    """Say which case Fig. 3(c) is by the paper's own k."""
    box = next(b for b in BOXES if b.panel == "c")
    binds = box.paper_k * box.sigma**2 * box.rounds
    share = 10  # q = 1 of ten clients
    what = "the case of Fig. 3(c) by the paper's own k"
    said = f"kσ²T = {shown(binds)} against qK = {share}: case {'III' if binds <= share else 'II'}"
    why = f"{what}: {said}. So it is not a matter of our k."
    return Comparison(what, UNSAID, "Theorem 3", said, UNSAID, why)


def _few_seeds(rows: Rows) -> Comparison:
    """Say what a design costs whose pre-experiment has few seeds, and how well it knows k."""
    what = "LR: the design with a small pre-experiment"
    _, estimate = fitted([rows])
    if estimate is None:
        return missing(what, UNSAID, "Table II", "too few Pareto points.")
    before = theory.full_grid(runs_of([rows])).cost.client_steps
    final = 30 * 200 * 20 * 20  # thirty seeds, 200 rounds, half of 40 clients, 20 steps
    low, high = estimate.interval
    said = (
        f"{before + final:,.0f} client-steps, k {shown(estimate.k)} ({shown(low)} to {shown(high)})"
    )
    why = (
        f"{what}: with eight noises and two seeds, in place of fifteen and thirty, it costs "
        f"{said}. A pre-experiment as large as the searches that it replaces is what costs more "
        "than training until convergence."
    )
    return Comparison(what, UNSAID, "Table II", said, UNSAID, why)


def why(rows: Mapping[str, Rows]) -> Found:
    """Report the experiments."""
    lenet = [rows[p.name] for p in LENET if p.name in rows]
    base = rows.get(PARTS[BASE].name)
    moved, panel = _moved(rows)
    compared = [_read_otherwise("LR", [base] if base else [], PUBLIC["lr"]), moved]
    compared += [_read_otherwise("LeNet", lenet, PRINTED["lenet"]), _plateau(lenet)]
    if base:
        compared += [_ranks(base.study.problem), _case_c(), _few_seeds(base)]
    return Found(tuple(compared), (panel,) if panel else ())


EXPERIMENTS = (
    Experiment(
        "gu24-why",
        "what moves k, and what Eq. 2 ranks",
        "seven of fifteen noises, and 28 of thirty seeds",
        (*PARTS.values(), *LENET),
        why,
    ),
)

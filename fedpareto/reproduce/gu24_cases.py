"""Gu 2024, Fig. 3: the three cases of Theorem 3, each a box of noise and rounds in a grid's runs.

The k is ours, fitted to the widest box of the same federation. The theorem is applied to the grid:
its points are those that Eq. 8 leaves of the noises that were tried. The statement agrees if at
least nine tenths of the points found lie within one noise and a fifth of the rounds of one of its.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto import theory
from fedpareto.reproduce import studies_gu24 as studies
from fedpareto.reproduce.experiment import Comparison, Experiment, Found, Line, Panel, Part, Rows
from fedpareto.reproduce.gu24 import PRINTED, PUBLIC, TOO_FEW, fitted, runs_of
from fedpareto.reproduce.judge import missing
from fedpareto.space import FloatArray

ENOUGH = 0.9
NEAR = 0.2  # of the rounds


@dataclass(frozen=True)
class Box:
    """A panel of Fig. 3: which federation, and how much noise and how many rounds it allows."""

    panel: str
    part: Part
    fitted_on: Part
    sigma: float
    rounds: int
    case: str  # by the paper
    paper_k: float


_LR, _LENET = studies.part("lr", 10, 1.0), studies.part("lenet", 40, 0.125)
BOXES = (
    Box("a", _LR, _LR, 0.15, 200, "I", PUBLIC["lr"]),
    Box("b", _LR, _LR, 0.10, 150, "II", PUBLIC["lr"]),
    Box("c", studies.wide(), _LR, 0.50, 75, "III", PUBLIC["lr"]),
    Box("d", _LENET, _LENET, 0.05, 200, "I", PRINTED["lenet"]),
    Box("e", _LENET, _LENET, 0.035, 150, "II", PRINTED["lenet"]),
    Box("f", _LENET, _LENET, 0.02, 75, "III", PRINTED["lenet"]),
)


def within(runs: theory.Runs, box: Box) -> theory.Runs:
    """Return the runs that lie in a box, their first rounds alone."""
    keep = runs.sigma <= box.sigma * (1 + 1e-9)
    return theory.Runs.of(
        runs.sigma[keep], runs.sample_ratio[keep], runs.loss[keep][:, :, : box.rounds]
    )


def noise_at(rounds: FloatArray, k: float, share: float, most: float) -> FloatArray:
    """Return the noise of Theorem 3 at each T: that of the law, and never above the most."""
    return np.minimum(most, np.sqrt(share / (k * rounds)))


def fig3(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 3."""
    found = [_box(box, rows) for box in BOXES]
    return Found(
        tuple(c for compared, _ in found for c in compared),
        tuple(panel for _, panel in found if panel),
    )


def _box(box: Box, rows: Mapping[str, Rows]) -> tuple[list[Comparison], Panel | None]:
    source = f"Fig. 3({box.panel})"
    what = f"{box.panel}: the points lie on Theorem 3"
    whole = [rows[box.fitted_on.name]] if box.fitted_on.name in rows else []
    estimate = fitted(whole)[1] if whole else None
    if estimate is None or box.part.name not in rows:
        return [missing(what, "on it", source, TOO_FEW)], None
    problem: Any = rows[box.part.name].study.problem
    share = problem.training.sample_ratio * problem.data.clients
    runs = within(runs_of([rows[box.part.name]]), box)
    points = theory.full_grid(runs).points
    T, sigma = points["rounds"].astype(float), points["sigma"]
    on_it = _on_theorem(points, runs, estimate.k, problem.data.clients)
    part = float(on_it.mean())
    words = f"{part:.0%} of {len(on_it)} points near it"
    why = f"{what}: with our k of {estimate.k:.3g}, {words}; {ENOUGH:.0%} are asked for."
    verdict = "agrees" if part >= ENOUGH else "differs"
    compared = [
        Comparison(what, "on it", source, words, verdict, why),
        _case(box, estimate.k, share, source),
    ]
    rounds = np.arange(1, box.rounds + 1, dtype=np.float64)
    lines = (
        Line("found by training", T.tolist(), sigma.tolist(), "points"),
        Line(
            f"paper, k = {box.paper_k:g}",
            rounds.tolist(),
            noise_at(rounds, box.paper_k, share, box.sigma).tolist(),
            of="paper",
        ),
        Line(
            f"ours, k = {estimate.k:.3g}",
            rounds.tolist(),
            noise_at(rounds, estimate.k, share, box.sigma).tolist(),
        ),
    )
    return compared, Panel(source, "rounds T", "σ", lines, log="xy")


def _on_theorem(points: Any, runs: theory.Runs, k: float, clients: int) -> Any:
    """Say which points lie near one that Eq. 8 leaves of the same grid, [n]."""
    T = np.arange(1, runs.loss.shape[2] + 1)
    share = runs.sample_ratio[:, None] * clients
    f1 = 1 / T + k * runs.sigma[:, None] ** 2 / share
    law = theory.full_grid(theory.Runs.of(runs.sigma, runs.sample_ratio, f1[:, None])).points
    tried = np.unique(runs.sigma)
    apart = np.searchsorted(tried, points["sigma"] * (1 - 1e-9))[:, None]
    apart = np.abs(apart - np.searchsorted(tried, law["sigma"] * (1 - 1e-9)))
    later = np.abs(np.log(points["rounds"])[:, None] - np.log(law["rounds"]))
    return ((apart <= 1) & (later <= np.log(1 + NEAR))).any(axis=1)


def _case(box: Box, k: float, share: float, source: str) -> Comparison:
    """Compare the case that the paper calls it with the case by the theorem's formula, our k."""
    what = f"{box.panel}: it is case {box.case}"
    binds = k * box.sigma**2 * box.rounds
    found = "III" if binds <= share else "II"
    said = f"kσ²T = {binds:.3g} against qK = {share:.3g}: case {found}"
    if box.case == "I":
        said += ", since its noise is limited too"
        why = f"{what}: {said}; where the noise has a limit, there is no case I."
        return Comparison(what, box.case, source, said, "open", why)
    verdict = "agrees" if found == box.case else "differs"
    return Comparison(what, box.case, source, said, verdict, f"{what}: by its formula {said}.")


PARTS = tuple({p.name: p for box in BOXES for p in (box.part, box.fitted_on)}.values())
EXPERIMENTS = (
    Experiment(
        "gu24-fig3",
        "the three cases of Theorem 3",
        "LeNet has three seeds for the paper's fifty and eight noises",
        PARTS,
        fig3,
    ),
)

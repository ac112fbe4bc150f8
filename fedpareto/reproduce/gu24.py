"""Gu 2024: noise against rounds on the experimental Pareto set, and the k that it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedpareto import theory
from fedpareto.contract import cohort
from fedpareto.errors import SettingError
from fedpareto.front import hypervolume
from fedpareto.reproduce import studies_gu24 as studies
from fedpareto.reproduce.experiment import (
    Comparison,
    Experiment,
    Found,
    Line,
    Panel,
    Part,
    Rows,
)
from fedpareto.reproduce.judge import missing, number, ranks_alike, too_wide
from fedpareto.settings import largest, least
from fedpareto.space import FloatArray

PRINTED = {"lr": 22.0, "lenet": 110.0, "resnet18": 440.0}  # Fig. 2, caption
PUBLIC = {"lr": 25.0, "lenet": 150.0}  # Fig. 6, caption
WORDS = {"lr": "LR", "lenet": "LeNet", "resnet18": "ResNet-18"}
MODELS = ("lr", "lenet")
ALIKE = 0.95  # of the hypervolume of what is found, to call the predicted front as good
COARSE = 1.03  # by which a grid of noises moves k, beside the interval's own width
TOO_FEW = "too few Pareto points lie inside the box."


def runs_of(rows: Sequence[Rows]) -> theory.Runs:
    """Return the trainings of grids, every round of them."""
    joined: theory.Runs | None = None
    for one in rows:
        problem: Any = one.study.problem
        done = [t for t in one.trials if t.state == "done"]
        ratio = problem.training.sample_ratio
        runs = theory.Runs.of(
            [t.settings["sigma"] for t in done],
            ratio,
            np.array([one.losses[t.number] for t in done]),
            round_steps=round_steps(problem, ratio),
        )
        joined = joined.joined(runs) if joined else runs
    if joined is None:
        raise SettingError("reproduce: must have rows of a grid, found none. Run it first.")
    return joined


def round_steps(problem: Any, ratio: float) -> int:
    """Return the mini-batch steps that the clients of a round take together."""
    steps: int = problem.training.local_steps
    return steps * int(cohort(ratio, problem.data.clients))


def fitted(rows: Sequence[Rows]) -> tuple[theory.Found, theory.Estimate | None]:
    """Return the experimental Pareto set, and k where enough points lie inside the box."""
    problem: Any = rows[0].study.problem
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


def panel(title: str, rows: Sequence[Rows], paper_k: float) -> Panel:
    """Return the Pareto set beside the paper's law and ours, as σ²/(qK) against T."""
    found, estimate = fitted(rows)
    problem: Any = rows[0].study.problem
    points = found.points
    last = int(largest(problem.training.rounds))
    rounds = np.unique(np.geomspace(1, last, 30).round())
    scaled = points["sigma"] ** 2 / (points["sample_ratio"] * problem.data.clients)
    printed = 1 / paper_k / rounds
    lines = [
        Line("found by training", points["rounds"].tolist(), scaled.tolist(), "points"),
        Line(f"paper, k = {paper_k:g}", rounds.tolist(), printed.tolist(), of="paper"),
    ]
    if estimate:
        law = (1 / estimate.k / rounds).tolist()
        lines.append(Line(f"ours, k = {estimate.k:.3g}", rounds.tolist(), law))
    return Panel(title, "rounds T", "σ²/(qK)", tuple(lines), log="xy")


def k_of(what: str, paper_k: float, source: str, rows: Sequence[Rows]) -> Comparison:
    """Compare the paper's k with that of grids."""
    estimate = fitted(rows)[1] if rows else None
    if estimate is None:
        return missing(what, f"{paper_k:g}", source, TOO_FEW)
    low, high = estimate.interval
    return number(what, paper_k, source, estimate.k, (low / COARSE, high * COARSE))


def one_k(claim: str, source: str, rows: Mapping[str, Sequence[Rows]]) -> Comparison:
    """Compare the statement that one k serves several federations: do its intervals meet?"""
    found = {name: fitted(r)[1] for name, r in rows.items()}
    kept = {name: e for name, e in found.items() if e is not None}
    ours = ", ".join(
        f"{name}: {e.k:.3g} ({e.interval[0]:.3g} to {e.interval[1]:.3g})"
        for name, e in kept.items()
    )
    if len(kept) < 2 or len(kept) < len(found):
        out = missing(claim, "the same k", source, TOO_FEW)
        return Comparison(claim, out.paper, source, ours or out.ours, "open", out.why)
    ends = [e.interval for e in kept.values()]
    meet = max(low for low, _ in ends) <= min(high for _, high in ends)
    said = "share" if meet else "do not share"
    why = f"{claim}: the intervals of k {said} a value."
    verdict = "agrees" if meet else "differs"
    if meet and any(map(too_wide, ends)):
        verdict = "open"
        why += " One of them is too wide to call that agreement."
    return Comparison(claim, "the same k", source, ours, verdict, why)


def proxies(rows: Sequence[Rows]) -> tuple[Comparison, ...]:
    """Compare Eq. 2 with the true ε by rank, at the end of every training, for two views."""
    done = [t.measures for r in rows for t in r.trials if t.state == "done"]
    seen = {"epsilon_secagg": "sums are seen", "epsilon_release": "models alone are seen"}
    return tuple(
        ranks_alike(
            f"Eq. 2 ranks settings as the true ε does if {words}",
            "Eq. 2",
            [m["gu24_eq2"] for m in done],
            [m[epsilon] for m in done],
        )
        for epsilon, words in seen.items()
    )


def fig2(model: str, parts: Sequence[Part]) -> Callable[[Mapping[str, Rows]], Found]:
    """Return the report of Figure 2 for one model."""

    def report(rows: Mapping[str, Rows]) -> Found:
        kept = [rows[p.name] for p in parts if p.name in rows]
        compared = [
            k_of(f"k of {WORDS[model]}", PRINTED[model], "Fig. 2, caption", kept),
            *proxies(kept),
        ]
        if model == "lr":
            misprint = [rows[p.name] for p in (studies.momentum(),) if p.name in rows]
            words = "k of LR if the momentum is 0.9 and not 0.09"
            compared.append(k_of(words, PRINTED[model], "Fig. 2, caption", misprint))
        panels = (panel(WORDS[model], kept, PRINTED[model]),) if kept else ()
        return Found(tuple(compared), panels)

    return report


def several(
    claim: str, source: str, chosen: Callable[[str], Sequence[Part]], label: Callable[[Any], str]
) -> Callable[[Mapping[str, Rows]], Found]:
    """Return the report of Figure 4 or 5: several federations of each model, one k."""

    def report(rows: Mapping[str, Rows]) -> Found:
        compared = []
        panels = []
        for model in MODELS:
            kept = [rows[p.name] for p in chosen(model) if p.name in rows]
            named = {label(r.study.problem): [r] for r in kept}
            compared.append(one_k(f"{WORDS[model]}: {claim}", source, named))
            for name, one in named.items():
                panels.append(panel(f"{WORDS[model]}, {name}", one, PUBLIC[model]))
        return Found(tuple(compared), tuple(panels))

    return report


def fig6(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 6: k from a tenth of the data, and how good the front is that it predicts."""
    compared = []
    panels = []
    for model in MODELS:
        small, real = studies.public(model).name, studies.real(model).name
        words = WORDS[model]
        if small not in rows or real not in rows:
            compared.append(missing(f"k of {words}", "", "Fig. 6", "it was not run."))
            continue
        pre, whole = [rows[small]], [rows[real]]
        compared.append(k_of(f"k of {words}", PUBLIC[model], "Fig. 6, caption", pre))
        claim = f"{words}: k of the public data holds for K = 40 and q = 0.5"
        compared.append(one_k(claim, "Fig. 6(b, e)", {"public": pre, "real": whole}))
        compared.append(_predicted(words, pre, whole))
        panels += [
            panel(f"{words}, public data", pre, PUBLIC[model]),
            panel(f"{words}, K = 40, q = 0.5", whole, PUBLIC[model]),
        ]
    return Found(tuple(compared), tuple(panels))


def _predicted(words: str, pre: Sequence[Rows], real: Sequence[Rows]) -> Comparison:
    """Compare the front at the settings that k predicts with the front of the whole grid."""
    what = f"{words}: the predicted front is that of the grid"
    estimate = fitted(pre)[1]
    if estimate is None:
        return missing(what, "the same front", "Fig. 6(c, f)", TOO_FEW)
    runs = runs_of(real)
    problem: Any = real[0].study.problem
    objectives = problem.objectives
    box = np.array([objectives[0].reference, float(runs.leakage.max())])
    clients = problem.data.clients
    share = _volume(runs, _at_law(runs, estimate.k, clients), box) / _volume(runs, None, box)
    said = f"{share:.3f} of its hypervolume"
    close = share >= ALIKE
    why = (
        f"{what}: trained at the noise that k asks for, a σ of the grid at each T, it has {said}; "
        f"{ALIKE:g} is asked for."
    )
    verdict = "agrees" if close else "differs"
    return Comparison(what, "the same front", "Fig. 6(c, f)", said, verdict, why)


def _at_law(runs: theory.Runs, k: float, clients: int) -> list[tuple[int, int]]:
    """Return the nearest σ tried for every T by Theorem 3, as rows and rounds.

    The last T has all noises below it too.
    """
    last = runs.loss.shape[2]
    out = []
    for rounds in range(1, last + 1):
        asked = np.sqrt(runs.sample_ratio * clients / (k * rounds))
        row = int(np.argmin(np.abs(np.log(runs.sigma) - np.log(asked))))
        out.append((row, rounds))
    below = runs.sigma <= runs.sigma[out[-1][0]]
    return out + [(int(row), last) for row in np.flatnonzero(below)]


def _volume(runs: theory.Runs, chosen: Sequence[tuple[int, int]] | None, box: FloatArray) -> float:
    """Return the hypervolume of loss and leakage of chosen rows and rounds, or of all."""
    if chosen is None:
        y = np.stack([runs.mean.ravel(), runs.leakage.ravel()], axis=1)
    else:
        y = np.array([[runs.mean[r, t - 1], runs.leakage[r, t - 1]] for r, t in chosen])
    y = y[np.isfinite(y).all(axis=1)]
    return hypervolume(y / box, np.ones(2))


def _steps(problem: Any) -> str:
    return f"E = {problem.training.local_steps}"


def _clients(problem: Any) -> str:
    ratio = problem.training.sample_ratio
    return f"K = {problem.data.clients}" + ("" if ratio == 1 else f", q = {ratio:g}")


def _both(chosen: Callable[[str], Sequence[Part]]) -> tuple[Part, ...]:
    return tuple(p for model in MODELS for p in chosen(model))


def _pre_and_real(model: str) -> tuple[Part, ...]:
    return (studies.public(model), studies.real(model))


SEEDS = "LeNet has three seeds for the paper's fifty and eight noises"
EXPERIMENTS = (
    Experiment(
        "gu24-fig2a",
        "Pareto set of LR",
        "nothing",
        (*studies.grid("lr"), studies.momentum()),
        fig2("lr", studies.grid("lr")),
    ),
    Experiment(
        "gu24-fig2b",
        "Pareto set of LeNet",
        "seven of the nine sample ratios; three seeds for the paper's fifty, eight noises",
        studies.grid("lenet"),
        fig2("lenet", studies.grid("lenet")),
    ),
    Experiment(
        "gu24-fig2c",
        "Pareto set of ResNet-18",
        "six of the seven sample ratios, four fifths of the data, rounds 41 to 200, 35 of 36 seeds",
        (studies.RESNET,),
        fig2("resnet18", (studies.RESNET,)),
    ),
    Experiment(
        "gu24-fig4",
        "local epochs",
        SEEDS,
        _both(studies.steps),
        several("local epochs have next to no influence", "V-C and Fig. 4", studies.steps, _steps),
    ),
    Experiment(
        "gu24-fig5",
        "number of clients",
        f"{SEEDS}, and half of 40 clients for its 20",
        _both(studies.clients),
        several("clients enter by kσ²T = qK alone", "V-C and Fig. 5", studies.clients, _clients),
    ),
    Experiment("gu24-fig6", "k from a tenth of the data", SEEDS, _both(_pre_and_real), fig6),
)

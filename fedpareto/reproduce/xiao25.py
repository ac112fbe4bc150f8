"""Xiao 2025, Table 1, Fig. 4 and 5: the final populations of FedMOEAC and NSGA-II.

The final population is the last generation. The table's point is not said to be any certain one:
ours is the knee of the front. A distribution is even if its spacing (the standard deviation of the
distances between neighbours) is less than their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpareto.front import knee, nondominated
from fedpareto.problem import feasible, judges, reference
from fedpareto.reproduce import studies_xiao25 as xiao
from fedpareto.reproduce.experiment import Comparison, Experiment, Found, Line, Panel, Rows, shown
from fedpareto.reproduce.judge import above, missing, ranks_alike
from fedpareto.reproduce.races import NAMES, seeds_of, whole_batches
from fedpareto.space import FloatArray
from fedpareto.trials import known_of

TABLE = {  # Table 1: error and size as shares, budget
    "mnist-cnn": {"nsga2": (0.0195, 0.5419, 0.4911), "fedmoeac": (0.0165, 0.3129, 0.1123)},
    "mnist-vgg": {"nsga2": (0.0175, 0.5028, 0.1865), "fedmoeac": (0.0172, 0.3028, 0.1121)},
    "cifar10-cnn": {"nsga2": (0.2926, 0.6027, 0.1228), "fedmoeac": (0.2795, 0.5294, 0.4203)},
    "cifar10-vgg": {"nsga2": (0.2835, 0.4637, 0.0859), "fedmoeac": (0.2775, 0.4569, 0.0441)},
}
AXES = ("error", "size", "budget")
LEARNED = 0.1  # an error that a model of MNIST has learned something to reach


def chosen(rows: Rows) -> list[float] | None:
    """Return the knee of a study's front; the paper does not say which point its table shows."""
    objectives = rows.study.problem.objectives
    known = known_of(rows.study.problem, rows.trials)
    y = known.y[feasible(judges(rows.study.problem), known.judged)]
    if len(y) == 0:
        return None
    y = y[nondominated(y)]
    return [float(v) for v in y[knee(y, reference(objectives))]]


def table1(rows: Mapping[str, Rows]) -> Found:
    """Report Table 1, and at which noise anything is learned."""
    compared = []
    panels = []
    for cell, printed in TABLE.items():
        lines = []
        places = list(range(len(AXES)))
        for algorithm, paper in printed.items():
            studies = seeds_of(rows, f"xiao25-{cell}-{algorithm}")
            found = [point for r in studies if (point := chosen(r)) is not None]
            points = np.array(found)
            words = NAMES[algorithm]
            lines.append(Line(f"{words}, paper", places, paper, "bars", "paper"))
            if found:
                mean = points.mean(axis=0).tolist()
                lines.append(Line(f"{words}, ours", places, mean, "bars"))
            for i, axis in enumerate(AXES):
                ours = points[:, i] if found else np.empty(0)
                compared.append(_cell(f"{cell}: {axis} of {words}", paper[i], ours))
        panels.append(Panel(cell, "", "error, size and budget", tuple(lines), groups=AXES))
    compared += [*_noise(rows), _learned(rows), *_budgets(rows)]
    return Found(tuple(compared), (*panels, *_noise_panel(rows)))


def _cell(what: str, paper: float, ours: FloatArray) -> Comparison:
    """Compare one cell: the paper's number against mean ± two standard deviations over seeds."""
    if len(ours) < 2:
        return missing(what, shown(paper), "Table 1", "it was not run.")
    mean = float(ours.mean())
    spread = float(ours.std(ddof=1))
    inside = abs(paper - mean) <= 2 * spread
    words = "within" if inside else "outside"
    why = f"{what}: the paper's {shown(paper)} lies {words} two deviations of our knee."
    said = f"{shown(mean)} ± {shown(spread)} over {len(ours)} seeds"
    verdict = "agrees" if inside else "differs"
    if inside and 2 * spread > mean / 2:
        verdict = "open"
        why += " They are too wide to call that agreement."
    return Comparison(what, shown(paper), "Table 1", said, verdict, why)


def _noises(rows: Mapping[str, Rows]) -> list[tuple[float, float, float]]:
    """Return noise multiplier, clipping norm and error of the grid over both."""
    if xiao.NOISE.name not in rows:
        return []
    done = [t for t in rows[xiao.NOISE.name].trials if t.state == "done"]
    return [
        (t.settings["noise_multiplier"], t.settings["clipping_norm"], t.measures["test_error"])
        for t in done
    ]


def _noise(rows: Mapping[str, Rows]) -> list[Comparison]:
    """Compare the statement that noise about 6 leaves an error of a few percent."""
    what = "noise about 6 leaves an error of a few percent"
    found = _noises(rows)
    if not found:
        return [missing(what, "0.0165", "5.1 and Table 1", "it was not run.")]
    high = [e for z, _, e in found if z >= 1]
    good = [z for z, _, e in found if e <= LEARNED]
    least = min(e for _, _, e in found)
    said = f"error at least {shown(min(high))} for noise of 1 and more, whatever the clipping norm"
    if good:
        said += f"; at most {LEARNED} up to noise {shown(max(good))}; the least is {shown(least)}"
    verdict = "agrees" if min(high) <= LEARNED else "differs"
    return [Comparison(what, "0.0165", "5.1 and Table 1", said, verdict, f"{what}: {said}.")]


def _learned(rows: Mapping[str, Rows]) -> Comparison:
    """Say how much the searches learn at the paper's noise, and what the knee is then."""
    what = "mnist-cnn: at the paper's noise next to nothing is learned"
    studies = [r for a in xiao.ALGORITHMS for r in seeds_of(rows, f"xiao25-mnist-cnn-{a}")]
    done = [t.measures for r in studies for t in r.trials if t.state == "done"]
    if not done:
        return missing(what, "–", "Table 1", "it was not run.")
    errors, sizes = ([m[name] for m in done] for name in ("test_error", "size_ratio"))
    said = f"the least error of {len(done)} evaluations is {shown(min(errors))}"
    why = (
        f"{what}: {said}, while sizes reach from {shown(min(sizes))} to {shown(max(sizes))}. So "
        "the knee is whatever sends least."
    )
    return Comparison(what, "–", "Table 1", said, "–", why)


def _noise_panel(rows: Mapping[str, Rows]) -> list[Panel]:
    found = sorted(_noises(rows))
    norms = sorted({c for _, c, _ in found})
    lines = tuple(
        Line(
            f"clipping norm {c:g}",
            [z for z, d, _ in found if d == c],
            [e for _, d, e in found if d == c],
        )
        for c in norms
    )
    return [Panel("MNIST, CNN", "noise multiplier", "error", lines, log="xy")] if lines else []


def _budgets(rows: Mapping[str, Rows]) -> list[Comparison]:
    """Compare Table 1's budgets with those of Eq. 7, and Eq. 7 with the true ε."""
    done = [
        t.measures
        for cell in xiao.CELLS
        for a in xiao.ALGORITHMS
        for r in seeds_of(rows, f"xiao25-{cell}-{a}")
        for t in r.trials
        if t.state == "done"
    ]
    what = "Table 1's budgets are reached at noise about 6"
    if not done:
        return [missing(what, "0.0441 to 0.4911", "Table 1", "it was not run.")]
    studies = [r for a in xiao.ALGORITHMS for r in seeds_of(rows, f"xiao25-mnist-cnn-{a}")]
    ranked = ranks_alike(
        "Eq. 7 ranks settings as the true ε does",
        "Eq. 7",
        [m["xiao25_eq7"] for m in done],
        [m["epsilon_server"] for m in done],
    )
    return [*_asked(what, studies), ranked]


def _asked(what: str, studies: Sequence[Rows]) -> list[Comparison]:
    """Return the noise that each budget of MNIST with the CNN asks for, by Eq. 7 in our rows."""
    if not studies:
        return [missing(what, "0.1123, 0.4911", "Table 1", "it was not run.")]
    trial: Any = next(t for t in studies[0].trials if t.state == "done")
    unit = trial.measures["xiao25_eq7"] * trial.settings["noise_multiplier"]
    printed = trial.measures["xiao25_eq7_printed"] * trial.settings["noise_multiplier"]
    budgets = [p[2] for p in TABLE["mnist-cnn"].values()]
    need = ", ".join(f"{shown(b)} at noise {shown(unit / b)}" for b in budgets)
    as_printed = ", ".join(shown(printed / b) for b in budgets)
    rounds = studies[0].study.problem.training.rounds  # type: ignore[attr-defined]
    said = f"with {rounds} rounds {need}; with Eq. 7 as printed at {as_printed}"
    # the paper's noise is N(6, 2.5): above 13.5 lies next to nothing of it
    verdict = "agrees" if all(unit / b <= 13.5 for b in budgets) else "differs"
    return [Comparison(what, "0.4911, 0.1123", "Table 1", said, verdict, f"{what}: {said}.")]


def last_generation(rows: Rows) -> list[Any]:
    """Return the finished trials of the last whole generation."""
    last = whole_batches(rows) - 1
    return [t for t in rows.trials if t.state == "done" and t.batch == last]


def fig4(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 4: the accuracy and loss of the final population."""
    compared = []
    panels = []
    for cell in xiao.CELLS:
        of = {a: seeds_of(rows, f"xiao25-{cell}-{a}") for a in xiao.ALGORITHMS}
        for measure, words in (("test_error", "lower error"), ("test_loss", "lower loss")):
            what = f"{cell}: FedMOEAC's final population has a {words}"
            means = {a: [_mean(r, measure) for r in studies] for a, studies in of.items()}
            n = min(map(len, means.values()))
            if not n:
                compared.append(missing(what, "lower", "Fig. 4", "it was not run."))
                continue
            compared.append(
                above(what, "5.2 and Fig. 4", means["nsga2"][:n], means["fedmoeac"][:n], "lower")
            )
        lines = [
            Line(
                NAMES[a],
                [t.measures["test_loss"] for r in studies for t in last_generation(r)],
                [1 - t.measures["test_error"] for r in studies for t in last_generation(r)],
                "points",
            )
            for a, studies in of.items()
            if studies
        ]
        if lines:
            panels.append(Panel(cell, "test loss", "accuracy", tuple(lines), "x"))
    return Found(tuple(compared), tuple(panels))


def _mean(rows: Rows, measure: str) -> float:
    return float(np.mean([t.measures[measure] for t in last_generation(rows)]))


def fig5(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 5: how evenly the final population lies along the front."""
    compared = []
    panels = []
    for cell in xiao.CELLS:
        studies = seeds_of(rows, f"xiao25-{cell}-fedmoeac")
        what = f"{cell}: FedMOEAC's final population is spread evenly"
        if not studies:
            compared.append(missing(what, "well distributed", "Fig. 5", "it was not run."))
            continue
        ratio = float(np.mean([_unevenness(r) for r in studies]))
        said = f"spacing {shown(ratio)} of the mean distance, over {len(studies)} seeds"
        verdict = "agrees" if ratio < 1 else "differs"
        why = f"{what}: {said}; below 1 is asked for."
        compared.append(Comparison(what, "well distributed", "Fig. 5", said, verdict, why))
        lines = [
            Line(
                NAMES[a],
                [
                    t.measures["xiao25_eq7"]
                    for r in seeds_of(rows, f"xiao25-{cell}-{a}")
                    for t in last_generation(r)
                ],
                [
                    t.measures["size_ratio"]
                    for r in seeds_of(rows, f"xiao25-{cell}-{a}")
                    for t in last_generation(r)
                ],
                "points",
            )
            for a in xiao.ALGORITHMS
        ]
        panels.append(Panel(cell, "privacy budget, Eq. 7", "size", tuple(lines)))
    return Found(tuple(compared), tuple(panels))


def _unevenness(rows: Rows) -> float:
    """Return the spread of distances to the nearest neighbour, over their mean."""
    objectives = rows.study.problem.objectives
    trials = last_generation(rows)
    y = np.array([[t.measures[o.measure] for o in objectives] for t in trials])
    y = y / reference(objectives)
    apart = np.abs(y[:, None] - y[None]).sum(2)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.min(1)
    return float(nearest.std() / nearest.mean()) if nearest.mean() > 0 else np.inf


SMALLER = "nineteen twentieths of the data of MNIST with VGG, nine tenths of CIFAR-10"
EXPERIMENTS = (
    Experiment(
        "xiao25-table1",
        "FedMOEAC and NSGA-II in numbers",
        SMALLER,
        (*xiao.searches(), xiao.NOISE),
        table1,
    ),
    Experiment("xiao25-fig4", "accuracy and loss", SMALLER, xiao.searches(), fig4),
    Experiment("xiao25-fig5", "the final population", SMALLER, xiao.searches(), fig5),
)

"""Optimizers against one another by hypervolume: Kang 2023, Fig. 3, 4, 6 and Xiao 2025, Fig. 3.

Every generation of an algorithm is compared with the same generation of the other, and the verdict
is of the last one that all seeds of both have reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedpareto.front import hypervolume
from fedpareto.problem import feasible, judges, reference
from fedpareto.reproduce import studies_kang23 as kang
from fedpareto.reproduce import studies_xiao25 as xiao
from fedpareto.reproduce.experiment import Comparison, Experiment, Found, Line, Panel, Rows
from fedpareto.reproduce.judge import above, missing
from fedpareto.space import FloatArray
from fedpareto.trials import known_of

UNSAID = "–"  # by the paper
OWN = {"agrees": "above", "differs": "below", "open": "level"}  # a verdict on what no paper says
PAIRS = (("cmofl-nsga2", "mofl-nsga2"), ("cmofl-psl", "mofl-psl"))
NAMES = {
    "cmofl-nsga2": "CMOFL-NSGA-II",
    "mofl-nsga2": "MOFL-NSGA-II",
    "cmofl-psl": "CMOFL-PSL",
    "mofl-psl": "MOFL-PSL",
    "ours": "ours",
    "fedmoeac": "FedMOEAC",
    "nsga2": "NSGA-II",
}


def whole_batches(rows: Rows) -> int:
    """Return how many generations of a study are finished."""
    finished = sum(t.state != "pending" for t in rows.trials)
    return finished // rows.study.optimizer.batch


def front_at(rows: Rows, generation: int) -> FloatArray:
    """Return the points [n,m] within limits found by a generation, in units of the reference."""
    objectives = rows.study.problem.objectives
    known = known_of(rows.study.problem, rows.trials)
    kept = feasible(judges(rows.study.problem), known.judged) & (known.batch < generation)
    return known.y[kept] / reference(objectives)


def volumes(rows: Rows) -> list[float]:
    """Return the share of the reference box that is dominated after each generation."""
    box = np.ones(len(rows.study.problem.objectives))
    return [hypervolume(front_at(rows, g), box) for g in range(1, whole_batches(rows) + 1)]


def seeds_of(rows: Mapping[str, Rows], label: str) -> list[Rows]:
    """Return the studies of an algorithm, one a seed, that finished at least a generation."""
    mine = [r for name, r in rows.items() if name.rsplit("-seed", 1)[0] == label]
    return [r for r in mine if whole_batches(r)]


def compared(
    rows: Mapping[str, Rows], words: str, source: str, first: str, second: str, paper: str = "above"
) -> Comparison:
    """Compare the statement that the first algorithm ends above the second."""
    curves = [[volumes(r) for r in seeds_of(rows, label)] for label in (first, second)]
    both = min(map(len, curves))
    if not both:
        return missing(words, paper, source, "it was not run.")
    last = min(len(c) for curve in curves for c in curve[:both])
    batch = seeds_of(rows, first)[0].study.optimizer.batch
    found = above(
        words,
        source,
        [c[last - 1] for c in curves[0][:both]],
        [c[last - 1] for c in curves[1][:both]],
        paper,
    )
    ours = f"{found.ours}, after {last * batch} evaluations"
    verdict = OWN.get(found.verdict, found.verdict) if paper == UNSAID else found.verdict
    why = f"{found.why} {_kept(rows, first, second)}"
    if all(
        _same(*pair) for pair in zip(*(seeds_of(rows, x) for x in (first, second)), strict=False)
    ):
        why += " They evaluated the very same points."
    return Comparison(words, paper, source, ours, verdict, why)


def _same(one: Rows, other: Rows) -> bool:
    """Say whether two studies evaluated the same points, as far as both go."""
    both = zip(one.trials, other.trials, strict=False)
    return all(a.point == b.point for a, b in both)


def _kept(rows: Mapping[str, Rows], *labels: str) -> str:
    """Return in words how much of what was evaluated lies within limits."""
    shares = []
    for label in labels:
        studies = seeds_of(rows, label)
        shares.append(np.mean([_share_within(r) for r in studies]))
    return f"Within limits were {shares[0]:.0%} and {shares[1]:.0%} of their evaluations."


def _share_within(rows: Rows) -> float:
    known = known_of(rows.study.problem, rows.trials)
    done = ~known.failed
    within = feasible(judges(rows.study.problem), known.judged[done])
    return float(np.mean(within)) if done.any() else 0.0


def panel(rows: Mapping[str, Rows], title: str, labels: Mapping[str, str]) -> Panel | None:
    """Return the mean hypervolume by generation of each algorithm."""
    lines = []
    for label, words in labels.items():
        curves = [volumes(r) for r in seeds_of(rows, label)]
        if curves:
            shortest = min(map(len, curves))
            mean = np.mean([c[:shortest] for c in curves], axis=0)
            lines.append(Line(words, list(range(1, shortest + 1)), mean.tolist()))
    axes = ("generation", "hypervolume / box")
    return Panel(title, *axes, tuple(lines)) if lines else None


def kang_race(
    data: str,
    source: str,
    said: Sequence[tuple[str, str]],
    unsaid: Sequence[tuple[str, str]],
    size: int = kang.POPULATION,
) -> Callable[[Mapping[str, Rows]], Found]:
    """Return a report of who ends above whom, for each mechanism."""

    def report(rows: Mapping[str, Rows]) -> Found:
        out = []
        panels = []
        for mechanism in kang.MECHANISMS:
            upper = mechanism.upper()

            def of(algorithm: str, mechanism: str = mechanism) -> str:
                return kang.label(data, mechanism, algorithm, size)

            for first, second in (*said, *unsaid):
                words = f"{upper}: {NAMES[first]} above {NAMES[second]}"
                paper = UNSAID if (first, second) in unsaid else "above"
                out.append(compared(rows, words, source, of(first), of(second), paper))
            drawn = panel(rows, upper, {of(a): NAMES[a] for a in kang.ALGORITHMS})
            panels += [drawn] if drawn else []
        return Found(tuple(out), tuple(panels))

    return report


def xiao_race(rows: Mapping[str, Rows]) -> Found:
    """Report Figure 3 of Xiao 2025, each cell of Table 1."""
    out = []
    panels = []
    for cell in xiao.CELLS:
        first, second = f"xiao25-{cell}-fedmoeac", f"xiao25-{cell}-nsga2"
        out.append(compared(rows, f"{cell}: FedMOEAC above NSGA-II", "Fig. 3", first, second))
        drawn = panel(rows, cell, {first: "FedMOEAC", second: "NSGA-II"})
        panels += [drawn] if drawn else []
    return Found(tuple(out), tuple(panels))


PSL = (("cmofl-psl", "cmofl-nsga2"),)
OURS = (("ours", "cmofl-psl"), ("ours", "cmofl-nsga2"))
EXPERIMENTS = (
    Experiment(
        "kang23-fig3",
        "CMOFL against MOFL on Fashion-MNIST",
        "nothing",
        kang.searches(),
        kang_race("mnist", "6.2 and Fig. 3", PAIRS, (*PSL, *OURS)),
    ),
    Experiment(
        "kang23-fig4",
        "CMOFL against MOFL on CIFAR-10",
        "nine tenths of the data, 380 of 420 evaluations",
        kang.searches("cifar10"),
        kang_race("cifar10", "6.2 and Fig. 4", PAIRS, (*PSL, *OURS)),
    ),
    Experiment(
        "kang23-fig6",
        "PSL against NSGA-II, five evaluations a generation",
        "nothing",
        kang.few_evaluations(),
        kang_race("mnist", "6.3 and Fig. 6", PSL, OURS, kang.SMALL),
    ),
    Experiment(
        "xiao25-fig3",
        "FedMOEAC against NSGA-II by hypervolume",
        "nineteen twentieths of the data of MNIST with VGG, nine tenths of CIFAR-10",
        xiao.searches(),
        xiao_race,
    ),
)

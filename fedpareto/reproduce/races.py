"""Optimizers against one another by hypervolume: Kang 2023 and Xiao 2025."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedpareto.front import hypervolume
from fedpareto.problem import feasible, judges, reference
from fedpareto.reproduce.experiment import Experiment, Found, Line, Panel, Part, Rows
from fedpareto.reproduce.judge import above
from fedpareto.trials import known_of

SEEDS = (1, 2, 3)
KANG_QUICK = {"data.share": 0.01, "training.local_epochs": 1, "budget": 30}
XIAO_QUICK = {
    "data.share": 0.01,
    "training.rounds": 3,
    "training.evaluate_every": 3,
    "optimizer.population": 5,
    "budget": 10,
}


def volumes(rows: Rows) -> list[float]:
    """Return the share of the reference box that points within limits dominate, by generation."""
    objectives = rows.study.problem.objectives
    known = known_of(rows.study.problem, rows.trials)
    y = known.y / reference(objectives)
    within = feasible(judges(rows.study.problem), known.judged)
    box = np.ones(len(objectives))
    return [hypervolume(y[within & (known.batch <= g)], box) for g in range(known.batches)]


def curves(rows: Mapping[str, Rows], algorithm: str) -> list[list[float]]:
    """Return the hypervolumes of an algorithm, a list a seed."""
    return [volumes(r) for name, r in rows.items() if name.rsplit("-seed", 1)[0] == algorithm]


def race(source: str, pairs: Sequence[tuple[str, str]]) -> Callable[[Mapping[str, Rows]], Found]:
    """Return a report of who ends above whom."""

    def report(rows: Mapping[str, Rows]) -> Found:
        found = {name: curves(rows, name) for pair in pairs for name in pair}
        compared = tuple(
            above(
                f"{first} above {second}",
                source,
                [c[-1] for c in found[first]],
                [c[-1] for c in found[second]],
            )
            for first, second in pairs
        )
        lines = []
        for name, each in found.items():
            mean = np.mean(each, axis=0)
            lines.append(Line(name, list(range(1, len(mean) + 1)), mean.tolist()))
        axes = ("generation", "hypervolume, share of the reference box")
        return Found(compared, (Panel(source, *axes, tuple(lines)),))

    return report


def kang(algorithm: str, seed: int, optimizer: Mapping[str, Any], **quick: Any) -> Part:
    """Return one search of Kang 2023 by one algorithm."""
    name = f"kang23-rd-{algorithm}-seed{seed}"
    budget = 105 if algorithm.endswith("-5") else 420
    changes = {"name": name, "seed": seed, "budget": budget, "optimizer": dict(optimizer)}
    small = KANG_QUICK | {f"optimizer.{key}": value for key, value in quick.items()}
    return Part(name, "kang23-rd.toml", changes, small, {"quick": 8.0, "paper": 150.0})


def _nsga2(algorithm: str, penalty: bool, size: int, quick: int) -> tuple[Part, ...]:
    table = {"name": "nsga2", "population": size, "penalty": penalty}
    return tuple(kang(algorithm, s, table, population=quick) for s in SEEDS)


def _psl(algorithm: str, penalty: bool, size: int, quick: int) -> tuple[Part, ...]:
    table = {"name": "psl", "batch": size, "start": size, "penalty": penalty}
    return tuple(kang(algorithm, s, table, batch=quick, start=quick) for s in SEEDS)


FIG3 = (
    *_nsga2("cmofl-nsga2", True, 20, 10),
    *_nsga2("mofl-nsga2", False, 20, 10),
    *_psl("cmofl-psl", True, 20, 10),
    *_psl("mofl-psl", False, 20, 10),
)
FIG6 = (*_psl("cmofl-psl-5", True, 5, 5), *_nsga2("cmofl-nsga2-5", True, 5, 5))


def xiao(algorithm: str, seed: int) -> Part:
    """Return one search of Xiao 2025 on MNIST with the CNN."""
    name = f"xiao25-mnist-cnn-{algorithm}-seed{seed}"
    optimizer = {"name": algorithm, "population": 10}
    changes = {"name": name, "seed": seed, "optimizer": optimizer}
    expected = {"quick": 40.0, "paper": 1800.0}
    return Part(name, "xiao25-mnist-cnn.toml", changes, XIAO_QUICK, expected)


XIAO = tuple(xiao(a, s) for a in ("fedmoeac", "nsga2") for s in SEEDS[:2])
RD = "kang23-rd-"
MNIST = "xiao25-mnist-cnn-"
EXPERIMENTS = (
    Experiment(
        "kang23-fig3",
        "CMOFL against MOFL on Fashion-MNIST",
        "BC and SF",
        FIG3,
        race(
            "6.2 and Fig. 3",
            [(RD + "cmofl-nsga2", RD + "mofl-nsga2"), (RD + "cmofl-psl", RD + "mofl-psl")],
        ),
    ),
    Experiment(
        "kang23-fig6",
        "PSL against NSGA-II, five evaluations a generation",
        "BC and SF",
        FIG6,
        race("6.3 and Fig. 6", [(RD + "cmofl-psl-5", RD + "cmofl-nsga2-5")]),
    ),
    Experiment(
        "xiao25-fig3",
        "FedMOEAC against NSGA-II by hypervolume",
        "VGG and CIFAR-10",
        XIAO,
        race("5.2 and Fig. 3", [(MNIST + "fedmoeac", MNIST + "nsga2")]),
    ),
)

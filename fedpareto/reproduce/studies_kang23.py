"""The studies of Kang 2023: three mechanisms, each searched by the paper's algorithms and ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedpareto.reproduce.experiment import Part

MECHANISMS = {"bc": "BatchCrypt", "rd": "randomization", "sf": "sparsification"}
SEEDS = (1, 2, 3)
QUICK_SEEDS = (1, 2)
POPULATION = 20
SMALL = 5  # of 6.3
QUICK = {
    "mnist": {
        "data.name": "few-fashion-mnist.npz",
        "training.rounds": 4,
        "training.evaluate_every": 4,
        "training.local_epochs": 1,
        "budget": 15,
    },
    "cifar10": {
        "data.name": "few-cifar10.npz",
        "data.share": 0.2,
        "training.rounds": 2,
        "training.evaluate_every": 2,
        "training.local_epochs": 1,
        "budget": 10,
    },
}
SECONDS = {  # quick and paper
    "mnist": {"bc": (5.0, 120.0), "rd": (5.0, 120.0), "sf": (5.0, 120.0)},
    "cifar10": {"bc": (8.0, 40.0), "rd": (8.0, 30.0), "sf": (8.0, 40.0)},
}
ALGORITHMS = ("cmofl-nsga2", "mofl-nsga2", "cmofl-psl", "mofl-psl", "ours")


def optimizer(algorithm: str, size: int) -> dict[str, Any]:
    """Return the table of an algorithm that proposes so many points at once."""
    if algorithm == "ours":
        return {"name": "bayesian", "batch": size, "start": size}
    penalty = algorithm.startswith("cmofl")
    if algorithm.endswith("nsga2"):
        return {"name": "nsga2", "population": size, "penalty": penalty}
    return {"name": "psl", "batch": size, "start": size, "penalty": penalty}


def search(data: str, mechanism: str, algorithm: str, seed: int, size: int = POPULATION) -> Part:
    """Return one search of one mechanism by one algorithm."""
    start = "kang23-cifar10" if data == "cifar10" else "kang23"
    name = f"{label(data, mechanism, algorithm, size)}-seed{seed}"
    changes: dict[str, Any] = {
        "name": name,
        "seed": seed,
        "optimizer": optimizer(algorithm, size),
    }
    if size == SMALL:
        changes["budget"] = 105
    small: Mapping[str, Any] | None = None
    if seed in QUICK_SEEDS:
        few = min(size, 5)
        small = {**QUICK[data], "optimizer": optimizer(algorithm, few)}
    quick, paper = SECONDS[data][mechanism]
    seconds = {"quick": quick, "paper": paper * (0.5 if size == SMALL else 1.0)}
    lender = ""
    if algorithm.startswith("mofl"):  # its points are those of CMOFL until a limit binds
        lender = f"{label(data, mechanism, f'c{algorithm}', size)}-seed{seed}"
    return Part(name, f"{start}-{mechanism}.toml", changes, small, seconds, lender)


def label(data: str, mechanism: str, algorithm: str, size: int = POPULATION) -> str:
    """Return the name of a search without its seed."""
    start = "kang23-cifar10" if data == "cifar10" else "kang23"
    few = f"-{size}" if size == SMALL else ""
    return f"{start}-{mechanism}-{algorithm}{few}"


def searches(data: str = "mnist") -> tuple[Part, ...]:
    """Return all searches of Fig. 3 (Fashion-MNIST) or Fig. 4 (CIFAR-10)."""
    return tuple(search(data, m, a, s) for m in MECHANISMS for a in ALGORITHMS for s in SEEDS)


def few_evaluations() -> tuple[Part, ...]:
    """Return the searches of five evaluations a generation: Fig. 6."""
    chosen = ("cmofl-psl", "cmofl-nsga2", "ours")
    return tuple(search("mnist", m, a, s, SMALL) for m in MECHANISMS for a in chosen for s in SEEDS)

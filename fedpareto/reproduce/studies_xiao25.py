"""The studies of Xiao 2025: two data sets, two models, FedMOEAC and NSGA-II."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedpareto.reproduce.experiment import Part

ALGORITHMS = ("fedmoeac", "nsga2")
CELLS = ("mnist-cnn", "mnist-vgg", "cifar10-cnn", "cifar10-vgg")
SEEDS = {
    "mnist-cnn": (1, 2, 3),
    "mnist-vgg": (1, 2, 3),
    "cifar10-cnn": (1, 2),
    "cifar10-vgg": (1, 2),
}
SECONDS = {  # quick and paper
    "mnist-cnn": (20.0, 80.0),
    "mnist-vgg": (20.0, 60.0),
    "cifar10-cnn": (20.0, 40.0),
    "cifar10-vgg": (20.0, 80.0),
}
QUICK_SEEDS = (1, 2)
QUICK: dict[str, Any] = {
    "training.rounds": 1,
    "training.evaluate_every": 1,
    "training.local_epochs": 1,
    "optimizer.population": 5,
    "budget": 10,
}


def search(cell: str, algorithm: str, seed: int) -> Part:
    """Return one search of one cell of Table 1 by one algorithm."""
    name = f"xiao25-{cell}-{algorithm}-seed{seed}"
    changes = {
        "name": name,
        "seed": seed,
        "optimizer": {"name": algorithm, "population": 10},
    }
    small: Mapping[str, Any] | None = None
    if seed in QUICK_SEEDS:
        data, model = cell.split("-")
        share = 0.2 if model == "vgg" else 0.5
        small = {**QUICK, "data.name": f"few-{data}.npz", "data.share": share}
    quick, paper = SECONDS[cell]
    seconds = {"quick": quick, "paper": paper}
    return Part(name, f"xiao25-{cell}.toml", changes, small, seconds)


def searches() -> tuple[Part, ...]:
    """Return all searches of Table 1."""
    return tuple(search(c, a, s) for c in CELLS for a in ALGORITHMS for s in SEEDS[c])


NOISE = Part(
    "xiao25-mnist-cnn-noise",
    "xiao25-mnist-cnn.toml",
    {
        "name": "xiao25-mnist-cnn-noise",
        "training.rounds": 5,
        "training.evaluate_every": 5,
        "mechanism.links.0.noise_multiplier": {"low": 1e-4, "high": 10.0, "log": True},
        "mechanism.links.0.clipping_norm": {"choices": [0.01, 0.1, 1.0, 10.0]},
        "mechanism.links.1.prune_rate": 0.0,
        "mechanism.links.2.bits": 32,
        "optimizer": {"name": "grid", "points": 11, "batch": 44},
        "budget": 44,
    },
    {
        "data.name": "few-mnist.npz",
        "training.rounds": 2,
        "training.evaluate_every": 2,
        "optimizer": {"name": "grid", "points": 4, "batch": 16},
        "budget": 16,
    },
    {"quick": 30.0, "paper": 30.0},
)

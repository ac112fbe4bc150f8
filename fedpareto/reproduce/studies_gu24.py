"""The studies of Gu 2024: grids over the noise, one for each federation and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedpareto.reproduce.experiment import Part

RATIOS = {  # Fig. 2, caption; LeNet has two of its nine
    "lr": (0.125, 0.2, 0.375, 0.4, 0.45, 0.55, 0.625),
    "lenet": (0.125, 0.5),
}
QUICK_RATIOS = {"lr": (0.125, 0.375, 0.625), "lenet": (0.125, 0.5)}
QUICK: dict[str, Mapping[str, Any]] = {
    "lr": {
        "repeats": 3,
        "training.rounds": [1, 60],
        "optimizer.points": 8,
        "optimizer.batch": 8,
        "budget": 8,
    },
    "lenet": {
        "repeats": 1,
        "training.rounds": [1, 6],
        "training.local_steps": 1,
        "training.batch_size": 16,
        "data.name": "few-mnist.npz",
        "optimizer.points": 4,
        "optimizer.batch": 4,
        "budget": 4,
    },
}
SECONDS = {"lr": {"quick": 15.0, "paper": 30.0}, "lenet": {"quick": 15.0, "paper": 60.0}}


def part(
    model: str,
    clients: int,
    ratio: float,
    *,
    steps: int = 20,
    share: float = 1.0,
    quick: bool = True,
) -> Part:
    """Return a grid over σ at one sample ratio."""
    name = f"gu24-{model}-K{clients}-q{ratio:g}-E{steps}" + ("" if share == 1 else "-public")
    changes = {
        "name": name,
        "data.clients": clients,
        "data.share": share,
        "training.sample_ratio": ratio,
        "training.local_steps": steps,
    }
    small = QUICK[model] if quick else None
    return Part(name, f"gu24-{model}.toml", changes, small, SECONDS[model])


def grid(model: str) -> tuple[Part, ...]:
    """Return the grid over σ and the sample ratio: Fig. 2."""
    return tuple(part(model, 40, q, quick=q in QUICK_RATIOS[model]) for q in RATIOS[model])


def steps(model: str) -> tuple[Part, ...]:
    """Return the grids for several numbers of local steps: Fig. 4."""
    return tuple(part(model, 10, 1.0, steps=e) for e in (5, 10, 20))


def clients(model: str) -> tuple[Part, ...]:
    """Return the grids for several numbers of clients: Fig. 5. LeNet has half of 40 for its 20."""
    last = part(model, 20, 1.0) if model == "lr" else real(model)
    return (part(model, 5, 1.0), part(model, 10, 1.0), last)


def public(model: str) -> Part:
    """Return the pre-experiment on a tenth of the data: Fig. 6."""
    return part(model, 10, 1.0, share=0.1)


def real(model: str) -> Part:
    """Return the federation that the pre-experiment is for: Fig. 6 and Table II."""
    return part(model, 40, 0.5)


def wide(model: str = "lr") -> Part:
    """Return the grid whose noise goes to 0.50: Fig. 3(c)."""
    usual = part(model, 10, 1.0)
    name = f"{usual.name}-wide"
    changes = {"name": name, "mechanism.sigma": [0.01, 0.5], "training.rounds": [1, 75]}
    return Part(name, usual.file, {**usual.changes, **changes}, usual.quick, usual.seconds)


def momentum() -> Part:
    """Return the grid with a momentum of 0.9, in case that the paper's 0.09 is a misprint."""
    usual = part("lr", 10, 1.0)
    name = f"{usual.name}-momentum0.9"
    changes = {"name": name, "training.momentum": 0.9, "repeats": 3}
    return Part(name, usual.file, {**usual.changes, **changes}, usual.quick, usual.seconds)


RESNET = Part(
    "gu24-resnet18",
    "gu24-resnet18.toml",
    {"name": "gu24-resnet18"},
    {
        "data.name": "few-cifar10.npz",
        "data.share": 0.2,
        "training.rounds": [1, 2],
        "training.local_steps": 1,
        "training.batch_size": 4,
        "optimizer.points": 3,
        "optimizer.batch": 3,
        "budget": 3,
    },
    {"quick": 60.0, "paper": 150.0},
)


def of(model: str, parts: Sequence[Part]) -> list[str]:
    """Return the names of the studies with one model."""
    return [p.name for p in parts if p.name.startswith(f"gu24-{model}-")]

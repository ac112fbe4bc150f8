"""Find the best trade-offs between privacy, utility and cost in federated learning; choose one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedpareto.threads import wait_passively

__version__ = "0.1.0"

_HOMES = {
    "BatchCrypt": "mechanisms",
    "Chain": "mechanisms",
    "Choice": "space",
    "Cost": "federation",
    "Data": "federation",
    "Dataset": "federation",
    "Federation": "federation",
    "FedparetoError": "errors",
    "Float": "space",
    "History": "history",
    "Integer": "space",
    "load_study": "study",
    "Lr": "federation",
    "Mlp": "federation",
    "Nsga2": "optimizers",
    "Objective": "problem",
    "on_ray": "executors",
    "Optimizer": "optimizers",
    "pick": "report",
    "plan": "privacy",
    "Privacy": "privacy",
    "Problem": "problem",
    "Pruning": "mechanisms",
    "Quantization": "mechanisms",
    "Random": "optimizers",
    "Randomization": "mechanisms",
    "run": "loop",
    "Space": "space",
    "Sparsification": "mechanisms",
    "Store": "store",
    "Study": "study",
    "train": "keep",
    "Trained": "keep",
    "Training": "federation",
    "Upload": "mechanisms",
    "verify": "loop",
    "View": "report",
    "view": "report",
    "write_page": "report",
}

__all__ = [*sorted(_HOMES)]

wait_passively()


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that importing fedpareto costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedpareto' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedpareto.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])


if TYPE_CHECKING:
    from fedpareto.errors import FedparetoError as FedparetoError
    from fedpareto.executors import on_ray as on_ray
    from fedpareto.federation import Cost as Cost
    from fedpareto.federation import Data as Data
    from fedpareto.federation import Dataset as Dataset
    from fedpareto.federation import Federation as Federation
    from fedpareto.federation import Lr as Lr
    from fedpareto.federation import Mlp as Mlp
    from fedpareto.federation import Training as Training
    from fedpareto.history import History as History
    from fedpareto.keep import Trained as Trained
    from fedpareto.keep import train as train
    from fedpareto.loop import run as run
    from fedpareto.loop import verify as verify
    from fedpareto.mechanisms import BatchCrypt as BatchCrypt
    from fedpareto.mechanisms import Chain as Chain
    from fedpareto.mechanisms import Pruning as Pruning
    from fedpareto.mechanisms import Quantization as Quantization
    from fedpareto.mechanisms import Randomization as Randomization
    from fedpareto.mechanisms import Sparsification as Sparsification
    from fedpareto.mechanisms import Upload as Upload
    from fedpareto.optimizers import Nsga2 as Nsga2
    from fedpareto.optimizers import Optimizer as Optimizer
    from fedpareto.optimizers import Random as Random
    from fedpareto.privacy import Privacy as Privacy
    from fedpareto.privacy import plan as plan
    from fedpareto.problem import Objective as Objective
    from fedpareto.problem import Problem as Problem
    from fedpareto.report import View as View
    from fedpareto.report import pick as pick
    from fedpareto.report import view as view
    from fedpareto.report import write_page as write_page
    from fedpareto.space import Choice as Choice
    from fedpareto.space import Float as Float
    from fedpareto.space import Integer as Integer
    from fedpareto.space import Space as Space
    from fedpareto.store import Store as Store
    from fedpareto.study import Study as Study
    from fedpareto.study import load_study as load_study

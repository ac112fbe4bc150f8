"""Find the best trade-offs between privacy, utility and cost in federated learning; choose one."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedpareto.threads import wait_passively

__version__ = "0.2.0"

_HOMES = {
    "Adam": "federation",
    "Average": "federation",
    "BatchCrypt": "mechanisms",
    "Bayesian": "optimizers",
    "Chain": "mechanisms",
    "Choice": "space",
    "Cnn": "federation.models",
    "Cost": "federation",
    "Data": "federation",
    "Dataset": "federation",
    "DpSgd": "federation",
    "Federation": "federation",
    "FedMoeac": "optimizers",
    "FedparetoError": "errors",
    "Float": "space",
    "Grid": "optimizers",
    "History": "history",
    "Integer": "space",
    "Lenet": "federation.models",
    "Lenet5": "federation.models",
    "load_study": "study",
    "Lr": "federation",
    "Mlp": "federation",
    "Momentum": "federation",
    "Nsga2": "optimizers",
    "Objective": "problem",
    "on_ray": "executors",
    "OneOf": "federation.servers",
    "Optimizer": "optimizers",
    "pick": "report",
    "plan": "privacy",
    "Point": "report",
    "Privacy": "privacy",
    "Problem": "problem",
    "progress": "report.progress",
    "Pruning": "mechanisms",
    "Psl": "optimizers",
    "QLogNehvi": "optimizers",
    "Quantization": "mechanisms",
    "Random": "optimizers",
    "Randomization": "mechanisms",
    "Resnet18": "federation.models",
    "run": "loop",
    "Space": "space",
    "Sparsification": "mechanisms",
    "Store": "store",
    "Study": "study",
    "train": "keep",
    "Trained": "keep",
    "Training": "federation",
    "Unprotected": "mechanisms",
    "Upload": "mechanisms",
    "verify": "loop",
    "Vgg": "federation.models",
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
    from fedpareto.federation import Adam as Adam
    from fedpareto.federation import Average as Average
    from fedpareto.federation import Cost as Cost
    from fedpareto.federation import Data as Data
    from fedpareto.federation import Dataset as Dataset
    from fedpareto.federation import DpSgd as DpSgd
    from fedpareto.federation import Federation as Federation
    from fedpareto.federation import Lr as Lr
    from fedpareto.federation import Mlp as Mlp
    from fedpareto.federation import Momentum as Momentum
    from fedpareto.federation import Training as Training
    from fedpareto.federation.models import Cnn as Cnn
    from fedpareto.federation.models import Lenet as Lenet
    from fedpareto.federation.models import Lenet5 as Lenet5
    from fedpareto.federation.models import Resnet18 as Resnet18
    from fedpareto.federation.models import Vgg as Vgg
    from fedpareto.federation.servers import OneOf as OneOf
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
    from fedpareto.mechanisms import Unprotected as Unprotected
    from fedpareto.mechanisms import Upload as Upload
    from fedpareto.optimizers import Bayesian as Bayesian
    from fedpareto.optimizers import FedMoeac as FedMoeac
    from fedpareto.optimizers import Grid as Grid
    from fedpareto.optimizers import Nsga2 as Nsga2
    from fedpareto.optimizers import Optimizer as Optimizer
    from fedpareto.optimizers import Psl as Psl
    from fedpareto.optimizers import QLogNehvi as QLogNehvi
    from fedpareto.optimizers import Random as Random
    from fedpareto.privacy import Privacy as Privacy
    from fedpareto.privacy import plan as plan
    from fedpareto.problem import Objective as Objective
    from fedpareto.problem import Problem as Problem
    from fedpareto.report import Point as Point
    from fedpareto.report import View as View
    from fedpareto.report import pick as pick
    from fedpareto.report import view as view
    from fedpareto.report import write_page as write_page
    from fedpareto.report.progress import progress as progress
    from fedpareto.space import Choice as Choice
    from fedpareto.space import Float as Float
    from fedpareto.space import Integer as Integer
    from fedpareto.space import Space as Space
    from fedpareto.store import Store as Store
    from fedpareto.study import Study as Study
    from fedpareto.study import load_study as load_study

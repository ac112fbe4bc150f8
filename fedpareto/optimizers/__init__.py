"""Ways to search, one per file."""

from fedpareto.optimizers.base import Optimizer
from fedpareto.optimizers.nsga2 import Nsga2
from fedpareto.optimizers.random import Random

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "nsga2": Nsga2,
    "random": Random,
}

__all__ = ["OPTIMIZERS", "Nsga2", "Optimizer", "Random"]

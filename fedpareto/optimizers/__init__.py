"""Ways to search, one per file."""

from fedpareto.optimizers.base import (
    AsksWhatIsKnown,
    ChoosesRepeats,
    Finishes,
    Optimizer,
    StartsAround,
)
from fedpareto.optimizers.bayesian import Bayesian
from fedpareto.optimizers.clustering import FedMoeac
from fedpareto.optimizers.grid import Grid
from fedpareto.optimizers.nehvi import QLogNehvi
from fedpareto.optimizers.nsga2 import Nsga2
from fedpareto.optimizers.psl import Psl
from fedpareto.optimizers.random import Random

OPTIMIZERS: dict[str, type[Optimizer]] = {
    "bayesian": Bayesian,
    "fedmoeac": FedMoeac,
    "grid": Grid,
    "nsga2": Nsga2,
    "psl": Psl,
    "qlognehvi": QLogNehvi,
    "random": Random,
}

__all__ = [
    "OPTIMIZERS",
    "AsksWhatIsKnown",
    "Bayesian",
    "ChoosesRepeats",
    "FedMoeac",
    "Finishes",
    "Grid",
    "Nsga2",
    "Optimizer",
    "Psl",
    "QLogNehvi",
    "Random",
    "StartsAround",
]

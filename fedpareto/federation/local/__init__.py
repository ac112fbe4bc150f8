"""How a client takes one mini-batch step, one way per file."""

from fedpareto.federation.local.base import LocalStep, MiniBatch
from fedpareto.federation.local.sgd import Sgd

LOCAL_STEPS: dict[str, type[LocalStep]] = {"sgd": Sgd}

__all__ = ["LOCAL_STEPS", "LocalStep", "MiniBatch", "Sgd"]

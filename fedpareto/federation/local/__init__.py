"""How a client takes one mini-batch step, one way per file."""

from fedpareto.federation.local.base import ClipsRecords, LocalStep, MiniBatch
from fedpareto.federation.local.dp_sgd import DpSgd
from fedpareto.federation.local.sgd import Sgd

LOCAL_STEPS: dict[str, type[LocalStep]] = {"sgd": Sgd, "dp_sgd": DpSgd}

__all__ = ["LOCAL_STEPS", "ClipsRecords", "DpSgd", "LocalStep", "MiniBatch", "Sgd"]

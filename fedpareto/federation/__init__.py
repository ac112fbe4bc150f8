"""Federated learning, many federations at once."""

from fedpareto.federation.cost import Cost
from fedpareto.federation.data import Data, Dataset
from fedpareto.federation.measures import MEASURES, Measure
from fedpareto.federation.models import MODELS, Lr, Mlp, Model, Own
from fedpareto.federation.problem import Federation
from fedpareto.federation.training import Training

__all__ = [
    "MEASURES",
    "MODELS",
    "Cost",
    "Data",
    "Dataset",
    "Federation",
    "Lr",
    "Measure",
    "Mlp",
    "Model",
    "Own",
    "Training",
]

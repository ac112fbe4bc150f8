"""Federated learning, many federations at once."""

from fedpareto.federation.cost import Cost
from fedpareto.federation.data import Data, Dataset
from fedpareto.federation.local import LOCAL_STEPS, ClipsRecords, DpSgd, LocalStep, Sgd
from fedpareto.federation.looked import Unseen, is_unseen, known_alike
from fedpareto.federation.losses import LOSSES, Loss
from fedpareto.federation.measure import CASES, Measure
from fedpareto.federation.measures import MEASURES
from fedpareto.federation.models import MODELS, Lr, Mlp, Model, Own
from fedpareto.federation.observer import Observer
from fedpareto.federation.problem import Federation
from fedpareto.federation.servers import SERVERS, Adam, Average, Momentum, ServerStep
from fedpareto.federation.training import Training

__all__ = [
    "CASES",
    "LOCAL_STEPS",
    "LOSSES",
    "MEASURES",
    "MODELS",
    "SERVERS",
    "Adam",
    "Average",
    "ClipsRecords",
    "Cost",
    "Data",
    "Dataset",
    "DpSgd",
    "Federation",
    "LocalStep",
    "Loss",
    "Lr",
    "Measure",
    "Mlp",
    "Model",
    "Momentum",
    "Observer",
    "Own",
    "ServerStep",
    "Sgd",
    "Training",
    "Unseen",
    "is_unseen",
    "known_alike",
]

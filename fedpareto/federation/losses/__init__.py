"""What local training makes small: a loss of each record, one per file."""

from fedpareto.federation.losses.base import Loss
from fedpareto.federation.losses.cross_entropy import CrossEntropy
from fedpareto.federation.losses.mse import Mse
from fedpareto.federation.losses.own import OwnLoss

LOSSES: dict[str, type[Loss]] = {"cross_entropy": CrossEntropy, "mse": Mse}


def loss_of(name: str) -> Loss:
    """Return the loss of this name, or the user's own by dotted path."""
    return LOSSES[name]() if name in LOSSES else OwnLoss(name)


__all__ = ["LOSSES", "CrossEntropy", "Loss", "Mse", "OwnLoss", "loss_of"]

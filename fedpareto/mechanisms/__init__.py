"""How clients protect what they send, one mechanism per file."""

from fedpareto.mechanisms.base import Mechanism, Upload
from fedpareto.mechanisms.batchcrypt import BatchCrypt
from fedpareto.mechanisms.capabilities import (
    AddsGaussian,
    Encrypts,
    KnowsCosts,
    LimitsSummands,
    Linked,
    NeedsEveryone,
    StatesLoss,
    ThinsOut,
    adds_noise,
    hides_updates,
    links_of,
    needs_everyone,
    noise_comes_last,
    states_loss,
    thins_out,
)
from fedpareto.mechanisms.chain import Chain
from fedpareto.mechanisms.none import Unprotected
from fedpareto.mechanisms.pruning import Pruning
from fedpareto.mechanisms.quantization import Quantization
from fedpareto.mechanisms.randomization import Randomization
from fedpareto.mechanisms.sparsification import Sparsification

MECHANISMS: dict[str, type[Mechanism]] = {
    "none": Unprotected,
    "randomization": Randomization,
    "sparsification": Sparsification,
    "pruning": Pruning,
    "quantization": Quantization,
    "batchcrypt": BatchCrypt,
    "chain": Chain,
}

__all__ = [
    "MECHANISMS",
    "AddsGaussian",
    "BatchCrypt",
    "Chain",
    "Encrypts",
    "KnowsCosts",
    "LimitsSummands",
    "Linked",
    "Mechanism",
    "NeedsEveryone",
    "Pruning",
    "Quantization",
    "Randomization",
    "Sparsification",
    "StatesLoss",
    "ThinsOut",
    "Unprotected",
    "Upload",
    "adds_noise",
    "hides_updates",
    "links_of",
    "needs_everyone",
    "noise_comes_last",
    "states_loss",
    "thins_out",
]

"""How clients protect what they send, one mechanism per file."""

from fedpareto.mechanisms.base import Mechanism, Upload, adds_noise, links_of
from fedpareto.mechanisms.batchcrypt import BatchCrypt
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

__all__ = ["MECHANISMS", "BatchCrypt", "Chain", "Mechanism", "Pruning", "Quantization", "Randomization", "Sparsification", "Unprotected",
           "Upload",
           "adds_noise", "links_of"]

"""How clients protect what they send, one mechanism per file."""

from fedpareto.mechanisms.base import Mechanism, Upload
from fedpareto.mechanisms.randomization import Randomization

MECHANISMS: dict[str, type[Mechanism]] = {
    "randomization": Randomization,
}

__all__ = ["MECHANISMS", "Mechanism", "Randomization", "Upload"]

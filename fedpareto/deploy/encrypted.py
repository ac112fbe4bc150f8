"""What both sides of encrypted sums agree on: the codec, the clip, the label, and what a sum is.

A round has two messages. Sites first tell how far their updates spread, so that all quantise by
one clip; then each sends whole numbers, encrypted. The server adds what it cannot read and hands
the sums out. The model lives at the sites, which decrypt each sum and take the server's step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedpareto.crypto.quantiser import clip_ratio
from fedpareto.deploy.deployment import Deployment
from fedpareto.deploy.parts import encryption_of
from fedpareto.errors import DeploymentError, shown
from fedpareto.federation.block import Block
from fedpareto.mechanisms import BatchCrypt

MOST_SUMS = 64  # sums that one message carries; who missed more is sent the rest afterwards


@dataclass(frozen=True)
class Summed:
    """What came of a round: an encrypted sum, of how many uploads, quantised by which clip."""

    count: int
    clip: float
    data: bytes  # nothing where nobody came

    def put(self, t: int) -> dict[str, Any]:
        """Return it as the fields of a message."""
        return {f"count{t}": self.count, f"clip{t}": self.clip, f"sum{t}": self.data}


def taken(message: Mapping[str, Any], t: int) -> Summed:
    """Return the sum of a round that a message carries; refuse anything else."""
    count, clip, data = (message.get(f"{name}{t}") for name in ("count", "clip", "sum"))
    whole = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**31
    if not whole or not _size(clip) or not isinstance(data, bytes) or bool(data) != (count != 0):
        raise DeploymentError(
            f"sum of round {t + 1}: must be bytes, with a count and a finite clip, found "
            f"{shown(data)[:40]}, {shown(count)} and {shown(clip)}."
        )
    return Summed(count, float(clip), data)  # type: ignore[arg-type]


def batchcrypt(agreed: Deployment) -> BatchCrypt:
    """Return how sums are encrypted."""
    found = encryption_of(agreed)
    assert found is not None
    return found


def check_bits(agreed: Deployment, bits: int) -> None:
    """Refuse a Paillier key of another length than was agreed."""
    wanted = batchcrypt(agreed).key_bits
    if bits != wanted:
        raise DeploymentError(
            f"key: must have {wanted} bits, as was agreed, found {bits}. Make one with fedpareto "
            f"keys make sums.key --bits {wanted}."
        )


def codec_of(agreed: Deployment) -> Any:
    """Return how whole numbers lie in plaintexts."""
    batch = int(agreed.columns["encryption_batch"][0])
    return batchcrypt(agreed).codec(batch, int(agreed.terms.most[0]))


def least_summed(agreed: Deployment) -> int:
    """Return how many uploads a sum has at least, if there are any, as was agreed."""
    if agreed.terms.sampling != "fixed" or agreed.beyond == "raise":
        return 1
    return max(1, int(agreed.cohort) - agreed.dropouts)


def label_of(agreed: Deployment, t: int, clip: float) -> str:
    """Return what every upload of a round is stamped with: who reads the sum knows it is this."""
    return f"{agreed.hash} round {t} clip {clip.hex()}"


def length_of(block: Block) -> int:
    """Return how many numbers an upload has: the parameters that there are."""
    return int(block.parameters[0])


def spread_of(message: Mapping[str, Any], length: int) -> tuple[float, float]:
    """Return the sum of squares and the largest number of an update, as a site tells them."""
    squares, largest = message.get("squares"), message.get("largest")
    if not _size(squares) or not _size(largest):
        raise DeploymentError(
            "spread: must be two finite numbers that are at least 0, found "
            f"{shown(squares)} and {shown(largest)}."
        )
    most = largest * largest * length  # type: ignore[operator]
    if not squares <= most * (1 + 1e-6) or not largest * largest <= squares * (1 + 1e-6):  # type: ignore[operator]
        raise DeploymentError(
            f"spread: the squares of {length} numbers must add up to between one and all times "
            f"that of the largest, found {shown(squares)} and {shown(largest)}."
        )
    return float(squares), float(largest)  # type: ignore[arg-type]


def clip_of(spreads: Sequence[tuple[float, float]], length: int, magnitude: int) -> float:
    """Return the clip that loses least of normal values with the spread of all updates."""
    squares = math.fsum(each for each, _ in spreads)
    deviation = math.sqrt(squares / max(1, len(spreads) * length))
    return min(clip_ratio(float(magnitude)) * deviation, max((a for _, a in spreads), default=0.0))


def _size(found: Any) -> bool:
    """Say whether something is a finite number that is at least 0, whose square is finite too."""
    number = isinstance(found, int | float) and not isinstance(found, bool)
    return number and 0 <= found < 1e150

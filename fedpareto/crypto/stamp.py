"""Stamps: with them the clients find out a server that lies about a sum.

Every upload x gets a random name and the number ⟨w, x⟩ + mask(name) modulo a prime, where the
weights w and the masks come from the clients' secret key. The numbers add up as the uploads do, so
whoever holds the key can check a sum against the names of what is in it: a linearly homomorphic
message authentication code (Agrawal & Boneh 2009). A mask is used once, so a number tells nothing
about its upload; a sum that was never added up fits with a probability of about 2^-127.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpareto.crypto.codec import Numbers
from fedpareto.errors import BadCiphertext

PRIME = 2**127 - 1
SIZE = 16  # bytes of a name, a number and a weight
BLOCK = 2**16  # values whose products of 16-bit digits add up exactly in float64


@dataclass(frozen=True)
class Stamp:
    """Says which uploads a ciphertext is the sum of, so that holders of the key can check it."""

    names: tuple[bytes, ...]
    number: int  # modulo PRIME

    def to_bytes(self) -> bytes:
        """Return the number and the names as bytes."""
        return self.number.to_bytes(SIZE, "big") + b"".join(self.names)

    @classmethod
    def from_bytes(cls, data: bytes) -> Stamp:
        """Return the stamp in these bytes."""
        number = int.from_bytes(data[:SIZE], "big")
        if len(data) < 2 * SIZE or len(data) % SIZE or number >= PRIME:
            raise BadCiphertext(
                f"ciphertext: the stamp must be a number below 2^127 - 1 and {SIZE} bytes for each "
                f"upload, found {len(data)} bytes that are not. Send it again."
            )
        return cls(tuple(data[i : i + SIZE] for i in range(SIZE, len(data), SIZE)), number)


def added(where: str, stamps: Sequence[Stamp]) -> Stamp:
    """Return the stamp of a sum; refuse an upload that is in it twice."""
    whole = Stamp(
        tuple(name for stamp in stamps for name in stamp.names),
        sum(stamp.number for stamp in stamps) % PRIME,
    )
    check_names(where, whole)
    return whole


def check_names(where: str, stamp: Stamp) -> None:
    """Refuse an upload that is in a sum twice."""
    twice = len(stamp.names) - len(set(stamp.names))
    if twice:
        raise BadCiphertext(
            f"{where}: every upload must be in a sum once, found {twice} more than once. Leave the "
            "copies out."
        )


class Stamps:
    """Makes and checks the stamps of one key and codec."""

    def __init__(self, secret: bytes, codec: object) -> None:
        root = hmac.digest(b"fedpareto stamp 1", secret, "sha256")
        self._mask_key, self._weight_key = (
            hmac.digest(root, f"{use} {codec!r}".encode(), "sha256") for use in ("mask", "weight")
        )
        self._weights: NDArray[np.uint16] = np.empty((0, SIZE // 2), np.uint16)

    def make(self, values: Numbers, label: str) -> Stamp:
        """Return the stamp of a new upload [V]."""
        name = secrets.token_bytes(SIZE)
        mask = self._mask(name, len(values), label)
        return Stamp((name,), (self._product(values) + mask) % PRIME)

    def check(self, stamp: Stamp, sums: Numbers, label: str) -> None:
        """Refuse sums [V] that are not those of the uploads that the stamp names."""
        masks = sum(self._mask(name, len(sums), label) for name in stamp.names)
        if (self._product(sums) + masks - stamp.number) % PRIME:
            raise BadCiphertext(
                f"decrypt: the stamp must fit the sum of {len(stamp.names)} uploads with the label "
                f"{label!r}, found one that does not. The server miscounted or changed the sum, or "
                "took uploads of another round. Ask for the sum again, and do not use this one."
            )

    def _mask(self, name: bytes, length: int, label: str) -> int:
        text = name + length.to_bytes(8, "big") + label.encode()
        return int.from_bytes(hmac.digest(self._mask_key, text, "sha256"), "big")

    def _product(self, values: Numbers) -> int:
        """Return Σ wᵢ·xᵢ: the products of 16-bit digits, added exactly as float64."""
        if len(values) > len(self._weights):
            stream = hashlib.shake_256(self._weight_key).digest(SIZE * len(values))
            self._weights = np.frombuffer(stream, "<u2").reshape(-1, SIZE // 2)
        largest = int(np.abs(values).max(initial=0))
        count = 2 if largest < 2**31 else 4  # digits of a value
        total = np.zeros((count, SIZE // 2), np.int64)
        for start in range(0, len(values), BLOCK):
            block = np.ascontiguousarray(values[start : start + BLOCK], f"<i{2 * count}")
            digits = block.view("<u2").reshape(-1, count).astype(np.float64)
            # the highest has the sign
            digits[:, -1] = block.view("<i2").reshape(-1, count)[:, -1]
            weights = self._weights[start : start + len(block)].astype(np.float64)
            total += (digits.T @ weights).astype(np.int64)
        return sum(
            int(part) << 16 * (i + j) for i, row in enumerate(total) for j, part in enumerate(row)
        )

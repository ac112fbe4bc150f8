"""What every additively homomorphic scheme offers: clients encrypt and decrypt, a server adds."""

from __future__ import annotations

from typing import Any, Protocol

from fedpareto.crypto.codec import Numbers
from fedpareto.crypto.lattice import BfvClient
from fedpareto.crypto.paillier import PaillierClient


class Server(Protocol):
    """What the server does with ciphertexts it cannot read."""

    def read(self, data: bytes) -> Any:
        """Return the ciphertext in these bytes if it is one of this key and codec."""

    def add(self, *ciphertexts: Any) -> Any:
        """Return the encrypted sum."""


class Client(Protocol):
    """What a client does with the key that all clients share."""

    @property
    def server(self) -> Server:
        """Return what the server needs, without the private key."""

    def encrypt(self, values: Numbers, label: str = "") -> Any:
        """Return whole numbers [V], encrypted; the label, such as the round, is all clients'."""

    def decrypt(self, ciphertext: Any, label: str = "") -> Numbers:
        """Return the sums [V] of what was encrypted, if the server added what it says it did."""


SCHEMES: dict[str, type[Client]] = {
    "bfv": BfvClient,
    "paillier": PaillierClient,
}

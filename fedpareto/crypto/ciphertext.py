"""A Paillier-encrypted vector: its header, its numbers, and both as bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedpareto.crypto.codec import Codec
from fedpareto.crypto.envelope import close, open_up
from fedpareto.crypto.stamp import Stamp
from fedpareto.errors import BadCiphertext, SettingError

MAGIC = b"fedpareto paillier 2"
# magic, key, key_bits, batch, clients, degree, length
HEADER = struct.Struct(">20s16sIIIBQ")


@dataclass(frozen=True)
class Ciphertext:
    """The encrypted sum of `terms` vectors of `length` whole numbers."""

    key: bytes  # the fingerprint of the public key
    codec: Codec
    length: int
    stamp: Stamp  # the uploads it is the sum of
    numbers: tuple[int, ...]  # [count], each modulo n^(degree + 1)

    def __post_init__(self) -> None:
        check_terms(self.terms, self.codec.clients)
        if len(self.numbers) != self.codec.count(self.length):
            raise BadCiphertext(
                f"ciphertext: {self.length} values must lie in {self.codec.count(self.length)} "
                f"numbers, found {len(self.numbers)}. It was changed on its way."
            )

    @property
    def terms(self) -> int:
        """Return how many uploads were added."""
        return len(self.stamp.names)

    def __repr__(self) -> str:
        return (
            f"Ciphertext({self.length} values in {len(self.numbers)} numbers, {self.terms} "
            f"summed, key {self.key.hex()[:8]})"
        )

    def to_bytes(self) -> bytes:
        """Return the ciphertext as bytes: a header, a stamp, the numbers, a checksum."""
        c = self.codec
        size = number_size(self.codec)
        header = HEADER.pack(MAGIC, self.key, c.key_bits, c.batch, c.clients, c.degree, self.length)
        return close(
            header, self.stamp, b"".join(int(x).to_bytes(size, "big") for x in self.numbers)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Ciphertext:
        """Return the ciphertext in these bytes; PaillierServer.read also checks its key."""
        (_, key, key_bits, batch, clients, degree, length), stamp, body = open_up(
            data, HEADER, MAGIC
        )
        try:
            codec = Codec(key_bits, batch, clients, degree)
        except SettingError as error:
            raise BadCiphertext(
                f"ciphertext: the header must make sense, found: {error} Send it again."
            ) from None
        size = number_size(codec)
        if len(body) != codec.count(length) * size:
            raise BadCiphertext(
                f"ciphertext: {length} values must take {codec.count(length) * size} bytes, found "
                f"{len(body)}. Send it again."
            )
        numbers = [int.from_bytes(body[i : i + size], "big") for i in range(0, len(body), size)]
        return cls(key, codec, length, stamp, tuple(numbers))


def number_size(codec: Codec) -> int:
    """Return how many bytes one number of a ciphertext takes."""
    return ((codec.degree + 1) * codec.key_bits + 7) // 8


def check_terms(terms: int, clients: int) -> None:
    """Refuse a sum of no update or of more than a codec has room for."""
    if not 1 <= terms <= clients:
        raise BadCiphertext(
            f"ciphertext: must be a sum of at most {clients} updates, found {terms}. Make the "
            "codec for more clients."
        )


def same(where: str, ciphertexts: Sequence[Any]) -> None:
    """Refuse ciphertexts that cannot be added because their keys, codecs or lengths differ."""
    first = ciphertexts[0]
    for other in ciphertexts[1:]:
        for name, mine, its in (
            ("key", first.key.hex()[:8], other.key.hex()[:8]),
            ("codec", first.codec, other.codec),
            ("length", first.length, other.length),
        ):
            if mine != its:
                raise BadCiphertext(
                    f"{where}: all ciphertexts must have one {name}, found {mine} and {its}. Agree "
                    "before encrypting."
                )

"""A Paillier-encrypted vector: its header, its numbers, and both as bytes."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from fedpareto.crypto.codec import Codec
from fedpareto.errors import BadCiphertext, SettingError

MAGIC = b"fedpareto paillier 1"
# magic, key, key_bits, batch, clients, degree, terms, length
HEADER = struct.Struct(">20s16sIIIBIQ")
CHECKSUM = 32


@dataclass(frozen=True)
class Ciphertext:
    """The encrypted sum of `terms` vectors of `length` whole numbers."""

    key: bytes  # the fingerprint of the public key
    codec: Codec
    terms: int
    length: int
    numbers: tuple[int, ...]  # [count], each modulo n^(degree + 1)

    def __post_init__(self) -> None:
        if not 1 <= self.terms <= self.codec.clients:
            raise BadCiphertext(
                f"ciphertext: must be a sum of at most {self.codec.clients} updates, found "
                f"{self.terms}. Make the codec for more clients."
            )
        if len(self.numbers) != self.codec.count(self.length):
            raise BadCiphertext(
                f"ciphertext: {self.length} values must lie in {self.codec.count(self.length)} "
                f"numbers, found {len(self.numbers)}. It was changed on its way."
            )

    def __repr__(self) -> str:
        return (
            f"Ciphertext({self.length} values in {len(self.numbers)} numbers, {self.terms} "
            f"summed, key {self.key.hex()[:8]})"
        )

    def to_bytes(self) -> bytes:
        """Return the ciphertext as bytes: a header, the numbers, a checksum against accidents."""
        c = self.codec
        size = number_size(self.codec)
        header = HEADER.pack(
            MAGIC, self.key, c.key_bits, c.batch, c.clients, c.degree, self.terms, self.length
        )
        body = header + b"".join(int(x).to_bytes(size, "big") for x in self.numbers)
        return body + hashlib.sha256(body).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Ciphertext:
        """Return the ciphertext in these bytes; PaillierServer.read also checks its key."""
        if len(data) < HEADER.size + CHECKSUM or not data.startswith(MAGIC):
            raise BadCiphertext(
                f"ciphertext: must begin with {MAGIC.decode()!r} and a header of {HEADER.size} "
                f"bytes, found {len(data)} bytes that do not. Send it again."
            )
        body = data[:-CHECKSUM]
        checksum = data[-CHECKSUM:]
        if hashlib.sha256(body).digest() != checksum:
            raise BadCiphertext(
                f"ciphertext: the checksum must fit, found {len(data)} bytes it does not fit: cut "
                "short or changed on the way. Send it again."
            )
        _, key, key_bits, batch, clients, degree, terms, length = HEADER.unpack_from(data)
        try:
            codec = Codec(key_bits, batch, clients, degree)
        except SettingError as error:
            raise BadCiphertext(
                f"ciphertext: the header must make sense, found: {error} Send it again."
            ) from None
        size = number_size(codec)
        if len(body) - HEADER.size != codec.count(length) * size:
            raise BadCiphertext(
                f"ciphertext: {length} values must take {codec.count(length) * size} bytes, found "
                f"{len(body) - HEADER.size}. Send it again."
            )
        numbers = [
            int.from_bytes(body[i : i + size], "big") for i in range(HEADER.size, len(body), size)
        ]
        return cls(key, codec, terms, length, tuple(numbers))


def number_size(codec: Codec) -> int:
    """Return how many bytes one number of a ciphertext takes."""
    return ((codec.degree + 1) * codec.key_bits + 7) // 8


def same(where: str, ciphertexts: Sequence[Ciphertext]) -> None:
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

"""Exact sums under Paillier encryption: clients encrypt and decrypt, the server only adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedpareto.crypto.ciphertext import Ciphertext, same
from fedpareto.crypto.codec import Codec, Numbers
from fedpareto.crypto.constructions import CONSTRUCTIONS, Construction
from fedpareto.crypto.keys import PrivateKey, PublicKey
from fedpareto.crypto.parallel import forked, threaded
from fedpareto.crypto.powers import gmp
from fedpareto.crypto.residues import Decryption, Recombination, Residues
from fedpareto.crypto.stamp import Stamps, added, check_names
from fedpareto.errors import BadCiphertext, BadKey, SettingError, did_you_mean


@dataclass(frozen=True)
class PaillierServer:
    """What the server does: read, check and add ciphertexts. Nothing here can decrypt."""

    key: PublicKey
    codec: Codec

    def __post_init__(self) -> None:
        _check_fit(self.key, self.codec)

    def read(self, data: bytes) -> Ciphertext:
        """Return the ciphertext in these bytes if it is one of this key and codec."""
        ciphertext = Ciphertext.from_bytes(data)
        self.check(ciphertext)
        return ciphertext

    def check(self, ciphertext: Ciphertext) -> None:
        """Refuse a ciphertext of another key or codec, and numbers that no encryption gives."""
        self._check_header(ciphertext)
        g = gmp()
        n = g.mpz(self.key.n)
        product = g.mpz(1)
        for number in ciphertext.numbers:
            if not 0 < number < self._modulus:
                raise BadCiphertext(
                    f"ciphertext: every number must lie between 0 and n^{self.codec.degree + 1}, "
                    "found one that does not. It was changed on its way."
                )
            product = product * (number % n) % n
        if g.gcd(product, n) != 1:
            raise BadCiphertext(
                "ciphertext: every number must have no factor in common with n, found one that "
                "has. It was changed on its way."
            )

    def add(self, *ciphertexts: Ciphertext) -> Ciphertext:
        """Return the encrypted sum."""
        if not ciphertexts:
            raise SettingError("add: must be given at least one ciphertext, found none.")
        for one in ciphertexts:
            _check_type(one)
        same("add", ciphertexts)
        first = ciphertexts[0]
        self._check_header(first)
        terms = sum(c.terms for c in ciphertexts)
        if terms > self.codec.clients:
            raise BadCiphertext(
                f"add: at most {self.codec.clients} updates may be summed, found {terms}. Make the "
                "codec for more clients."
            )
        stamp = added("add", [c.stamp for c in ciphertexts])
        modulus = self._modulus
        mpz = gmp().mpz
        total = list(map(mpz, first.numbers))
        for other in ciphertexts[1:]:
            total = [a * b % modulus for a, b in zip(total, other.numbers, strict=True)]
        return Ciphertext(first.key, first.codec, first.length, stamp, tuple(map(int, total)))

    @cached_property
    def _modulus(self) -> Any:
        return gmp().mpz(self.key.n) ** (self.codec.degree + 1)

    def _check_header(self, ciphertext: Ciphertext) -> None:
        _check_type(ciphertext)
        if ciphertext.codec.key_bits != self.key.bits:
            raise BadCiphertext(
                f"ciphertext: must be of a key of {self.key.bits} bits, found one of "
                f"{ciphertext.codec.key_bits}."
            )
        if ciphertext.key != self.key.fingerprint:
            raise BadCiphertext(
                f"ciphertext: must be of the key {self.key.fingerprint.hex()[:8]}, found one of "
                f"the key {ciphertext.key.hex()[:8]}. Give every client the same key."
            )
        if ciphertext.codec != self.codec:
            raise BadCiphertext(
                f"ciphertext: must be packed by {self.codec}, found {ciphertext.codec}. Give every "
                "client the same codec."
            )


@dataclass(frozen=True)
class PaillierClient:
    """What a client does: encrypt its whole numbers and decrypt their sum.

    All clients share the key. Tables are built on the first encryption.
    """

    key: PrivateKey
    codec: Codec
    construction: str = "fixed-base"
    workers: int | None = None  # cores to use; all of them if None

    def __post_init__(self) -> None:
        _check_fit(self.key.public, self.codec)
        if self.construction not in CONSTRUCTIONS:
            raise SettingError(
                f"construction: must be one of {', '.join(CONSTRUCTIONS)}, found "
                f"{self.construction!r}. {did_you_mean(self.construction, CONSTRUCTIONS)}"
            )
        if self.workers is not None and self.workers < 1:
            raise SettingError(f"workers: must be at least 1, found {self.workers}.")

    @cached_property
    def server(self) -> PaillierServer:
        """Return what the server needs, without the private key."""
        return PaillierServer(self.key.public, self.codec)

    def encrypt(self, values: Numbers, label: str = "") -> Ciphertext:
        """Return whole numbers [V] from -magnitude to magnitude of the codec, encrypted.

        The label, such as the round, must be the same for all that are added and decrypted.
        """
        numbers = forked(self._encrypt, self.codec.pack(values), self.workers)
        stamp = self._stamps.make(values, label)
        key = self.key.public.fingerprint
        return Ciphertext(key, self.codec, len(values), stamp, tuple(numbers))

    def decrypt(self, ciphertext: Ciphertext, label: str = "") -> Numbers:
        """Return the sums [V] of what was encrypted; refuse any that are not those stamped."""
        self.server.check(ciphertext)
        check_names("decrypt", ciphertext.stamp)
        plaintexts = threaded(self._decrypt_all, ciphertext.numbers, self.workers)
        sums = self.codec.unpack(plaintexts, ciphertext.terms, ciphertext.length)
        self._stamps.check(ciphertext.stamp, sums, label)
        return sums

    def _decrypt_all(self, numbers: Sequence[int]) -> list[int]:
        """Return the signed plaintexts of ciphertexts."""
        g = gmp()
        p, q, recombine, whole = self._decrypt
        # gmpy2 lets other threads run only if this thread asks for it
        with g.context(g.get_context(), allow_release_gil=True):
            found = [int(recombine(p(c), q(c))) for c in map(g.mpz, numbers)]
        # the upper half of the residues stands for the negative numbers
        return [m if 2 * m < whole else m - whole for m in found]

    @cached_property
    def _stamps(self) -> Stamps:
        primes = sorted((self.key.p, self.key.q))
        return Stamps("paillier {:x} {:x}".format(*primes).encode(), self.codec)

    @cached_property
    def _encrypt(self) -> Construction:
        return CONSTRUCTIONS[self.construction](self.key, self.codec.degree)

    @cached_property
    def _decrypt(self) -> tuple[Decryption, Decryption, Recombination, int]:
        n = self.key.public.n
        s = self.codec.degree
        p = Residues(self.key.p, n, s)
        q = Residues(self.key.q, n, s)
        return Decryption(p), Decryption(q), Recombination(p.plain, q.plain), n**s


def _check_type(ciphertext: object) -> None:
    if not isinstance(ciphertext, Ciphertext):
        raise BadCiphertext(
            f"ciphertext: must be a Paillier ciphertext, found {type(ciphertext).__name__}. Use "
            "one scheme everywhere, and read bytes by the server's read."
        )


def _check_fit(key: PublicKey, codec: Codec) -> None:
    if key.bits != codec.key_bits:
        raise BadKey(
            f"codec: must be made for a key of {key.bits} bits, found {codec.key_bits}. Make the "
            f"codec with key_bits={key.bits}."
        )

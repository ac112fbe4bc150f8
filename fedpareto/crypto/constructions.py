"""Three ways to make the ciphertext (1 + n)^m · r^(n^s) modulo n^(s+1).

Ciphertexts of all three decrypt and add alike.

fixed-base   needs the private key: r is uniform, as in the textbook, from a table. The default.
half-length  needs the public key only: r is a power of one number, with an exponent of half n's
             length (Damgård, Jurik & Nielsen 2010, section 4.2), from a table.
textbook     needs the public key only: r is uniform, raised to n^s
             (Paillier 1999; Damgård & Jurik 2001).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fedpareto.crypto.keys import PrivateKey, PublicKey
from fedpareto.crypto.powers import gmp
from fedpareto.crypto.residues import DIGIT, FixedBase, Recombination, Residues

# Ciphertexts made together, so that each row of a table is read from memory once for all of them.
BLOCK = 512


class Construction(Protocol):
    """Encrypts plaintexts."""

    def __call__(self, plaintexts: Sequence[int]) -> list[int]:
        """Return a ciphertext of each plaintext modulo n^degree."""


class OwnerFixedBase:
    """Encrypts with the primes: each uniform blinding factor comes from a table.

    About 25 times as fast as the textbook.
    """

    def __init__(self, key: PrivateKey, degree: int = 1) -> None:
        n = key.public.n
        halves = [Residues(key.p, n, degree), Residues(key.q, n, degree)]
        self._p, self._q = map(FixedBase, halves)
        self._recombine = Recombination(halves[0].modulus, halves[1].modulus)

    def __call__(self, plaintexts: Sequence[int]) -> list[int]:
        out: list[int] = []
        for start in range(0, len(plaintexts), BLOCK):
            block = list(map(gmp().mpz, plaintexts[start : start + BLOCK]))
            out += [
                int(self._recombine(x, y))
                for x, y in zip(self._p(block), self._q(block), strict=True)
            ]
        return out


class HalfLength:
    """Encrypts with n alone: blinds by powers of h^(n^s), where h = -x².

    x is drawn here: an h from somebody else could be chosen to weaken the blinding.
    """

    def __init__(self, key: PublicKey, degree: int = 1) -> None:
        g = gmp()
        self._message = Message(key, degree)
        modulus = self._message.modulus
        x = g.mpz(_unit(key.n))
        base = g.powmod(-x * x, self._message.plain, modulus)
        self._size = ((key.bits + 1) // 2 + 7) // 8
        self._powers: list[list[Any]] = []  # [bytes of the exponent][256]
        for _ in range(self._size):
            row = [g.mpz(1)]
            for _ in range(DIGIT - 1):
                row.append(row[-1] * base % modulus)
            self._powers.append(row)
            base = row[-1] * base % modulus

    def __call__(self, plaintexts: Sequence[int]) -> list[int]:
        out: list[int] = []
        for start in range(0, len(plaintexts), BLOCK):
            out += self._block(plaintexts[start : start + BLOCK])
        return out

    def _block(self, plaintexts: Sequence[int]) -> list[int]:
        numbers = list(map(self._message, plaintexts))
        modulus = self._message.modulus
        exponents = [secrets.token_bytes(self._size) for _ in plaintexts]
        for row, digits in zip(self._powers, zip(*exponents, strict=True), strict=True):
            numbers = [x * row[d] % modulus for x, d in zip(numbers, digits, strict=True)]
        return list(map(int, numbers))


class Textbook:
    """Encrypts with n alone: blinds by a uniform r raised to n^s."""

    def __init__(self, key: PublicKey, degree: int = 1) -> None:
        self._n = key.n
        self._message = Message(key, degree)

    def __call__(self, plaintexts: Sequence[int]) -> list[int]:
        return list(map(self._one, plaintexts))

    def _one(self, plaintext: int) -> int:
        message = self._message
        blinding = gmp().powmod(_unit(self._n), message.plain, message.modulus)
        return int(message(plaintext) * blinding % message.modulus)


class Message:
    """Computes (1 + n)^m modulo n^(degree + 1): a ciphertext before it is blinded."""

    def __init__(self, key: PublicKey, degree: int) -> None:
        self._n = gmp().mpz(key.n)
        self._degree = degree
        self.plain = self._n**degree
        self.modulus = self._n ** (degree + 1)

    def __call__(self, plaintext: int) -> Any:
        m = gmp().mpz(plaintext) % self.plain
        n = self._n
        power = 1 + n * m
        if self._degree == 2:
            power += n * n * (m * (m - 1) // 2)
        return power % self.modulus


CONSTRUCTIONS: dict[str, Callable[[PrivateKey, int], Construction]] = {
    "fixed-base": OwnerFixedBase,
    "half-length": lambda key, degree: HalfLength(key.public, degree),
    "textbook": lambda key, degree: Textbook(key.public, degree),
}


def _unit(n: int) -> int:
    """Return a uniform number from 1 to n - 1 that has no factor in common with n."""
    while True:
        x = secrets.randbelow(n - 1) + 1
        if gmp().gcd(x, n) == 1:
            return x

"""Three ways to make the same ciphertext (1 + n)^m · r^(n^s) modulo n^(s+1); they decrypt and add alike.

fixed-base   for whoever holds the private key: r uniform, as in the textbook, from a table. The default.
half-length  for whoever holds the public key only: r a power of one number, with an exponent of half n's length
             (Damgård, Jurik & Nielsen 2010, section 4.2), from a table.
textbook     for anyone: r uniform, raised to n^s (Paillier 1999; Damgård & Jurik 2001).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fedpareto.crypto.keys import PrivateKey, PublicKey
from fedpareto.crypto.powers import gmp
from fedpareto.crypto.residues import DIGIT, FixedBase, Recombination, Residues

BLOCK = 512  # ciphertexts that walk a table together, so that each of its rows is read from memory once for all


class Construction(Protocol):
    """A way to encrypt."""

    def __call__(self, plaintexts: Sequence[int]) -> list[int]:
        """Return a ciphertext of each plaintext, which is taken modulo n^degree."""


class OwnerFixedBase:
    """Encrypt with the primes: a uniform blinding factor from a table for each, about 25 times as fast as the textbook."""

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
    """Encrypt with n alone: powers of h^(n^s), where h = -x² for an x drawn here and taken from nobody."""

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
        return [
            int(number)
            for start in range(0, len(plaintexts), BLOCK)
            for number in self._block(plaintexts[start : start + BLOCK])
        ]

    def _block(self, plaintexts: Sequence[int]) -> list[Any]:
        numbers, modulus = list(map(self._message, plaintexts)), self._message.modulus
        exponents = [secrets.token_bytes(self._size) for _ in plaintexts]
        for row, digits in zip(self._powers, zip(*exponents, strict=True), strict=True):
            numbers = [x * row[d] % modulus for x, d in zip(numbers, digits, strict=True)]
        return numbers


class Textbook:
    """Encrypt with n alone: a uniform r, raised to n^s."""

    def __init__(self, key: PublicKey, degree: int = 1) -> None:
        self._n, self._message = key.n, Message(key, degree)

    def __call__(self, plaintexts: Sequence[int]) -> list[int]:
        power, message = gmp().powmod, self._message
        return [
            int(
                message(m) * power(_unit(self._n), message.plain, message.modulus) % message.modulus
            )
            for m in plaintexts
        ]


class Message:
    """(1 + n)^m modulo n^(degree + 1): the ciphertext before it is blinded."""

    def __init__(self, key: PublicKey, degree: int) -> None:
        self._n, self._degree = gmp().mpz(key.n), degree
        self.plain, self.modulus = self._n**degree, self._n ** (degree + 1)

    def __call__(self, plaintext: int) -> Any:
        m, n = gmp().mpz(plaintext) % self.plain, self._n
        return (1 + n * m + (n * n * (m * (m - 1) // 2) if self._degree == 2 else 0)) % self.modulus


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

"""Arithmetic modulo a power of one prime factor of n: the owner of the primes works there.

Modulo p^(s+1) every unit is ω·exp(p·ℓ): ω is a root of unity, ω^(p-1) = 1, and ℓ, modulo p^s, adds
where units multiply. A ciphertext of m has a random ω and ℓ = m·log(1 + n)/p (Damgård & Jurik 2001,
section 3), so decrypting is raising to p - 1 and taking the logarithm, and the n^s-th powers by
which encryption blinds are exactly the ω.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from fedpareto.crypto.keys import primitive_root
from fedpareto.crypto.powers import gmp, secret_power
from fedpareto.errors import BadCiphertext

DIGIT = 256  # exponents are read byte by byte


class Residues:
    """Numbers modulo p^(degree + 1), for a prime p of n."""

    def __init__(self, p: int, n: int, degree: int) -> None:
        g = gmp()
        self.p = g.mpz(p)
        self.degree = degree
        self.plain = self.p**degree
        self.modulus = self.p ** (degree + 1)
        self._half = g.invert(2, self.plain)
        self.unit = self.log(g.mpz(n // p) % self.plain)  # log(1 + n)/p: what a plaintext of 1 adds

    def exp(self, ell: Any) -> Any:
        """Return exp(p·ℓ)."""
        if self.degree == 1:
            return 1 + self.p * ell
        return 1 + self.p * ((ell + self.p * self._half * ell * ell) % self.plain)

    def log(self, y: Any) -> Any:
        """Return log(1 + p·y)/p."""
        if self.degree == 1:
            return y
        return (y - self.p * self._half * y * y) % self.plain


class Decryption:
    """Decrypts modulo p^degree."""

    def __init__(self, residues: Residues) -> None:
        self.residues = residues
        p = residues.p
        plain = residues.plain
        self._power = secret_power(int(p - 1), int(residues.modulus))
        self._scale = gmp().invert((p - 1) * residues.unit, plain)

    def __call__(self, ciphertext: Any) -> Any:
        r = self.residues
        y, one = gmp().f_divmod(self._power(ciphertext % r.modulus), r.p)
        if one != 1:
            raise BadCiphertext(
                "decrypt: a ciphertext must share no factor with n, found one that does. It was "
                "changed on its way."
            )
        return r.log(y) * self._scale % r.plain


class FixedBase:
    """Encrypts modulo p^(degree + 1) with random roots of unity from a table of powers.

    The table holds, for every byte of the exponent, the powers t of a primitive root modulo p and
    the ℓ that makes t·exp(p·ℓ) a root of unity. Half as long as the roots themselves, the t
    multiply in half the time, and the ℓ only add.
    """

    def __init__(self, residues: Residues) -> None:
        self.residues = residues
        r = residues
        self._size = (int(r.p - 1).bit_length() + 7) // 8
        self._order = int(r.p - 1)
        self._powers: list[list[Any]] = []  # [bytes of the exponent][256]
        self._logs: list[list[Any]] = []
        # the root of unity above the primitive root
        base = gmp().powmod(primitive_root(int(r.p)), r.plain, r.modulus)
        for _ in range(self._size):
            roots = [gmp().mpz(1)]
            for _ in range(DIGIT - 1):
                roots.append(roots[-1] * base % r.modulus)
            base = roots[-1] * base % r.modulus
            short = [root % r.p for root in roots]
            self._powers.append(short)
            inverses = _inverses(short, r.plain)
            self._logs.append(
                [
                    r.log((root - t) // r.p * inverse % r.plain)
                    for root, t, inverse in zip(roots, short, inverses, strict=True)
                ]
            )

    def __call__(self, plaintexts: Sequence[Any]) -> list[Any]:
        """Return the ciphertexts of plaintexts.

        The table is read once for all of them, since it does not fit the cache of a core.
        """
        r = self.residues
        modulus = self.residues.modulus
        exponents = [self._exponent() for _ in plaintexts]
        ells = [m * r.unit for m in plaintexts]
        powers = [gmp().mpz(1)] * len(plaintexts)
        columns = zip(*exponents, strict=True)  # the first byte of every exponent, then the second
        for short, logs, digits in zip(self._powers, self._logs, columns, strict=True):
            powers = [x * short[d] % modulus for x, d in zip(powers, digits, strict=True)]
            ells = [ell + logs[d] for ell, d in zip(ells, digits, strict=True)]
        return [x * r.exp(ell % r.plain) % modulus for x, ell in zip(powers, ells, strict=True)]

    def _exponent(self) -> bytes:
        """Return a random exponent as bytes, the lowest first."""
        return secrets.randbelow(self._order).to_bytes(self._size, "little")


class Recombination:
    """Finds a number modulo a·b from its remainders modulo a and b (Chinese remainder theorem)."""

    def __init__(self, a: Any, b: Any) -> None:
        self._a = a
        self._b = b
        self._inverse = gmp().invert(b, a)

    def __call__(self, x: Any, y: Any) -> Any:
        return y + self._b * ((x - y) * self._inverse % self._a)


def _inverses(values: Sequence[Any], modulus: Any) -> list[Any]:
    """Return the inverses of values modulo a number, by a single inversion (Montgomery 1987)."""
    before = [gmp().mpz(1)]
    for value in values:
        before.append(before[-1] * value % modulus)
    inverse = gmp().invert(before[-1], modulus)
    out = []
    for value, product in zip(reversed(values), reversed(before[:-1]), strict=True):
        out.append(inverse * product % modulus)
        inverse = inverse * value % modulus
    return out[::-1]

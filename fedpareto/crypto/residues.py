"""Arithmetic modulo a power of one prime factor of n, where whoever holds the primes encrypts and decrypts.

Modulo p^(s+1) every unit is ω·exp(p·ℓ): ω is a root of unity, ω^(p-1) = 1, and ℓ, modulo p^s, adds where units multiply.
A ciphertext of m has a random ω and ℓ = m·log(1 + n)/p (Damgård & Jurik 2001, section 3), so decrypting is raising to
p - 1 and taking the logarithm, and the n^s-th powers by which encryption blinds are exactly the ω.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from fedpareto.crypto.keys import primitive_root
from fedpareto.crypto.powers import gmp, secret_power
from fedpareto.errors import BadCiphertext

DIGIT = 256  # the exponent is read byte by byte


class Residues:
    """Numbers modulo p^(degree + 1), for a prime p of n."""

    def __init__(self, p: int, n: int, degree: int) -> None:
        g = gmp()
        self.p, self.degree = g.mpz(p), degree
        self.plain, self.modulus = self.p**degree, self.p ** (degree + 1)
        self._half = g.invert(2, self.plain)
        self.unit = self.log(g.mpz(n // p) % self.plain)  # log(1 + n)/p: what a plaintext of 1 adds

    def exp(self, ell: Any) -> Any:
        """Return exp(p·ℓ)."""
        return 1 + self.p * (
            ell if self.degree == 1 else (ell + self.p * self._half * ell * ell) % self.plain
        )

    def log(self, y: Any) -> Any:
        """Return log(1 + p·y)/p."""
        return y if self.degree == 1 else (y - self.p * self._half * y * y) % self.plain


class Decryption:
    """Read plaintexts modulo p^degree."""

    def __init__(self, residues: Residues) -> None:
        self.residues = residues
        p, plain = residues.p, residues.plain
        self._power = secret_power(int(p - 1), int(residues.modulus))
        self._scale = gmp().invert((p - 1) * residues.unit, plain)

    def __call__(self, ciphertext: Any) -> Any:
        r = self.residues
        y, one = gmp().f_divmod(self._power(ciphertext % r.modulus), r.p)
        if one != 1:
            raise BadCiphertext(
                "decrypt: a ciphertext must share no factor with n, found one that does. It was changed on its way."
            )
        return r.log(y) * self._scale % r.plain


class FixedBase:
    """Encrypt modulo p^(degree + 1) with a random root of unity put together from a table of powers of one.

    The table holds, for every byte of the exponent, the powers t of a primitive root modulo p and the ℓ that makes
    t·exp(p·ℓ) a root of unity. Half as long as the roots themselves, the t multiply in half the time, and the ℓ only add.
    """

    def __init__(self, residues: Residues) -> None:
        self.residues = residues
        r = residues
        self._size = (int(r.p - 1).bit_length() + 7) // 8
        self._order = int(r.p - 1)
        self._powers: list[list[Any]] = []  # [bytes of the exponent][256]
        self._logs: list[list[Any]] = []
        base = gmp().powmod(
            primitive_root(int(r.p)), r.plain, r.modulus
        )  # the root of unity above the primitive root
        for _ in range(self._size):
            roots = [gmp().mpz(1)]
            for _ in range(DIGIT - 1):
                roots.append(roots[-1] * base % r.modulus)
            base = roots[-1] * base % r.modulus
            short = [root % r.p for root in roots]
            self._powers.append(short)
            self._logs.append(
                [
                    r.log((root - t) // r.p * inverse % r.plain)
                    for root, t, inverse in zip(
                        roots, short, _inverses(short, r.plain), strict=True
                    )
                ]
            )

    def __call__(self, plaintexts: Sequence[Any]) -> list[Any]:
        """Return the ciphertexts. The table is walked once for all, since it does not fit the cache of a core."""
        r, modulus = self.residues, self.residues.modulus
        exponents = [
            secrets.randbelow(self._order).to_bytes(self._size, "little") for _ in plaintexts
        ]
        ells = [m * r.unit for m in plaintexts]
        powers = [gmp().mpz(1)] * len(plaintexts)
        for short, logs, digits in zip(
            self._powers, self._logs, zip(*exponents, strict=True), strict=True
        ):
            powers = [x * short[d] % modulus for x, d in zip(powers, digits, strict=True)]
            ells = [ell + logs[d] for ell, d in zip(ells, digits, strict=True)]
        return [x * r.exp(ell % r.plain) % modulus for x, ell in zip(powers, ells, strict=True)]


class Recombination:
    """Put together a number modulo a·b from what it is modulo a and modulo b (Chinese remainders)."""

    def __init__(self, a: Any, b: Any) -> None:
        self._a, self._b, self._inverse = a, b, gmp().invert(b, a)

    def __call__(self, x: Any, y: Any) -> Any:
        return y + self._b * ((x - y) * self._inverse % self._a)


def _inverses(values: Sequence[Any], modulus: Any) -> list[Any]:
    """Return the inverses modulo a number, with one inversion for all (Montgomery 1987)."""
    before = [gmp().mpz(1)]
    for value in values:
        before.append(before[-1] * value % modulus)
    inverse, out = gmp().invert(before[-1], modulus), []
    for value, product in zip(reversed(values), reversed(before[:-1]), strict=True):
        out.append(inverse * product % modulus)
        inverse = inverse * value % modulus
    return out[::-1]

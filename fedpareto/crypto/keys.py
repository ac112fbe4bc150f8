"""Paillier keys: a private one for the clients, and a public one for the server.

The primes are p = 2·k·p' + 1 with p' a large prime and k small and odd: then p - 1 can be factored
by whoever holds p, a primitive root can be checked, and n is a Blum number, which the half-length
construction asks for.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedpareto.crypto.powers import gmp
from fedpareto.errors import BadKey, SettingError

LEAST_BITS = 2048  # 112 bits of security by NIST SP 800-57; 3072 has 128
MOST_BITS = 16384  # longer ones take minutes to check
COFACTOR_BITS = 16


@dataclass(frozen=True, repr=False)
class PublicKey:
    """What the server holds: with it ciphertexts can be made, checked and added, not read."""

    n: int
    allow_insecure: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if (
            not isinstance(self.n, int)
            or self.n < 15
            or self.n % 2 == 0
            or self.n.bit_length() > MOST_BITS
            or _looks_prime(self.n)
            or gmp().is_power(self.n)
        ):
            raise BadKey(
                "public key: n must be an odd product of two primes and have at most "
                f"{MOST_BITS} bits, found another number. Read the key file again."
            )
        _check_size("public key", self.bits, self.allow_insecure)

    @property
    def bits(self) -> int:
        """Return the length of n."""
        return self.n.bit_length()

    @cached_property
    def fingerprint(self) -> bytes:
        """Return the 16 bytes by which ciphertexts name their key."""
        return hashlib.sha256(self.n.to_bytes((self.bits + 7) // 8, "big")).digest()[:16]

    def __repr__(self) -> str:
        return f"PublicKey({self.bits} bits, {self.fingerprint.hex()[:8]})"


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """What the clients share: the two primes.

    They are never printed; write_private_key stores them.
    """

    p: int
    q: int
    allow_insecure: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        p = self.p
        q = self.q
        if not all(
            isinstance(x, int) and x.bit_length() <= MOST_BITS // 2 and gmp().is_prime(x)
            for x in (p, q)
        ):
            raise BadKey(
                f"private key: p and q must be primes of at most {MOST_BITS // 2} bits, found one "
                "that is not. Read the key file again or generate a new key."
            )
        if p == q:
            raise BadKey(
                "private key: p and q must differ, found the same prime twice. Generate a new key."
            )
        if math.gcd(p * q, (p - 1) * (q - 1)) != 1:
            raise BadKey(
                "private key: n must have no factor in common with (p - 1)(q - 1), found one. "
                "Generate a new key."
            )
        if p.bit_length() != q.bit_length() or (p * q).bit_length() != 2 * p.bit_length():
            raise BadKey(
                f"private key: p and q must have half of n's bits each, found {p.bit_length()} and "
                f"{q.bit_length()} for {(p * q).bit_length()}. Generate a new key."
            )
        _check_size("private key", (p * q).bit_length(), self.allow_insecure)

    @classmethod
    def generate(cls, bits: int = 3072, allow_insecure: bool = False) -> PrivateKey:
        """Return a new key from the system's randomness."""
        if (
            isinstance(bits, bool)
            or not isinstance(bits, int)
            or bits % 2
            or not 128 <= bits <= MOST_BITS
        ):
            raise SettingError(
                f"bits: must be an even number from 128 to {MOST_BITS}, found {bits!r}."
            )
        _check_size("private key", bits, allow_insecure)
        p, k = _prime(bits // 2)
        while True:
            q, other = _prime(bits // 2)
            # FIPS 186-5, A.1.3: not close together
            if math.gcd(k, other) == 1 and abs(p - q) >> (bits // 2 - min(100, bits // 8)):
                return cls(p, q, allow_insecure)

    @cached_property
    def public(self) -> PublicKey:
        """Return the public half."""
        return PublicKey(self.p * self.q, self.allow_insecure)

    def __repr__(self) -> str:
        return (
            f"PrivateKey({self.public.bits} bits, {self.public.fingerprint.hex()[:8]}, secret not "
            "shown)"
        )


def primitive_root(p: int) -> int:
    """Return the least primitive root modulo a prime p of a key from PrivateKey.generate."""
    orders = [(p - 1) // factor for factor in _factors_of_order(p)]
    root = 2
    while any(gmp().powmod(root, order, p) == 1 for order in orders):
        root += 1
    return root


def _factors_of_order(p: int) -> list[int]:
    """Return the prime factors of p - 1, which must be a small number times a prime."""
    rest = p - 1
    factors = []
    for factor in (2, *range(3, 2**COFACTOR_BITS, 2)):
        if rest % factor == 0:
            factors.append(factor)
            while rest % factor == 0:
                rest //= factor
    if rest == 1:
        return factors
    if not gmp().is_prime(rest):
        raise BadKey(
            "private key: p - 1 must be a small number times a prime for the fixed-base "
            "construction, found a key made elsewhere. Use construction='textbook', or generate a "
            "key with PrivateKey.generate."
        )
    return [*factors, rest]


def _prime(bits: int) -> tuple[int, int]:
    """Return a random prime 2·k·p' + 1 of exactly this many bits, the first two set, and its k."""
    g = gmp()
    while True:
        large = _random_prime(g, bits - COFACTOR_BITS - 1)
        low = -(-(3 << (bits - 2)) // (2 * large))
        high = ((1 << bits) - 2) // (2 * large)
        for _ in range(8 * bits):
            k = low + secrets.randbelow(high - low + 1) | 1
            p = 2 * k * large + 1
            if p.bit_length() == bits and k < 2**COFACTOR_BITS and g.is_prime(p, 40):
                return p, k


def _random_prime(g: Any, bits: int) -> int:
    while True:
        found = secrets.randbits(bits) | 3 << (bits - 2) | 1
        if g.is_prime(found, 40):
            return found


def _looks_prime(n: int) -> bool:
    """Return whether a number is a prime; a long one is tried by a single power."""
    found: bool = gmp().is_prime(n) if n.bit_length() <= 64 else gmp().is_strong_prp(n, 2)
    return found


def _check_size(where: str, bits: int, allow_insecure: bool) -> None:
    if bits < LEAST_BITS and not allow_insecure:
        raise BadKey(
            f"{where}: must have at least {LEAST_BITS} bits, found {bits}. Generate a longer one "
            "(tests: allow_insecure=True)."
        )

"""Arithmetic with long numbers: gmpy2, and for secret exponents the OpenSSL that Python uses."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fedpareto.errors import MissingPackage

Power = Callable[[Any], Any]


def gmp() -> Any:
    """Return the module gmpy2."""
    try:
        import gmpy2
    except ImportError:
        raise MissingPackage("gmpy2", "encryption", "Paillier encryption") from None
    return gmpy2


def secret_power(exponent: int, modulus: int) -> Power:
    """Return the fastest function x ↦ x^exponent modulo an odd modulus on this machine.

    OpenSSL's takes the same time whatever the exponent is and is faster; gmpy2's stands in where it
    cannot be reached.
    """
    g = gmp()
    e = g.mpz(exponent)
    m = g.mpz(modulus)

    def plain(x: Any) -> Any:
        return g.powmod(x, e, m)

    library = _openssl()
    if library is None:
        return plain
    fast = _Power(library, exponent, modulus, plain)
    if fast(g.mpz(3)) != plain(g.mpz(3)):
        return plain
    return fast


@lru_cache(maxsize=1)
def _openssl() -> Any:
    """Return OpenSSL's functions for long numbers, or None where Python is not linked with them."""
    p = ctypes.c_void_p
    i = ctypes.c_int
    functions = {
        "BN_new": (p, []),
        "BN_free": (None, [p]),
        "BN_clear_free": (None, [p]),
        "BN_CTX_new": (p, []),
        "BN_CTX_free": (None, [p]),
        "BN_MONT_CTX_new": (p, []),
        "BN_MONT_CTX_free": (None, [p]),
        "BN_MONT_CTX_set": (i, [p, p, p]),
        "BN_bin2bn": (p, [ctypes.c_char_p, i, p]),
        "BN_bn2binpad": (i, [p, ctypes.c_char_p, i]),
        "BN_mod_exp_mont_consttime": (i, [p] * 6),
    }
    try:
        import _hashlib

        library = ctypes.CDLL(_hashlib.__file__)
        for name, (result, arguments) in functions.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (ImportError, AttributeError, OSError):
        return None
    return library


class _Power:
    """Computes x^exponent modulo an odd modulus by OpenSSL, while other threads may run."""

    def __init__(self, library: Any, exponent: int, modulus: int, otherwise: Power) -> None:
        self._library = library
        self._otherwise = otherwise
        self._mpz = gmp().mpz
        self._size = (modulus.bit_length() + 7) // 8
        self._exponent = self._number(exponent)
        self._modulus = self._number(modulus)
        self._montgomery = library.BN_MONT_CTX_new()
        room = library.BN_CTX_new()
        self._ready = bool(
            self._exponent
            and self._modulus
            and self._montgomery
            and room
            and library.BN_MONT_CTX_set(self._montgomery, self._modulus, room)
        )
        library.BN_CTX_free(room)
        weakref.finalize(self, _free, library, self._exponent, self._modulus, self._montgomery)

    def __call__(self, x: Any) -> Any:
        library = self._library
        base = self._number(int(x))
        result = library.BN_new()
        room = library.BN_CTX_new()
        out = ctypes.create_string_buffer(self._size)
        try:
            done = (
                self._ready
                and base
                and result
                and room
                and library.BN_mod_exp_mont_consttime(
                    result, base, self._exponent, self._modulus, room, self._montgomery
                )
                == 1
                and library.BN_bn2binpad(result, out, self._size) == self._size
            )
        finally:
            library.BN_clear_free(base)
            library.BN_clear_free(result)
            library.BN_CTX_free(room)
        if not done:
            return self._otherwise(x)
        return self._mpz(int.from_bytes(out.raw, "big"))

    def _number(self, x: int) -> Any:
        text = x.to_bytes((x.bit_length() + 7) // 8, "big")
        return self._library.BN_bin2bn(text, len(text), None)


def _free(library: Any, exponent: Any, modulus: Any, montgomery: Any) -> None:
    library.BN_clear_free(exponent)
    library.BN_clear_free(modulus)
    library.BN_MONT_CTX_free(montgomery)

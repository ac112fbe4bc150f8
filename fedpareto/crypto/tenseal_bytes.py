"""Bytes to and from TenSEAL.

TenSEAL believes the sizes in its own messages: a false one reads memory that is not there and ends
the process. So only the innermost parts are sent, which Microsoft SEAL checks itself as it reads
them, and the messages around them are made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from fedpareto.errors import BadCiphertext, BadKey, MissingPackage

SLOTS = 4096
PRIMES = 3  # of the modulus of keys; that of ciphertexts has one less
# SEAL's messages begin so: magic, length of the header, version, compression, 0, bytes in all
PREFIX = 8
HEADER = 16
ROOM = 1024  # headers and incompressible data take a little more than the coefficients
# fields of TenSEAL's messages
PARAMETERS = 1
PUBLIC_KEY = (2, 1)
SECRET_KEY = (3, 1)
CIPHERTEXT = 2


def tenseal() -> Any:
    """Return the module tenseal."""
    try:
        import tenseal
    except ImportError:
        raise MissingPackage("tenseal", "lattice", "lattice encryption") from None
    return tenseal


def new_key(modulus: int) -> tuple[bytes, bytes]:
    """Return the public and the secret part of a new key for plaintexts of this modulus."""
    message = _message(_context(modulus), secret=True)
    return _get(message, *PUBLIC_KEY), _get(message, *SECRET_KEY)


def context_of(modulus: int, public: bytes, secret: bytes | None = None) -> Any:
    """Return TenSEAL's context with the parts of a key."""
    polynomial = 8 * SLOTS * PRIMES
    _check_part(BadKey, "BFV key", public, modulus, 2 * polynomial)
    message = _set(_template(modulus, secret is not None), public, *PUBLIC_KEY)
    if secret is not None:
        _check_part(BadKey, "BFV key", secret, modulus, polynomial)
        message = _set(message, secret, *SECRET_KEY)
    try:
        return tenseal().context_from(message)
    except Exception:  # TenSEAL has no error of its own: many kinds come up from C++
        raise BadKey(
            "BFV key: must be bytes that BfvKey.generate made, found others. Read them again."
        ) from None


def chunk_of(vector: Any) -> bytes:
    """Return the ciphertext in one of TenSEAL's vectors as bytes."""
    return _get(vector.serialize(), CIPHERTEXT)


def vector_of(context: Any, modulus: int, chunk: bytes, size: int) -> Any:
    """Return TenSEAL's vector of so many values from the bytes of its ciphertext."""
    _check_part(BadCiphertext, "ciphertext", chunk, modulus, 16 * SLOTS * (PRIMES - 1))
    message = _field(1, _varint(size)) + _field(CIPHERTEXT, chunk)
    try:
        vector = tenseal().bfv_vector_from(context, message)
        (held,) = vector.ciphertext()
        level = context.seal_context().data.first_parms_id()
        fits = held.size() == 2 and not held.is_ntt_form() and held.parms_id() == level
    except Exception:  # TenSEAL has no error of its own: many kinds come up from C++
        fits = False
    if not fits:
        raise BadCiphertext(
            "ciphertext: every part must be a fresh BFV ciphertext or a sum of such, found one "
            "that SEAL refuses. It was changed on its way."
        )
    return vector


def _check_part(error: type[Exception], where: str, part: bytes, modulus: int, most: int) -> None:
    """Refuse a part that is not one message of this SEAL, or is longer than it can be."""
    begins = _get(_template(modulus, False), PARAMETERS)[:PREFIX]
    size = int.from_bytes(part[PREFIX:HEADER], "little")
    if not HEADER < len(part) <= most + ROOM or part[:PREFIX] != begins or size != len(part):
        raise error(
            f"{where}: every part must be of this version of SEAL and of at most {most + ROOM} "
            f"bytes, found {len(part)} that begin with {part[:PREFIX].hex()!r}. Use one version "
            "of TenSEAL everywhere, and send it again."
        )


def _context(modulus: int) -> Any:
    ts = tenseal()
    return ts.context(ts.SCHEME_TYPE.BFV, poly_modulus_degree=SLOTS, plain_modulus=modulus)


def _message(context: Any, secret: bool) -> bytes:
    whole: bytes = context.serialize(
        save_public_key=True, save_secret_key=secret, save_galois_keys=False, save_relin_keys=False
    )
    return whole


@lru_cache(maxsize=8)
def _template(modulus: int, secret: bool) -> bytes:
    """Return the message of a key that nobody uses, whose parts are replaced."""
    return _message(_context(modulus), secret)


def _get(message: bytes, *path: int) -> bytes:
    """Return a field of a message that TenSEAL made here."""
    for number in path:
        message = next(value for found, value, _ in _fields(message) if found == number)
    return message


def _set(message: bytes, new: bytes, *path: int) -> bytes:
    """Return a message that TenSEAL made here with another value of a field."""
    number, *rest = path
    return b"".join(
        _field(number, _set(value, new, *rest) if rest else new) if found == number else whole
        for found, value, whole in _fields(message)
    )


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number, the value and the bytes of every field (Protocol Buffers)."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        value = at
        if tag & 7 == 0:
            _, at = _read_varint(message, at)
        elif tag & 7 == 1:
            at += 8
        else:
            size, value = _read_varint(message, at)
            at = value + size
        yield tag >> 3, message[value:at], message[start:at]


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length and where it ends."""
    number = shift = 0
    while message[at] > 127:
        number |= (message[at] & 127) << shift
        shift += 7
        at += 1
    return number | message[at] << shift, at + 1

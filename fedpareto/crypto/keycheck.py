"""What a key file holds, and whether the key in it works."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.crypto.codec import Codec
from fedpareto.crypto.keyfile import (
    kind_of,
    read_bfv_key,
    read_bfv_public_key,
    read_private_key,
    read_public_key,
)
from fedpareto.crypto.keys import PrivateKey, PublicKey
from fedpareto.crypto.lattice import BfvClient, BfvCodec, BfvKey, bits_of, fingerprint_of
from fedpareto.crypto.paillier import PaillierClient
from fedpareto.errors import BadKey, EncryptionError

VALUES = np.array([-3, 0, 1, 3])
LEVELS = {2048: 112, 3072: 128, 7680: 192, 15360: 256}  # NIST SP 800-57, table 2

AnyKey = PrivateKey | PublicKey | BfvKey | bytes


@dataclass(frozen=True)
class KeyFile:
    """What may be told of a key file: nothing here is secret."""

    path: Path
    scheme: str  # paillier, which serves Damgård–Jurik too, or bfv
    secret: bool  # whether it can decrypt
    bits: int  # of n, or of a BFV plaintext
    security: int  # bits, by NIST SP 800-57 or the Homomorphic Encryption Standard
    fingerprint: str
    mode: str  # who may read the file


def look(path: str | Path) -> KeyFile:
    """Return what may be told of a key file, after reading and checking its key."""
    scheme, secret = kind_of(path)
    bits, fingerprint = _public_of(read_any(path))
    mode = stat.S_IMODE(os.stat(path).st_mode)
    security = 128 if scheme == "bfv" else _level(bits)
    return KeyFile(Path(path), scheme, secret, bits, security, fingerprint, f"{mode:o}")


def read_any(path: str | Path) -> AnyKey:
    """Return the key in a file, of whichever kind it is."""
    scheme, secret = kind_of(path)
    if scheme == "bfv":
        return read_bfv_key(path) if secret else read_bfv_public_key(path)
    return read_private_key(path) if secret else read_public_key(path)


def check(path: str | Path, public: str | Path | None = None) -> KeyFile:
    """Try a private key, and whether a public file is its half; return what the file is."""
    seen = look(path)
    key = read_any(path)
    if isinstance(key, PublicKey | bytes):
        raise BadKey(
            f"{path}: must be a private key to be tried, found a public one. Name the file that "
            "clients share, and this one as --public."
        )
    _try(path, key)
    if public is not None:
        other = look(public)
        if other.secret or (other.scheme, other.fingerprint) != (seen.scheme, seen.fingerprint):
            found = "a private key" if other.secret else f"that of key {other.fingerprint[:8]}"
            raise BadKey(
                f"{public}: must be the public half of key {seen.fingerprint[:8]}, found {found}. "
                "Give the server the file that was made with this key."
            )
    return seen


def _try(path: str | Path, key: PrivateKey | BfvKey) -> None:
    """Encrypt, add and decrypt with a key; a sum carries a stamp, so no wrong one passes."""
    client = _client(key)
    sent = [client.server.read(client.encrypt(VALUES).to_bytes()) for _ in range(2)]
    try:
        works = np.array_equal(client.decrypt(client.server.add(*sent)), 2 * VALUES)
    except EncryptionError:
        works = False
    if not works:
        raise BadKey(
            f"{path}: a sum must decrypt to what was added, found other numbers: the halves of "
            "this key do not belong together. Make a new key."
        )


def _client(key: PrivateKey | BfvKey) -> Any:
    """Return a client with this key, for sums of two."""
    if isinstance(key, BfvKey):
        return BfvClient(key, BfvCodec(2, key.bits))
    return PaillierClient(key, Codec(key.public.bits, 4, 2), "textbook", workers=1)


def _public_of(key: AnyKey) -> tuple[int, str]:
    """Return the bits and the fingerprint of a key."""
    if isinstance(key, bytes):
        return bits_of(key), fingerprint_of(key).hex()
    if isinstance(key, BfvKey):
        return key.bits, key.fingerprint.hex()
    half = key.public if isinstance(key, PrivateKey) else key
    return half.bits, half.fingerprint.hex()


def _level(bits: int) -> int:
    """Return the bits of security that so long an n has at least."""
    return max((level for length, level in LEVELS.items() if bits >= length), default=0)

"""Read and write keys as files. Only the owner can ever read the file of a private key."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedpareto.crypto.keys import PrivateKey, PublicKey
from fedpareto.crypto.lattice import PUBLIC as BFV_PUBLIC
from fedpareto.crypto.lattice import SECRET, BfvKey, bits_of, public_context, secret_context
from fedpareto.errors import BadKey, SettingError
from fedpareto.files import write_new

PRIVATE = "fedpareto paillier private key"
PUBLIC = "fedpareto paillier public key"
MOST_BYTES = 2**16  # the longest key takes an eighth of it
MOST_BFV_BYTES = 2**19  # a key takes 205,000


def write_private_key(key: PrivateKey | BfvKey, path: str | Path) -> None:
    """Write a private key into a new file that only its owner may read.

    An existing file is never replaced.
    """
    if isinstance(key, BfvKey):
        _write(path, key.secret, 0o600)
    else:
        _write(path, _text({"kind": PRIVATE, "p": f"{key.p:x}", "q": f"{key.q:x}"}), 0o600)


def write_public_key(key: PublicKey | bytes, path: str | Path) -> None:
    """Write a public key into a new file; BfvKey.public is given as it is."""
    if isinstance(key, bytes):
        bits_of(key)  # so that no secret one is written where others read
        _write(path, key, 0o644)
    else:
        _write(path, _text({"kind": PUBLIC, "n": f"{key.n:x}"}), 0o644)


def read_private_key(path: str | Path, allow_insecure: bool = False) -> PrivateKey:
    """Return the private Paillier key in a file, which only its owner may be able to read."""
    held = _read(path, PRIVATE, ("p", "q"), secret=True)
    return PrivateKey(held["p"], held["q"], allow_insecure)


def read_public_key(path: str | Path, allow_insecure: bool = False) -> PublicKey:
    """Return the public Paillier key in a file."""
    return PublicKey(_read(path, PUBLIC, ("n",), secret=False)["n"], allow_insecure)


def read_bfv_key(path: str | Path) -> BfvKey:
    """Return the BFV key in a file, which only its owner may be able to read."""
    data = _bytes(path, True, MOST_BFV_BYTES)
    with _named(path, "a BFV secret key", data):
        key = BfvKey.of(data)
        secret_context(key)
    return key


def read_bfv_public_key(path: str | Path) -> bytes:
    """Return the public half of a BFV key in a file."""
    data = _bytes(path, False, MOST_BFV_BYTES)
    with _named(path, "a BFV public key", data):
        public_context(data)
    return data


def kind_of(path: str | Path) -> tuple[str, bool]:
    """Return the scheme of a key file, and whether it holds a secret; its key is not checked."""
    data = _bytes(path, False, MOST_BFV_BYTES)
    found = _kind(data)
    if found is None:
        raise BadKey(
            f"{path}: must be a key file that fedpareto wrote, found something else. Name another "
            "file."
        )
    return found


def _kind(data: bytes) -> tuple[str, bool] | None:
    """Return the scheme of a key file and whether it holds a secret; None where it is no key."""
    for magic, secret in ((SECRET, True), (BFV_PUBLIC, False)):
        if data.startswith(magic):
            return "bfv", secret
    kinds = {PRIVATE: True, PUBLIC: False}
    kind = _object(data[:MOST_BYTES]).get("kind")
    return ("paillier", kinds[kind]) if isinstance(kind, str) and kind in kinds else None


@contextlib.contextmanager
def _named(path: str | Path, wanted: str, data: bytes) -> Iterator[None]:
    """Name the file where its bytes are no key, and say what they are where that is known."""
    try:
        yield
    except (BadKey, SettingError) as error:
        kind = _kind(data)
        if kind is None or f"a {_called(*kind)}" == wanted:
            raise BadKey(f"{path}: {error}") from None
        raise BadKey(
            f"{path}: must hold {wanted}, found a {_called(*kind)}. Name another file."
        ) from None


def _called(scheme: str, secret: bool) -> str:
    """Return how a kind of key is called."""
    if scheme == "bfv":
        return f"BFV {'secret' if secret else 'public'} key"
    return PRIVATE if secret else PUBLIC


def _text(held: dict[str, str]) -> bytes:
    return (json.dumps(held) + "\n").encode()


def _write(path: str | Path, content: bytes, mode: int) -> None:
    try:
        # until it is in its place, only its owner may read it
        write_new(Path(path), content, mode)
    except FileExistsError:
        raise BadKey(
            f"{path}: must be a new file, found one. Name another, or remove it if that key is no "
            "longer needed."
        ) from None
    except OSError as error:
        raise BadKey(
            f"{path}: must be a file that can be written, found: {error.strerror}. Name another "
            "path."
        ) from None


def _bytes(path: str | Path, secret: bool, most: int) -> bytes:
    """Return what a key file holds; a secret must be readable by its owner alone."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):  # nobody may ever write to it
                raise ValueError("a pipe")
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if secret and os.name == "posix" and mode & 0o077:
                raise BadKey(
                    f"{path}: a private key must be readable by its owner alone, found mode "
                    f"{mode:o}. Run: chmod 600 {path}"
                )
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise BadKey(
            f"{path}: must be a key file that can be read, found: "
            f"{getattr(error, 'strerror', None) or error}."
        ) from None
    if len(data) > most:
        raise BadKey(
            f"{path}: must hold a key of at most {most} bytes, found more. Name another file."
        )
    return data


def _read(path: str | Path, kind: str, names: tuple[str, ...], secret: bool) -> dict[str, int]:
    text = _bytes(path, secret, MOST_BYTES)
    held = _object(text)
    numbers = [held.get(name) for name in names]
    if held.get("kind") == kind and all(map(_is_number, numbers)):
        return {name: int(held[name], 16) for name in names}
    known = _kind(text)
    other = known is not None and _called(*known) != kind
    found = f"a {_called(*known)}" if known and other else "something else"
    raise BadKey(f"{path}: must hold a {kind}, found {found}. Name another file.")


def _object(text: bytes) -> dict[str, Any]:
    """Return the JSON object in a text, or an empty one if there is none."""
    try:
        held = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or nested without end
        return {}
    return held if isinstance(held, dict) else {}


def _is_number(text: object) -> bool:
    """Return whether this is a number as keys are written."""
    return isinstance(text, str) and re.fullmatch("[0-9a-f]+", text) is not None

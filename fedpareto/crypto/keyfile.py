"""Read and write keys as files. Only the owner can ever read the file of a private key."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from fedpareto.crypto.keys import PrivateKey, PublicKey
from fedpareto.errors import BadKey

PRIVATE = "fedpareto paillier private key"
PUBLIC = "fedpareto paillier public key"


def write_private_key(key: PrivateKey, path: str | Path) -> None:
    """Write a private key into a new file that only its owner may read.

    An existing file is never replaced.
    """
    _write(path, {"kind": PRIVATE, "p": f"{key.p:x}", "q": f"{key.q:x}"}, 0o600)


def write_public_key(key: PublicKey, path: str | Path) -> None:
    """Write a public key into a new file."""
    _write(path, {"kind": PUBLIC, "n": f"{key.n:x}"}, 0o644)


def read_private_key(path: str | Path, allow_insecure: bool = False) -> PrivateKey:
    """Return the private key in a file, which only its owner may be able to read."""
    held = _read(path, PRIVATE, ("p", "q"), secret=True)
    return PrivateKey(held["p"], held["q"], allow_insecure)


def read_public_key(path: str | Path, allow_insecure: bool = False) -> PublicKey:
    """Return the public key in a file."""
    return PublicKey(_read(path, PUBLIC, ("n",), secret=False)["n"], allow_insecure)


def _write(path: str | Path, held: dict[str, str], mode: int) -> None:
    try:
        # the mode holds before the first byte is there
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
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
    try:
        with os.fdopen(file, "w", encoding="ascii") as out:
            out.write(json.dumps(held) + "\n")
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        os.unlink(path)
        raise


def _read(path: str | Path, kind: str, names: tuple[str, ...], secret: bool) -> dict[str, int]:
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if secret and os.name == "posix" and mode & 0o077:
                raise BadKey(
                    f"{path}: a private key must be readable by its owner alone, found mode "
                    f"{mode:o}. Run: chmod 600 {path}"
                )
            text = file.read()
    except OSError as error:
        raise BadKey(
            f"{path}: must be a key file that can be read, found: {error.strerror}."
        ) from None
    try:
        held: Any = json.loads(text)
        if held["kind"] == kind:
            return {name: int(held[name], 16) for name in names}
        known = held["kind"] in (PRIVATE, PUBLIC)
    except (ValueError, KeyError, TypeError):
        known = False
    found = f"a {held['kind']}" if known else "something else"
    raise BadKey(f"{path}: must hold a {kind}, found {found}. Name another file.")

"""Read and write keys as files. Only the owner can ever read the file of a private key."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from fedpareto.crypto.keys import PrivateKey, PublicKey
from fedpareto.errors import BadKey
from fedpareto.files import write_new

PRIVATE = "fedpareto paillier private key"
PUBLIC = "fedpareto paillier public key"
MOST_BYTES = 2**16  # the longest key takes an eighth of it


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
        # until it is in its place, only its owner may read it
        write_new(Path(path), (json.dumps(held) + "\n").encode(), mode)
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


def _read(path: str | Path, kind: str, names: tuple[str, ...], secret: bool) -> dict[str, int]:
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if secret and os.name == "posix" and mode & 0o077:
                raise BadKey(
                    f"{path}: a private key must be readable by its owner alone, found mode "
                    f"{mode:o}. Run: chmod 600 {path}"
                )
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadKey(
            f"{path}: must be a key file that can be read, found: {error.strerror}."
        ) from None
    if len(text) > MOST_BYTES:
        raise BadKey(
            f"{path}: must hold a {kind} of at most {MOST_BYTES} bytes, found more. Name another "
            "file."
        )
    held = _object(text)
    numbers = [held.get(name) for name in names]
    if held.get("kind") == kind and all(map(_is_number, numbers)):
        return {name: int(held[name], 16) for name in names}
    known = held.get("kind") in (PRIVATE, PUBLIC) and held["kind"] != kind
    found = f"a {held['kind']}" if known else "something else"
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

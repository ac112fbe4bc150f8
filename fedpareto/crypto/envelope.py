"""The bytes of a ciphertext, of either scheme: a header, a stamp, the numbers and a checksum.

What comes from others is checked here before anything is allocated or handed on.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from fedpareto.crypto.stamp import SIZE, Stamp
from fedpareto.errors import BadCiphertext

CHECKSUM = 32


def close(header: bytes, stamp: Stamp, body: bytes) -> bytes:
    """Return the bytes of a ciphertext; the checksum is against accidents alone."""
    count = struct.pack(">I", len(stamp.names))
    whole = b"".join((header, count, stamp.to_bytes(), body))
    return whole + hashlib.sha256(whole).digest()


def open_up(data: Any, header: struct.Struct, magic: bytes) -> tuple[tuple[Any, ...], Stamp, bytes]:
    """Return the fields of the header, the stamp and the body."""
    data = check_bytes("ciphertext", data)
    check_magic(data, magic)
    least = header.size + 4 + 2 * SIZE + CHECKSUM
    if len(data) < least:
        raise BadCiphertext(
            f"ciphertext: must have at least {least} bytes, found {len(data)}. Send it again."
        )
    whole = data[:-CHECKSUM]
    if hashlib.sha256(whole).digest() != data[-CHECKSUM:]:
        raise BadCiphertext(
            f"ciphertext: the checksum must fit, found {len(data)} bytes it does not fit: cut "
            "short or changed on the way. Send it again."
        )
    (terms,) = struct.unpack_from(">I", whole, header.size)
    start = header.size + 4
    end = start + SIZE * (terms + 1)
    if not terms or end > len(whole):
        raise BadCiphertext(
            f"ciphertext: must name the uploads in it, found {terms} in {len(data)} bytes. Send it "
            "again."
        )
    return header.unpack_from(whole), Stamp.from_bytes(whole[start:end]), whole[end:]


def check_bytes(where: str, data: Any) -> bytes:
    """Return the data as bytes if it is some."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise BadCiphertext(
            f"{where}: must be bytes, found {type(data).__name__}. Read the file in binary mode."
        )
    return bytes(data)


def check_magic(data: bytes, magic: bytes) -> None:
    """Refuse bytes that begin otherwise; name the scheme or the format they are of."""
    if data.startswith(magic):
        return
    kind = magic[:-1]  # without the number of the format
    found = f"{len(data)} bytes that do not"
    advice = "Send it again."
    if data.startswith(kind) and len(data) > len(magic):
        found = f"another format, {data[len(kind) : len(magic)]!r}"
        advice = "Encrypt again, with one version of fedpareto everywhere."
    elif data.startswith(b"fedpareto ") and not magic.startswith(data):
        found = f"{data[: len(magic)]!r}"
        advice = "Use one scheme everywhere."
    raise BadCiphertext(f"ciphertext: must begin with {magic.decode()!r}, found {found}. {advice}")

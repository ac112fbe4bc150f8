"""Bytes from others: whatever they are, a reader takes them or raises our own error, and no wrong sum ever comes out."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import os
import random
import re
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedpareto.crypto
from fedpareto.crypto import (
    BfvClient,
    BfvCodec,
    BfvKey,
    BfvServer,
    Ciphertext,
    Codec,
    PaillierClient,
    PrivateKey,
    kind_of,
    read_bfv_key,
    read_bfv_public_key,
    read_private_key,
    read_public_key,
)
from fedpareto.crypto.ciphertext import HEADER
from fedpareto.crypto.keycheck import read_any
from fedpareto.crypto.lattice import HEADER as BFV_HEADER
from fedpareto.crypto.lattice import PUBLIC, SECRET
from fedpareto.crypto.stamp import Stamp
from fedpareto.crypto.tenseal_bytes import chunk_of
from fedpareto.errors import BadCiphertext, BadKey, FedparetoError

KEY = PrivateKey.generate(512, allow_insecure=True)
LATTICE = BfvKey.generate()
CLIENTS = {"paillier": PaillierClient(KEY, Codec(512, 20, 5), workers=1), "damgard-jurik": PaillierClient(KEY, Codec(512, 20, 5, 2), workers=1),
           "bfv": BfvClient(LATTICE, BfvCodec(5))}
VALUES = np.arange(-25, 25)
PRIVATE = json.dumps({"kind": "fedpareto paillier private key", "p": f"{KEY.p:x}", "q": f"{KEY.q:x}"}).encode()
PUBLIC_FILE = json.dumps({"kind": "fedpareto paillier public key", "n": f"{KEY.public.n:x}"}).encode()
EXTREMES = [bytes(8), b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), bytes(7) + b"\x01"]


def seal_message(content):
    """What SEAL writes, with the content in raw blocks of Zstandard: anyone can put anything there."""
    starts = range(0, len(content), 2**17)
    blocks = b"".join(struct.pack("<I", len(content[i : i + 2**17]) << 3 | (i == starts[-1]))[:3] + content[i : i + 2**17] for i in starts)
    frame = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(content)) + blocks
    return chunk_of(SENT["bfv"].vectors[0])[:8] + struct.pack("<Q", 16 + len(frame)) + frame


def seal_content():
    """The fields of a BFV ciphertext before compression, with coefficients at random: it reads, and decrypts to noise."""
    level = CLIENTS["bfv"].server._parameters.seal_context().data.first_parms_id()
    draw = np.random.default_rng(0)
    numbers = draw.integers(0, 2**35, 4 * 4096).astype("<u8").tobytes()
    fields = struct.pack("<4QBQQQdQ", *level, 0, 2, 4096, 2, 1.0, 1)
    header = chunk_of(SENT["bfv"].vectors[0])[:5] + bytes(3) + struct.pack("<Q", 24 + len(numbers))
    return fields + header + struct.pack("<Q", 4 * 4096) + numbers


SENT = {name: client.server.add(client.encrypt(VALUES), client.encrypt(VALUES)) for name, client in CLIENTS.items()}


def bfv_bytes(*chunks, length=50):
    """A BFV ciphertext of any parts, whose checksum fits."""
    data = SENT["bfv"].to_bytes()
    body = data[: BFV_HEADER.size - 8] + struct.pack(">Q", length) + data[BFV_HEADER.size : BFV_HEADER.size + 4 + 3 * 16]
    return sealed(body + b"".join(struct.pack(">I", len(chunk)) + chunk for chunk in chunks))


def sealed(body):
    return body + hashlib.sha256(body).digest()


def take_ciphertext(scheme):
    """Read, add, decrypt: all that is done with bytes. What comes out must be what went in."""
    client = CLIENTS[scheme]

    def take(data):
        read = client.server.read(data)
        for total, times in ((read, 2), (client.server.add(read, client.encrypt(VALUES)), 3)):
            np.testing.assert_array_equal(client.decrypt(total), times * VALUES)
    return take


def take_file(read, path):
    def take(data):
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)
        read(path, allow_insecure=True)
    return take


def take_bfv_file(read, path):
    def take(data):
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)
        key = read(path)
        take_secret(key.secret) if isinstance(key, BfvKey) else take_public(key) if isinstance(key, bytes) else None
    return take


def take_secret(data):
    """A client with another key may encrypt what it reads itself, but never reads the sum of the others wrongly."""
    client = BfvClient(replace(LATTICE, secret=data), BfvCodec(5))
    np.testing.assert_array_equal(client.decrypt(SENT["bfv"]), 2 * VALUES)


def take_public(data):
    server = BfvServer(data, BfvCodec(5))
    server.read(SENT["bfv"].to_bytes())


def readers(folder):
    """Every reader: what it is given in earnest, what it does, whether a checksum ends the bytes."""
    folder = Path(folder)
    found = {f"{name}.read": (SENT[name].to_bytes(), take_ciphertext(name), True) for name in CLIENTS}
    return found | {
        "bfv.read of raw blocks": (bfv_bytes(seal_message(seal_content())), take_ciphertext("bfv"), True),
        "Ciphertext.from_bytes": (SENT["paillier"].to_bytes(), Ciphertext.from_bytes, True),
        "Stamp.from_bytes": (SENT["bfv"].stamp.to_bytes(), Stamp.from_bytes, False),
        "BfvKey.secret": (LATTICE.secret, take_secret, True),
        "BfvKey.public": (LATTICE.public, take_public, True),
        "read_private_key": (PRIVATE, take_file(read_private_key, folder / "private"), False),
        "read_public_key": (PUBLIC_FILE, take_file(read_public_key, folder / "public"), False),
        "read_bfv_key": (LATTICE.secret, take_bfv_file(read_bfv_key, folder / "secret"), True),
        "read_bfv_public_key": (LATTICE.public, take_bfv_file(read_bfv_public_key, folder / "lattice"), True),
        "read_any": (LATTICE.secret, take_bfv_file(read_any, folder / "any"), True),
        "kind_of": (LATTICE.public, take_bfv_file(kind_of, folder / "kind"), False),
    }


def changed(data, rng, donors):
    """Return bytes with one to three faults, in their first 200 bytes as often as anywhere."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        size = len(data)
        at = rng.randrange(min(size, 200) if rng.random() < 0.5 else size) if size else 0
        kind = rng.randrange(9)
        width = rng.choice([1, 2, 4, 8])
        if kind == 0 and size:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data += rng.randbytes(rng.choice([1, 7, 32, 1000]))
        elif kind == 3:  # a piece of other bytes
            other = rng.choice(donors)
            start = rng.randrange(len(other))
            data[at : at + 64] = other[start : start + 64]
        elif kind == 4:  # a length at an extreme
            data[at : at + width] = rng.choice(EXTREMES)[-width:]
        elif kind == 5:
            del data[at : at + width]
        elif kind == 6:
            data[at:at] = rng.randbytes(width)
        elif kind == 7:  # a piece of its own, elsewhere
            start = rng.randrange(size) if size else 0
            data[at : at + 100] = data[start : start + 100]
        else:
            data[at : at + width] = rng.randbytes(width)
    return bytes(data)


def attempt(take, data):
    """Return whether the bytes were taken; every refusal is our own error and says what must hold and what was found."""
    said = ""
    try:
        take(data)
    except FedparetoError as error:
        said = str(error)
    assert not said or re.match(r"(?s)[^:]+: .*must.*found", said), said
    assert len(said) < 1000
    return not said


def fuzz(folder, count, seed):
    """Return how many of so many malformed inputs were taken and refused, for each reader."""
    table = readers(folder)
    donors = [data for data, _, _ in table.values()]
    rng = random.Random(seed)
    counts = {name: [0, 0] for name in table}
    for i in range(count):
        name = list(table)[i % len(table)]
        data, take, checksum = table[name]
        body = changed(data[:-32] if checksum else data, rng, donors)
        if checksum:  # most with a checksum that fits, as an attacker would send them
            body = sealed(body) if rng.random() < 0.8 else body + data[-32:]
        counts[name][attempt(take, body)] += 1
    return counts


def test_every_reader_takes_what_is_right(tmp_path):
    for name, (data, take, _) in readers(tmp_path).items():
        assert attempt(take, data) == (name != "bfv.read of raw blocks"), name  # it is noise: read, and refused on decryption
    CLIENTS["bfv"].server.read(readers(tmp_path)["bfv.read of raw blocks"][0])


def test_malformed_bytes_raise_our_own_errors_alone(tmp_path):
    counts = fuzz(tmp_path, 240, 0)
    assert all(refused for refused, _ in counts.values()), counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_thousand_malformed_bytes_each_raise_our_own_errors_alone(tmp_path, seed):
    counts = fuzz(tmp_path, 1000, seed)
    print(counts)
    assert all(refused for refused, _ in counts.values()), counts


def test_no_reader_is_left_out(tmp_path):
    """Every function of the package that is named like a reader, by its source."""
    found = set()
    for path in Path(fedpareto.crypto.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for one in getattr(node, "body", []) if isinstance(node, ast.Module | ast.ClassDef) else []:
                if isinstance(one, ast.FunctionDef) and re.match(r"(read|load|from_bytes|parse|decode|deserial)", one.name):
                    found.add(f"{node.name}.{one.name}" if isinstance(node, ast.ClassDef) else one.name)
    assert found == {"Server.read", "PaillierServer.read", "BfvServer.read", "Ciphertext.from_bytes", "Stamp.from_bytes", "read_private_key",
                     "read_public_key", "read_bfv_key", "read_bfv_public_key", "read_any"}


@pytest.mark.parametrize("scheme", CLIENTS)
@pytest.mark.parametrize("data", [None, "text", 5, [1], object(), b"", b"\x00", b"x" * 10**6, bytearray(b"fedpareto"), memoryview(b"fedpareto bfv 2")],
                         ids=lambda d: type(d).__name__ + str(len(d) if hasattr(d, "__len__") else ""))
def test_other_types_nothing_and_much_are_refused(scheme, data):
    with pytest.raises(BadCiphertext, match=r"ciphertext: must .* found "):
        CLIENTS[scheme].server.read(data)


@pytest.mark.parametrize("scheme", CLIENTS)
def test_any_kind_of_bytes_is_read(scheme):
    client, data = CLIENTS[scheme], SENT[scheme].to_bytes()
    for same in (bytearray(data), memoryview(data)):
        np.testing.assert_array_equal(client.decrypt(client.server.read(same)), 2 * VALUES)


@pytest.mark.parametrize("scheme", CLIENTS)
def test_the_former_format_is_refused_by_name(scheme):
    data = SENT[scheme].to_bytes()
    old = sealed(data[:-32].replace(b" 2", b" 1", 1))
    with pytest.raises(BadCiphertext, match=r"must begin with 'fedpareto \w+ 2', found another format, b'1'. Encrypt again, with one version"):
        CLIENTS[scheme].server.read(old)


@pytest.mark.parametrize("scheme", CLIENTS)
@pytest.mark.parametrize("value", [2**16, 2**31, 2**32 - 1])
def test_lengths_are_checked_before_anything_is_made(scheme, value):
    """Number of uploads, of values, and of bytes in a part: each claims gigabytes."""
    data = SENT[scheme].to_bytes()
    header = BFV_HEADER if scheme == "bfv" else HEADER
    places = [(header.size - 8, ">Q", value * 2**20), (header.size, ">I", value)]
    if scheme == "bfv":
        places.append((header.size + 4 + 3 * 16, ">I", min(value + 2**20, 2**32 - 1)))
    tracemalloc.start()
    try:
        for at, form, claimed in places:
            body = bytearray(data[:-32])
            struct.pack_into(form, body, at, claimed)
            with pytest.raises(BadCiphertext, match=r"must (take|name|lie in|have the length)"):
                CLIENTS[scheme].server.read(sealed(bytes(body)))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def varint(number):
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


@pytest.mark.parametrize("size", [None, 0, 4097, 100_000, 2**32 - 1])
def test_the_sizes_that_ended_tenseal_never_reach_it(size):
    """A past finding: TenSEAL believes the number of values in its message, and reads beyond its memory."""
    chunk = chunk_of(SENT["bfv"].vectors[0])
    sizes = b"" if size is None else b"\x0a" + varint(len(varint(size))) + varint(size)
    whole = sizes + b"\x12" + varint(len(chunk)) + chunk
    with pytest.raises(BadCiphertext, match="every part must be of this version of SEAL"):
        CLIENTS["bfv"].server.read(bfv_bytes(whole))


SIZE, DEGREE, PRIMES = 33, 41, 49  # where the fields lie in SEAL's content


@pytest.mark.parametrize(("at", "new"), [
    (0, bytes(32)), (0, b"\xff" * 32), (32, b"\x01"), (SIZE, struct.pack("<Q", 0)), (SIZE, struct.pack("<Q", 3)), (SIZE, struct.pack("<Q", 2**40)),
    (DEGREE, struct.pack("<Q", 2**40)), (PRIMES, struct.pack("<Q", 1)), (PRIMES, struct.pack("<Q", 2**40)), (57, struct.pack("<d", float("nan"))),
    (65, struct.pack("<Q", 0)), (81, struct.pack("<Q", 2**62)), (89, struct.pack("<Q", 2**60)), (97, b"\xff" * 8)])
def test_fields_that_seal_refuses_are_refused_in_our_words(at, new):
    content = bytearray(seal_content())
    content[at : at + len(new)] = new
    with pytest.raises(BadCiphertext, match="every part must be a fresh BFV ciphertext or a sum of such, found one that SEAL refuses"):
        CLIENTS["bfv"].server.read(bfv_bytes(seal_message(bytes(content))))


def test_a_small_file_that_unpacks_to_gigabytes_is_refused():
    rle = struct.pack("<I", 2**17 << 3 | 2)[:3] + b"\x00"
    last = struct.pack("<I", 2**17 << 3 | 3)[:3] + b"\x00"
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + rle * 16_000 + last  # 2 GB
    message = chunk_of(SENT["bfv"].vectors[0])[:8] + struct.pack("<Q", 16 + len(frame)) + frame
    with pytest.raises(BadCiphertext, match="found one that SEAL refuses"):
        CLIENTS["bfv"].server.read(bfv_bytes(message))


def test_bfv_ciphertexts_with_parts_too_many_or_too_few_are_refused_on_reading():
    """A past finding: other parts than the length asks for failed only when they were added."""
    chunk = chunk_of(SENT["bfv"].vectors[0])
    for count, length in ((0, 50), (2, 50), (1, 0), (1, 4097), (3, 5000)):
        with pytest.raises(BadCiphertext, match=f"{length} values must lie in {-(-length // 4096)} parts, found {count}"):
            CLIENTS["bfv"].server.read(bfv_bytes(*[chunk] * count, length=length))


def deep(depth, opening, closing):
    return (opening * depth + closing * depth).encode()


@pytest.mark.parametrize("text", [
    deep(10_000, "[", "]"), deep(30_000, "[", ""), deep(8_000, '{"kind":', ""), deep(8_000, '{"p":', "}"), b"null", b"5", b'"kind"', b"NaN", b"[1e999]",
    b'{"kind": 5}', b'{"kind": {}}', b'{"kind": null, "p": null}', b"\xff\xfe{\x00}", b"\xef\xbb\xbf{}", b"9" * 60_000, b'{"kind": "' + b"x" * 60_000 + b'"}',
    PRIVATE.replace(b'"p": "', b'"p": "-'), PRIVATE.replace(b'"p": "', b'"p": " '), PRIVATE.replace(b'"p": "', b'"p": "0x'), PRIVATE.replace(b'"q"', b'"Q"'),
    PRIVATE.replace(f'"{KEY.p:x}"'.encode(), str(KEY.p).encode()), PRIVATE.replace(f'"{KEY.p:x}"'.encode(), b"[]"),
    PRIVATE.replace(f"{KEY.p:x}".encode(), b"f" * 50_000), PRIVATE.replace(f"{KEY.p:x}".encode(), b"0"), PRIVATE + b" " * 10**6, b"[" * 10**6],
    ids=itertools.count())  # the key is drawn anew in each process, so no id may name what is in it
def test_key_files_of_any_content_are_refused(tmp_path, text):
    """Among them a past finding: nested JSON raised RecursionError."""
    for read, content in ((read_private_key, text), (read_public_key, text.replace(b"private", b"public").replace(b'"p"', b'"n"'))):
        (tmp_path / "key").write_bytes(content)
        os.chmod(tmp_path / "key", 0o600)
        if read is read_public_key and b'"Q"' in text:
            continue  # a public key has no q
        with pytest.raises(BadKey, match=r"must .* found "):
            read(tmp_path / "key", allow_insecure=True)


def test_a_key_file_without_end_is_refused():
    with pytest.raises(BadKey, match="of at most 65536 bytes, found more"):
        read_public_key("/dev/zero")


def test_keys_too_long_to_check_are_refused(tmp_path):
    """The largest prime that is quick to write down: checking it would take minutes."""
    (tmp_path / "key").write_text(json.dumps({"kind": "fedpareto paillier public key", "n": f"{2**44497 - 1:x}"}))
    with pytest.raises(BadKey, match="at most 16384 bits, found another number"):
        read_public_key(tmp_path / "key")


@pytest.mark.parametrize("data", [b"", b"junk", PUBLIC, SECRET, PRIVATE, PUBLIC_FILE, LATTICE.public, LATTICE.secret, LATTICE.secret[:-1],
                                  sealed(LATTICE.secret[:-32] + b"more"), sealed(SECRET + b"\xff" + LATTICE.secret[len(SECRET) + 1 : -32]),
                                  sealed(PUBLIC + b"\x10" + LATTICE.public[len(PUBLIC) + 1 : -32])], ids=range(12))
def test_bfv_key_files_of_any_content_are_refused_by_name(tmp_path, data):
    path = tmp_path / "key"
    path.write_bytes(data)
    path.chmod(0o600)
    for read, right in ((read_bfv_key, LATTICE.secret), (read_bfv_public_key, LATTICE.public)):
        if data != right:
            with pytest.raises(BadKey, match=rf"{path}: .*must .* found "):
                read(path)


@pytest.mark.parametrize("data", [None, "text", b"", b"junk", PUBLIC, SECRET + b"\x14" + bytes(32), sealed(PUBLIC + b"\x14"), sealed(PUBLIC + b"\x15"),
                                  sealed(PUBLIC + b"\x14" + struct.pack(">I", 2**32 - 1)), sealed(PUBLIC + b"\x14" + struct.pack(">I", 20) + b"x" * 20),
                                  sealed(PUBLIC + b"\x14" + bytes(4)), LATTICE.public[:-1]], ids=range(12))
def test_bfv_keys_of_any_content_are_refused(data):
    with pytest.raises(BadKey, match=r"must .* found "):
        BfvServer(data, BfvCodec(5))
    client = BfvClient(replace(LATTICE, secret=data.replace(PUBLIC, SECRET) if isinstance(data, bytes) else data), BfvCodec(5))
    for use in (lambda: client.decrypt(SENT["bfv"]), lambda: client.encrypt(VALUES)):
        with pytest.raises(BadKey, match=r"must .* found "):
            use()

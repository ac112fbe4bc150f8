"""Ciphertexts as bytes: they come back as they were, or not at all."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpareto.crypto import Ciphertext, Codec, PaillierClient, PrivateKey
from fedpareto.crypto.ciphertext import HEADER, MAGIC
from fedpareto.errors import BadCiphertext

CLIENT = PaillierClient(PrivateKey.generate(512, allow_insecure=True), Codec(512, 20, 5), workers=1)
SENT = CLIENT.encrypt(np.arange(-25, 25))
DATA = SENT.to_bytes()


def sealed(body):
    """Bytes whose checksum fits: a forger's, or an old version's."""
    return body + hashlib.sha256(body).digest()


@given(st.lists(st.integers(-2, 2), max_size=70), st.integers(1, 5))
def test_a_ciphertext_comes_back_from_its_bytes(values, terms):
    total = CLIENT.server.add(*[CLIENT.encrypt(np.array(values, np.int64)) for _ in range(terms)])
    back = CLIENT.server.read(total.to_bytes())
    assert back == total
    np.testing.assert_array_equal(CLIENT.decrypt(back), terms * np.array(values, np.int64))


def test_bytes_per_value_are_the_numbers_and_little_else():
    assert len(DATA) == HEADER.size + 4 + 2 * 16 + 3 * 128 + 32


@given(st.integers(0, len(DATA) - 1))
def test_a_ciphertext_cut_short_is_refused(length):
    with pytest.raises(BadCiphertext, match="Send it again"):
        CLIENT.server.read(DATA[:length])


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused(place, change):
    changed = bytearray(DATA)
    changed[place] ^= change
    with pytest.raises(BadCiphertext, match=r"checksum must fit|must begin with"):
        CLIENT.server.read(bytes(changed))


def test_extra_bytes_are_refused():
    with pytest.raises(BadCiphertext, match="checksum must fit"):
        CLIENT.server.read(DATA + b"x")


def fields(terms=1, **changed):
    c = SENT.codec
    held = {"key": SENT.key, "key_bits": c.key_bits, "batch": c.batch, "clients": c.clients, "degree": c.degree, "length": 50}
    stamp = DATA[HEADER.size + 4 :][:16] + b"".join(bytes([k]) * 16 for k in range(terms))
    return HEADER.pack(MAGIC, *(held | changed).values()) + struct.pack(">I", terms) + stamp + DATA[HEADER.size + 36 : -32]


@pytest.mark.parametrize(("changed", "message"), [
    ({"degree": 7}, "the header must make sense, found: degree: must be"), ({"clients": 0}, "the header must make sense"),
    ({"batch": 10**6}, "the header must make sense, found: batch: must be at most"), ({"length": 10**15}, "must take"),
    ({"length": 70}, "70 values must take 512 bytes, found 384"), ({"terms": 0}, "must name the uploads in it, found 0"),
    ({"terms": 6}, "at most 5 updates, found 6"), ({"key_bits": 1024}, "must take 768 bytes"), ({"key": b"k" * 16}, "must be of the key"),
    ({"clients": 6}, "must be packed by"), ({"batch": 19}, "must be packed by")])
def test_a_header_that_does_not_fit_is_refused(changed, message):
    with pytest.raises(BadCiphertext, match=message):
        CLIENT.server.read(sealed(fields(**changed)))


def test_a_ciphertext_of_another_key_size_is_refused():
    other = PaillierClient(PrivateKey.generate(256, allow_insecure=True), Codec(256, 10, 5), workers=1)
    with pytest.raises(BadCiphertext, match="must be of a key of 512 bits, found one of 256"):
        CLIENT.server.read(other.encrypt(np.arange(5)).to_bytes())


def test_numbers_outside_the_group_are_refused_on_reading():
    for number in (0, CLIENT.key.public.n, CLIENT.key.public.n ** 2):
        body = fields()[: HEADER.size + 36] + number.to_bytes(128, "big") * 3
        with pytest.raises(BadCiphertext, match=r"must lie between|no factor in common"):
            CLIENT.server.read(sealed(body))


def test_counts_must_agree():
    with pytest.raises(BadCiphertext, match="50 values must lie in 3 numbers, found 1"):
        Ciphertext(SENT.key, SENT.codec, 50, SENT.stamp, (5,))

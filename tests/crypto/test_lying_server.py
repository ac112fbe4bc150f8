"""A server without the key that counts wrongly, swaps, leaves out or changes is found out when its sum is decrypted."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from fedpareto.crypto import (
    BfvClient,
    BfvCodec,
    BfvKey,
    Codec,
    PaillierClient,
    PrivateKey,
    Textbook,
)
from fedpareto.crypto.stamp import PRIME, Stamp, added
from fedpareto.crypto.tenseal_bytes import tenseal
from fedpareto.errors import BadCiphertext, DecodeOverflow

KEY = PrivateKey.generate(512, allow_insecure=True)
LATTICE = BfvKey.generate()
LENGTH = 5000  # two chunks of BFV
STAMP = "the stamp must fit the sum of"


@lru_cache
def client_of(scheme):
    if scheme == "bfv":
        return BfvClient(LATTICE, BfvCodec(5))
    return PaillierClient(KEY, Codec(512, 20, 5, 2 if scheme == "damgard-jurik" else 1), workers=1)


@lru_cache
def uploads(scheme):
    """Three clients' small updates, and what they send in this round."""
    values = [np.random.default_rng(k).integers(-3, 4, LENGTH) for k in range(3)]
    return values, [client_of(scheme).encrypt(v, "round 7") for v in values]


def parts(ciphertext):
    return ciphertext.vectors if hasattr(ciphertext, "vectors") else ciphertext.numbers


def with_parts(ciphertext, new):
    return replace(ciphertext, **{"vectors" if hasattr(ciphertext, "vectors") else "numbers": tuple(new)})


def raw_sum(scheme, ciphertexts):
    """What a server computes that does not care about stamps."""
    server = client_of(scheme).server
    columns = zip(*map(parts, ciphertexts), strict=True)
    if scheme == "bfv":
        return [sum(column[1:], column[0]) for column in columns]
    return [int(np.prod([int(x) for x in column], dtype=object) % server._modulus) for column in columns]


def decrypted(scheme, total, label="round 7"):
    """What a client makes of the sum, which it gets as bytes."""
    client = client_of(scheme)
    return client.decrypt(client.server.read(total.to_bytes()), label)


pytestmark = pytest.mark.parametrize("scheme", ["paillier", "damgard-jurik", "bfv"])


def test_an_honest_sum_is_taken(scheme):
    values, sent = uploads(scheme)
    for count in (1, 2, 3):
        total = client_of(scheme).server.add(*sent[:count])
        assert total.terms == count
        np.testing.assert_array_equal(decrypted(scheme, total), sum(values[:count]))


@pytest.mark.parametrize("claimed", [1, 2, 4, 5])
def test_a_relabelled_count_is_found_out(scheme, claimed):
    """The past finding: a sum of three called one of two decrypted to a wrong mean without a word."""
    total = client_of(scheme).server.add(*uploads(scheme)[1])
    names = (*total.stamp.names, b"x" * 16, b"y" * 16)[:claimed]
    for number in (total.stamp.number, uploads(scheme)[1][0].stamp.number, 0):
        with pytest.raises(BadCiphertext, match=f"{STAMP} {claimed} uploads with the label 'round 7'"):
            decrypted(scheme, replace(total, stamp=Stamp(names, number)))


def test_an_upload_dropped_or_added_without_saying_so_is_found_out(scheme):
    _, sent = uploads(scheme)
    for claimed, summed in ((sent, sent[:2]), (sent[:2], sent), (sent[:1], sent[1:2])):
        lie = with_parts(replace(sent[0], stamp=added("add", [c.stamp for c in claimed])), raw_sum(scheme, summed))
        with pytest.raises(BadCiphertext, match=STAMP):
            decrypted(scheme, lie)


def test_an_upload_counted_twice_is_found_out(scheme):
    _, sent = uploads(scheme)
    with pytest.raises(BadCiphertext, match="add: every upload must be in a sum once, found 1 more than once"):
        client_of(scheme).server.add(sent[0], sent[1], sent[0])
    twice = [sent[0], sent[1], sent[0]]  # the right number of uploads, one in place of another
    stamps = [c.stamp for c in twice]
    names, number = sum((s.names for s in stamps), ()), sum(s.number for s in stamps) % PRIME
    with pytest.raises(BadCiphertext, match="decrypt: every upload must be in a sum once"):
        decrypted(scheme, with_parts(replace(sent[0], stamp=Stamp(names, number)), raw_sum(scheme, twice)))
    honest = added("add", [c.stamp for c in sent])
    with pytest.raises(BadCiphertext, match=STAMP):
        decrypted(scheme, with_parts(replace(sent[0], stamp=honest), raw_sum(scheme, twice)))


def test_chunks_swapped_within_or_between_uploads_are_found_out(scheme):
    _, (one, other, _) = uploads(scheme)
    first, second, *rest = parts(one)
    between = with_parts(one, (parts(other)[0], second, *rest))
    within = with_parts(one, (second, first, *rest))  # of BFV they have different sizes
    for lie in (between, within):
        with pytest.raises(BadCiphertext, match=STAMP):
            decrypted(scheme, lie)
        with pytest.raises(BadCiphertext, match=STAMP):
            decrypted(scheme, client_of(scheme).server.add(client_of(scheme).server.read(lie.to_bytes()), other))
    if scheme == "bfv":
        with pytest.raises(BadCiphertext, match="5000 values must lie in parts of 4096 and a rest, found 2 parts with 5000 values"):
            client_of(scheme).server.add(within, other)


def test_a_value_changed_by_the_public_key_is_found_out(scheme):
    """Anyone can encrypt under the public key and add that: the sum changes, the stamp tells."""
    values, sent = uploads(scheme)
    client = client_of(scheme)
    change = np.zeros(LENGTH, np.int64)
    change[17] = 1
    if scheme == "bfv":
        context = client.server._parameters
        forged = [tenseal().bfv_vector(context, change[i : i + 4096].tolist()) for i in (0, 4096)]
    else:
        forged = Textbook(KEY.public, client.codec.degree)(client.codec.pack(change))
    total = client.server.add(*sent)
    lie = with_parts(total, raw_sum(scheme, [total, with_parts(total, forged)]))
    with pytest.raises(BadCiphertext, match=STAMP):
        decrypted(scheme, lie)
    true = replace(lie, stamp=added("add", [total.stamp, client._stamps.make(change, "round 7")]))
    np.testing.assert_array_equal(decrypted(scheme, true), sum(values) + change)  # the holders of the key can


def test_an_upload_of_another_round_is_found_out(scheme):
    values, sent = uploads(scheme)
    old = client_of(scheme).encrypt(values[0], "round 6")
    total = client_of(scheme).server.add(old, *sent[1:])
    for label in ("round 6", "round 7", ""):
        with pytest.raises(BadCiphertext, match=f"{STAMP} 3 uploads with the label '{label}'"):
            decrypted(scheme, total, label)


def test_another_length_is_found_out(scheme):
    """With zeros at the end, so that the slots tell nothing."""
    client = client_of(scheme)
    sent = client.encrypt(np.zeros(40, np.int64))
    with pytest.raises(BadCiphertext, match=STAMP):
        client.decrypt(client.server.read(replace(sent, length=39).to_bytes()))


def test_ciphertexts_of_another_key_codec_or_scheme_are_refused(scheme):
    client = client_of(scheme)
    lattice, degree = scheme == "bfv", getattr(client.codec, "degree", 1)
    others = [client_of("paillier" if lattice else "bfv"),
              BfvClient(BfvKey.generate(), BfvCodec(5)) if lattice else
              PaillierClient(PrivateKey.generate(512, allow_insecure=True), client.codec, workers=1),
              BfvClient(LATTICE, BfvCodec(6)) if lattice else PaillierClient(KEY, Codec(512, 20, 6, degree), workers=1),
              BfvClient(LATTICE, BfvCodec(4)) if lattice else PaillierClient(KEY, Codec(512, 20, 5, 3 - degree), workers=1)]
    for other in others:
        foreign = other.encrypt(np.ones(40, np.int64))
        for refuse in (client.decrypt, client.server.check, client.server.add, lambda c: client.server.read(c.to_bytes()),
                       lambda c: client.server.add(client.encrypt(np.ones(40, np.int64)), c)):
            with pytest.raises(BadCiphertext, match=r"must (begin with|be of the key|be packed by|be a \w+ ciphertext|have one)"):
                refuse(foreign)


def test_a_relabelled_codec_or_key_is_found_out(scheme):
    """One key, two codecs of the same layout for other numbers of clients: the header alone was changed."""
    if scheme == "bfv":
        small, large = BfvCodec(5), BfvCodec(6)
        make = lambda codec: BfvClient(LATTICE, codec)  # noqa: E731
    else:
        small, large = Codec(512, 250, 1), Codec(512, 240, 1)
        make = lambda codec: PaillierClient(KEY, codec, workers=1)  # noqa: E731
    sent = make(small).encrypt(np.array([1, 0, 0]))
    with pytest.raises((BadCiphertext, DecodeOverflow)):
        make(large).decrypt(replace(sent, codec=large))


def test_the_opposite_of_an_upload_is_refused(scheme):
    """A sum that hides nothing is no ciphertext of BFV; of Paillier it decrypts, and the stamp tells."""
    client = client_of(scheme)
    one = client.encrypt(np.arange(40))
    if scheme == "bfv":
        opposite = [vector * ([-1] * 40) for vector in one.vectors]
    else:
        opposite = [pow(number, -1, int(client.server._modulus)) for number in one.numbers]
    lie = with_parts(client.encrypt(np.arange(40)), opposite)
    with pytest.raises(BadCiphertext, match=r"must still hide its values|the stamp must fit"):
        client.decrypt(client.server.add(one, lie))

"""Paillier: the decrypted sum is the sum, whoever encrypted how; what is foreign, false or too much is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import lru_cache

import gmpy2
import numpy as np
import phe
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.crypto import (
    CONSTRUCTIONS,
    Codec,
    HalfLength,
    PaillierClient,
    PaillierServer,
    PrivateKey,
    Textbook,
)
from fedpareto.crypto.residues import FixedBase, Residues
from fedpareto.crypto.stamp import added
from fedpareto.errors import BadCiphertext, BadKey, DecodeOverflow, SettingError

KEYS = {bits: PrivateKey.generate(bits, allow_insecure=True) for bits in (512, 1024)}
CODEC = Codec(512, 20, 5)


@lru_cache
def tables(key, construction, degree):
    return CONSTRUCTIONS[construction](key, degree)


def client_of(key, codec, construction="fixed-base", workers=1):
    """A client whose tables are shared with every other of the same key."""
    client = PaillierClient(key, codec, construction, workers)
    client.__dict__["_encrypt"] = tables(key, construction, codec.degree)
    return client


CLIENT = client_of(KEYS[512], CODEC)


def copies(client, values, count):
    """Uploads of the same values, each with its own stamp, encrypted once."""
    one = client.encrypt(values)
    return [replace(one, stamp=client._stamps.make(values, "")) for _ in range(count)]


@settings(max_examples=40)
@given(bits=st.sampled_from([512, 512, 1024]), clients=st.integers(1, 1000), value_bits=st.integers(2, 24), degree=st.integers(1, 2),
       pattern=st.sampled_from([-1, 0, 1, 2, 3]), extra=st.sampled_from([-1, 0, 1]), data=st.data())
def test_the_decrypted_sum_is_the_sum(bits, clients, value_bits, degree, pattern, extra, data):
    """T1, T2: any number of summands, any construction for each, any order and association."""
    slot = value_bits + clients.bit_length()
    batch = min(degree * (bits - 1) // slot, 60)
    codec = Codec(bits, batch, clients, degree)
    size, q = max(1, batch + extra), codec.magnitude
    rng = np.random.default_rng(size)
    terms = data.draw(st.integers(1, min(clients, 6)))
    values = [np.full(size, pattern * q) if abs(pattern) < 2 else rng.integers(-q, q + 1, size) if pattern == 2 else
              np.where(np.arange(size) % 2, q, -q) for _ in range(terms)]
    kinds = data.draw(st.lists(st.sampled_from(sorted(CONSTRUCTIONS)), min_size=terms, max_size=terms))
    sent = [client_of(KEYS[bits], codec, kind).encrypt(v) for kind, v in zip(kinds, values, strict=True)]
    server = PaillierServer(KEYS[bits].public, codec)
    pool = list(sent)
    while len(pool) > 1:  # add two at random until one is left
        a = pool.pop(data.draw(st.integers(0, len(pool) - 1)))
        pool.append(server.add(a, pool.pop(data.draw(st.integers(0, len(pool) - 1)))))
    assert pool[0].terms == terms
    np.testing.assert_array_equal(client_of(KEYS[bits], codec).decrypt(pool[0]), sum(values))


def test_a_thousand_clients_at_the_extremes():
    codec = Codec(512, 20, 1000)
    client = client_of(KEYS[512], codec)
    values = np.where(np.arange(33) % 3, -codec.magnitude, codec.magnitude)
    total = client.server.add(*copies(client, values, 1000))
    np.testing.assert_array_equal(client.decrypt(total), 1000 * values)
    with pytest.raises(BadCiphertext, match="at most 1000 updates may be summed, found 1001"):
        client.server.add(total, client.encrypt(values))


def test_a_key_of_2048_bits_with_all_cores():
    key, codec, rng = PrivateKey.generate(2048), Codec(2048, 100, 5), np.random.default_rng(0)
    client = PaillierClient(key, codec)
    values = [rng.integers(-codec.magnitude, codec.magnitude + 1, 4001) for _ in range(2)]
    total = client.server.add(*map(client.encrypt, values))
    np.testing.assert_array_equal(client.decrypt(client.server.read(total.to_bytes())), sum(values))


def test_more_summands_than_clients_are_refused():
    """T4, with the counter."""
    six = copies(CLIENT, np.ones(3, np.int64), 6)
    with pytest.raises(BadCiphertext, match=r"at most 5 updates may be summed, found 6. Make the codec for more clients"):
        CLIENT.server.add(*six)
    with pytest.raises(BadCiphertext, match="must be a sum of at most 5 updates, found 6"):
        replace(six[0], stamp=added("add", [one.stamp for one in six]))
    with pytest.raises(SettingError, match="at least one ciphertext"):
        CLIENT.server.add()


@pytest.mark.parametrize("sign", [-1, 1])
def test_an_overflow_past_the_counter_is_found_when_decoding(sign):
    """T4, without the counter."""
    one, *four = copies(CLIENT, np.full(40, sign * CODEC.magnitude), 5)
    five = CLIENT.server.add(one, *four)
    six = CLIENT.server.add(replace(five, stamp=four[0].stamp), one)
    for claimed in (six, five):
        with pytest.raises(DecodeOverflow):
            CLIENT.decrypt(replace(six, stamp=claimed.stamp))


def test_values_in_the_tail_of_a_ciphertext_are_found():
    """T5."""
    with pytest.raises(DecodeOverflow):
        CLIENT.decrypt(replace(CLIENT.encrypt(np.ones(40, np.int64)), length=35))


def test_another_key_is_refused_by_name_and_by_canary():
    """T6."""
    other = client_of(PrivateKey.generate(512, allow_insecure=True), CODEC)
    sent = CLIENT.encrypt(np.arange(20))
    for refuse in (other.decrypt, other.server.check, other.server.add, lambda c: other.server.read(c.to_bytes())):
        with pytest.raises(BadCiphertext, match=r"must be of the key \w{8}, found one of the key \w{8}"):
            refuse(sent)
    small = tuple(x % other.server._modulus for x in sent.numbers)
    with pytest.raises(DecodeOverflow):
        other.decrypt(replace(sent, key=other.key.public.fingerprint, numbers=small))


def test_keys_codecs_and_lengths_must_agree():
    one = CLIENT.encrypt(np.ones(3, np.int64))
    for other, message in [(replace(one, key=b"x" * 16), "must have one key"),
                           (CLIENT.encrypt(np.ones(4, np.int64)), "must have one length"),
                           (client_of(KEYS[512], Codec(512, 20, 6)).encrypt(np.ones(3, np.int64)), "must have one codec")]:
        with pytest.raises(BadCiphertext, match=message):
            CLIENT.server.add(one, other)
    with pytest.raises(BadCiphertext, match="must be packed by"):
        PaillierServer(KEYS[512].public, Codec(512, 20, 6)).add(one)
    with pytest.raises(BadCiphertext, match="must be of a key of 1024 bits, found one of 512"):
        PaillierServer(KEYS[1024].public, Codec(1024, 20, 5)).check(one)
    with pytest.raises(BadKey, match="codec: must be made for a key of 512 bits, found 1024"):
        PaillierClient(KEYS[512], Codec(1024, 20, 5))


@pytest.mark.parametrize(("number", "message"), [
    (0, "must lie between"), (-1, "must lie between"), (KEYS[512].public.n ** 2, "must lie between"),
    (KEYS[512].public.n, "no factor in common"), (KEYS[512].p, "no factor in common")],
    ids=["zero", "negative", "too large", "n", "p"])
def test_numbers_that_no_encryption_gives_are_refused(number, message):
    """T7."""
    bad = replace(CLIENT.encrypt(np.ones(40, np.int64)), numbers=(5, number))
    for refuse in (CLIENT.decrypt, CLIENT.server.check):
        with pytest.raises(BadCiphertext, match=message):
            refuse(bad)


def test_a_number_that_shares_a_factor_never_decrypts():
    (decrypt, *_) = CLIENT._decrypt
    with pytest.raises(BadCiphertext, match="must share no factor with n"):
        decrypt(gmpy2.mpz(KEYS[512].p))


@pytest.mark.parametrize("construction", sorted(CONSTRUCTIONS))
@pytest.mark.parametrize("workers", [1, 2])
def test_no_randomness_is_used_twice(construction, workers):
    """T9: not within a batch, not between batches, not between processes."""
    client = client_of(KEYS[512], Codec(512, 1, 5), construction, workers)
    numbers = client.encrypt(np.full(64, 7)).numbers + client.encrypt(np.full(64, 7)).numbers
    n, square = KEYS[512].public.n, KEYS[512].public.n ** 2
    assert len(set(numbers)) == 128
    assert all(a * gmpy2.invert(b, square) % square % n != 1 for a, b in itertools.combinations(numbers[::3], 2))


def test_every_construction_gives_the_same_plaintext_and_adds_with_the_others():
    """T10."""
    for degree in (1, 2):
        codec = Codec(512, 20, 5, degree)
        values = np.arange(-20, 20)
        clients = [client_of(KEYS[512], codec, kind) for kind in CONSTRUCTIONS]
        sent = [c.encrypt(values) for c in clients]
        for client, one in itertools.product(clients, sent):
            np.testing.assert_array_equal(client.decrypt(one), values)
        np.testing.assert_array_equal(clients[0].decrypt(clients[0].server.add(*sent)), 3 * values)


@pytest.mark.parametrize("degree", [1, 2])
def test_the_fixed_base_blinds_with_exactly_the_nth_powers(degree):
    """On a toy key every n-th power modulo p^(s+1) turns up, and nothing else does."""
    p, n = 23, 23 * 19
    residues = Residues(p, n, degree)
    drawn = {int(x) for x in FixedBase(residues)([gmpy2.mpz(0)] * 2000)}
    assert drawn == {pow(r, n**degree, p ** (degree + 1)) for r in range(1, p)}


def test_phe_agrees():
    """T13: an independent library decrypts ours, adds ours to its own, and we decrypt its sum."""
    key = KEYS[1024]
    public = phe.PaillierPublicKey(key.public.n)
    private = phe.PaillierPrivateKey(public, key.p, key.q)
    codec = Codec(1024, 40, 5)
    values = [np.random.default_rng(k).integers(-codec.magnitude, codec.magnitude + 1, 40) for k in range(2)]
    plain = [codec.pack(v)[0] for v in values]
    for construction in CONSTRUCTIONS:
        client = client_of(key, codec, construction)
        ours = client.encrypt(values[0])
        assert private.raw_decrypt(ours.numbers[0]) == plain[0] % public.n
        theirs = replace(ours, numbers=(int(public.raw_encrypt(plain[1] % public.n)),), stamp=client._stamps.make(values[1], ""))
        np.testing.assert_array_equal(client.decrypt(theirs), values[1])
        total = client.server.add(ours, theirs)
        assert private.raw_decrypt(total.numbers[0]) == sum(plain) % public.n
        np.testing.assert_array_equal(client.decrypt(total), sum(values))


def test_the_public_key_alone_encrypts():
    codec = Codec(512, 20, 5, 2)
    for make in (HalfLength, Textbook):
        numbers = make(KEYS[512].public, 2)(codec.pack(np.arange(20)))
        sent = replace(client_of(KEYS[512], codec).encrypt(np.arange(20)), numbers=tuple(numbers))
        np.testing.assert_array_equal(client_of(KEYS[512], codec).decrypt(sent), np.arange(20))


def test_the_server_cannot_decrypt():
    server = CLIENT.server
    server.add(CLIENT.encrypt(np.ones(3, np.int64)))
    key = KEYS[512]
    secrets = {key.p, key.q, key.p - 1, key.q - 1, key.p**2, key.q**2, (key.p - 1) * (key.q - 1)}
    held, seen = [server], []
    while held:
        one = held.pop()
        seen.append(one)
        held += list(vars(one).values()) if hasattr(one, "__dict__") else []
    assert not {int(x) for x in seen if isinstance(x, int | type(gmpy2.mpz()))} & secrets
    assert not hasattr(server, "decrypt")
    assert not any(isinstance(x, PrivateKey) for x in seen)
    with pytest.raises(AttributeError):
        server.key.p  # noqa: B018


def test_a_client_shows_no_secret():
    client = client_of(KEYS[512], CODEC)
    client.decrypt(client.encrypt(np.ones(3, np.int64)))
    assert str(KEYS[512].p) not in repr(client)
    assert repr(client.encrypt(np.ones(3, np.int64))).startswith("Ciphertext(3 values in 1 numbers, 1 summed, key ")


def test_settings_are_checked():
    with pytest.raises(SettingError, match=r"must be one of fixed-base, half-length, textbook, found 'textbok'. Did you mean"):
        PaillierClient(KEYS[512], CODEC, "textbok")
    with pytest.raises(SettingError, match="workers: must be at least 1, found 0"):
        PaillierClient(KEYS[512], CODEC, workers=0)


def test_a_key_made_elsewhere_decrypts_but_has_no_fixed_base():
    _, private = phe.generate_paillier_keypair(n_length=512)
    key = PrivateKey(int(private.p), int(private.q), allow_insecure=True)
    client = PaillierClient(key, CODEC, "textbook", 1)
    np.testing.assert_array_equal(client.decrypt(client.encrypt(np.arange(20))), np.arange(20))
    with pytest.raises(BadKey, match=r"found a key made elsewhere. Use construction='textbook'"):
        PaillierClient(key, CODEC, workers=1).encrypt(np.arange(20))


def test_empty_vectors_pass_through():
    sent = copies(CLIENT, np.zeros(0, np.int64), 2)
    assert len(CLIENT.decrypt(CLIENT.server.read(CLIENT.server.add(*sent).to_bytes()))) == 0

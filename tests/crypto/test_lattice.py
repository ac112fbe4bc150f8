"""BFV: the same exact sums, the same refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.crypto import (
    SCHEMES,
    BfvClient,
    BfvCodec,
    BfvKey,
    BfvServer,
    Codec,
    PaillierClient,
    PrivateKey,
)
from fedpareto.crypto.lattice import MOST_CLIENTS
from fedpareto.errors import BadCiphertext, BadKey, CapacityError, DecodeOverflow, SettingError

KEYS = {bits: BfvKey.generate(bits) for bits in (20, 40)}
CLIENT = BfvClient(KEYS[20], BfvCodec(5))


def copies(client, values, count):
    """Uploads of the same values, each with its own stamp, encrypted once."""
    one = client.encrypt(values)
    return [replace(one, stamp=client._stamps.make(values, "")) for _ in range(count)]


@settings(max_examples=25)
@given(bits=st.sampled_from([20, 40]), clients=st.integers(1, 1000), pattern=st.sampled_from([-1, 0, 1, 2]),
       size=st.sampled_from([1, 100, 4095, 4096, 4097]), terms=st.integers(1, 5))
def test_the_decrypted_sum_is_the_sum(bits, clients, pattern, size, terms):
    codec = BfvCodec(clients, bits)
    client = BfvClient(KEYS[bits], codec)
    q = codec.magnitude
    values = [np.full(size, pattern * q) if pattern < 2 else np.random.default_rng(k).integers(-q, q + 1, size)
              for k in range(min(terms, clients))]
    total = client.server.add(*map(client.encrypt, values))
    np.testing.assert_array_equal(client.decrypt(client.server.read(total.to_bytes())), sum(values))


@pytest.mark.parametrize("bits", [20, 40])
def test_a_thousand_clients_at_the_extremes(bits):
    codec = BfvCodec(1000, bits)
    client = BfvClient(KEYS[bits], codec)
    values = np.where(np.arange(500) % 2, codec.magnitude, -codec.magnitude)
    total = client.server.add(*copies(client, values, 1000))
    np.testing.assert_array_equal(client.decrypt(total), 1000 * values)


def test_the_noise_of_as_many_clients_as_are_allowed_stays_below_the_limit():
    client = BfvClient(KEYS[40], BfvCodec(MOST_CLIENTS, 40))
    (total,) = client.encrypt(np.full(50, client.codec.magnitude)).vectors
    for _ in range(MOST_CLIENTS.bit_length() - 1):  # the same ciphertext again and again: its noise adds up fully
        total = total + total
    assert set(total.decrypt(client._secret)) == {MOST_CLIENTS * client.codec.magnitude}


def test_both_schemes_give_the_same_sums():
    values = np.arange(-50, 50)
    paillier = PaillierClient(PrivateKey.generate(512, allow_insecure=True), Codec(512, 20, 5), workers=1)
    assert set(SCHEMES) == {"bfv", "paillier"}
    sums = []
    for client in (CLIENT, paillier):
        assert isinstance(client, tuple(SCHEMES.values()))
        sums.append(client.decrypt(client.server.add(client.encrypt(values), client.encrypt(values[::-1].copy()))).tolist())
    assert sums[0] == sums[1] == [-1] * 100


@pytest.mark.parametrize("bits", [17, 20, 33, 40])
def test_the_modulus_is_a_prime_with_room_for_every_slot(bits):
    import gmpy2

    modulus = BfvCodec(1, bits).modulus
    assert gmpy2.is_prime(modulus)
    assert modulus % 8192 == 1
    assert modulus.bit_length() == bits


@pytest.mark.parametrize(("words", "message"), [({"clients": 0}, "clients: must be"), ({"clients": 5, "bits": 41}, "bits: must be"),
                                              ({"clients": 5, "bits": 8}, "bits: must be"), ({"clients": 2.0}, "clients: must be")])
def test_parameters_are_checked(words, message):
    with pytest.raises(SettingError, match=message):
        BfvCodec(**words)
    with pytest.raises(CapacityError, match="bits: must be at least 18 for 60000 clients, found 17"):
        BfvCodec(60000, 17)


def test_values_are_checked():
    with pytest.raises(SettingError, match="encrypt: values must lie within ±103219"):
        CLIENT.encrypt(np.array([103220]))
    with pytest.raises(SettingError, match="encrypt: values must be a vector of signed whole numbers"):
        CLIENT.encrypt(np.array([0.5]))


def test_the_server_holds_no_secret_and_takes_none():
    server = CLIENT.server
    assert server._parameters.is_public()
    assert not server._parameters.has_secret_key()
    assert not CLIENT.encrypt(np.arange(5)).vectors[0].context().has_secret_key()
    assert not hasattr(server, "decrypt")
    with pytest.raises(BadKey, match="must be given the public half of a key, found the secret one"):
        BfvServer(KEYS[20].secret, CLIENT.codec)
    with pytest.raises(BadKey, match=r"must be bytes that BfvKey.generate made"):
        BfvServer(b"junk", CLIENT.codec)
    with pytest.raises(BadKey, match="codec: must be made for a key of 20 bits, found 40"):
        BfvClient(KEYS[20], BfvCodec(5, 40))


def test_nothing_shows_the_secret():
    for shown in (repr(KEYS[20]), repr(CLIENT), repr(CLIENT.server)):
        assert len(shown) < 200
    assert "secret not shown" in repr(CLIENT)


def test_foreign_and_damaged_ciphertexts_are_refused():
    sent = CLIENT.encrypt(np.arange(5))
    data = sent.to_bytes()
    changed = bytearray(data)
    changed[500] ^= 1
    for bad in (data[:-1], data[:20], b"", bytes(changed), b"x" * 300):
        with pytest.raises(BadCiphertext, match=r"checksum must fit|must have at least|must begin with"):
            CLIENT.server.read(bad)
    other = BfvClient(BfvKey.generate(20), BfvCodec(5))
    for refuse in (other.decrypt, other.server.add, lambda c: other.server.read(c.to_bytes())):
        with pytest.raises(BadCiphertext, match="must be of the key"):
            refuse(sent)
    with pytest.raises(BadCiphertext, match="must be packed by"):
        BfvClient(KEYS[20], BfvCodec(6)).server.read(data)
    with pytest.raises(BadCiphertext, match="5000 values must lie in 2 parts, found 1"):
        CLIENT.server.read(replace(sent, length=5000).to_bytes())


def test_too_many_summands_are_refused():
    one, *more = copies(CLIENT, np.full(5, CLIENT.codec.magnitude), 6)
    with pytest.raises(BadCiphertext, match="at most 5 updates may be summed, found 6"):
        CLIENT.server.add(one, *more)
    with pytest.raises(BadCiphertext, match="must have one length"):
        CLIENT.server.add(one, CLIENT.encrypt(np.arange(4)))
    with pytest.raises(SettingError, match="at least one ciphertext"):
        CLIENT.server.add()
    with pytest.raises(DecodeOverflow, match="More updates were added than counted"):
        CLIENT.decrypt(replace(CLIENT.server.add(one, *more[:1]), stamp=one.stamp))

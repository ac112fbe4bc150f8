"""The codec: sums of packed vectors come out exactly, and what cannot be a sum is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedpareto.crypto import Codec
from fedpareto.errors import CapacityError, DecodeOverflow, SettingError

PATTERNS = ["random", "largest", "smallest", "alternating", "zero", "ones"]


def vector(pattern, size, magnitude, rng):
    alternating = np.where(np.arange(size) % 2, magnitude, -magnitude)
    return {"random": rng.integers(-magnitude, magnitude + 1, size), "largest": np.full(size, magnitude), "ones": np.full(size, -1),
            "smallest": np.full(size, -magnitude), "alternating": alternating, "zero": np.zeros(size, np.int64)}[pattern].astype(np.int64)


@given(clients=st.integers(1, 1000), bits=st.integers(2, 40), batch=st.integers(1, 60), degree=st.integers(1, 2),
       pattern=st.sampled_from(PATTERNS), extra=st.sampled_from([-1, 0, 1, 7]), data=st.data())
def test_sums_of_packed_vectors_unpack_exactly(clients, bits, batch, degree, pattern, extra, data):
    """T1 and T2: two to a thousand clients, two bits and up a value, every number of summands."""
    slot = max(bits, clients.bit_length() + 1)
    codec = Codec(slot * batch // degree + 17, batch, clients, degree)
    terms = data.draw(st.integers(1, min(clients, 12)) | st.just(clients))
    size = max(1, data.draw(st.sampled_from([1, batch, 2 * batch])) + extra)
    rng = np.random.default_rng(size)
    kinds = [vector(pattern, size, codec.magnitude, rng) for _ in range(3)]
    counts = [terms - 2 * (terms // 3), terms // 3, terms // 3]
    packed = [sum(n * m for n, m in zip(counts, column, strict=True)) for column in zip(*map(codec.pack, kinds), strict=True)]
    expected = sum(n * k for n, k in zip(counts, kinds, strict=True))
    np.testing.assert_array_equal(codec.unpack(packed, terms, size), expected)


@given(key_bits=st.integers(16, 200), batch=st.integers(1, 60), clients=st.integers(1, 40), degree=st.integers(1, 2))
def test_a_codec_is_feasible_exactly_if_ternary_sums_fit_and_its_magnitude_is_the_largest(key_bits, batch, clients, degree):
    """T11, by brute force over slots and magnitudes."""
    slot = degree * (key_bits - 1) // batch
    fits = [q for q in range(2**12) if slot >= 1 and clients * q <= 2 ** (slot - 1) - 1]
    if not fits or max(fits) < 1:
        with pytest.raises(CapacityError):
            Codec(key_bits, batch, clients, degree)
        return
    codec = Codec(key_bits, batch, clients, degree)
    assert codec.slot == slot
    assert codec.most_batch >= batch
    if max(fits) < 2**12 - 1:
        assert codec.magnitude == max(fits)
    with pytest.raises(CapacityError):
        Codec(key_bits, codec.most_batch + 1, clients, degree)
    Codec(key_bits, codec.most_batch, clients, degree)


@pytest.mark.parametrize(("key_bits", "batch", "degree", "slot", "magnitude"), [
    (2048, 100, 1, 20, 104857), (2048, 200, 1, 10, 102), (2048, 400, 1, 5, 3), (3072, 100, 1, 30, 107374182), (3072, 200, 1, 15, 3276),
    (3072, 400, 1, 7, 12), (4096, 800, 1, 5, 3), (2048, 800, 2, 5, 3), (4096, 100, 1, 40, 2**31 - 1)])
def test_the_capacity_table_of_the_documentation(key_bits, batch, degree, slot, magnitude):
    codec = Codec(key_bits, batch, 5, degree)
    assert (codec.slot, codec.magnitude) == (slot, magnitude)


def test_too_many_values_are_refused_with_every_way_out():
    with pytest.raises(CapacityError) as raised:
        Codec(2048, 800, 5)
    assert str(raised.value) == (
        "batch: must be at most 511 for a key of 2048 bits, 5 clients and degree 1, found 800. Take a smaller one, degree 2 (at most 1023) "
        "or a key of at least 3201 bits.")
    assert Codec(3201, 800, 5).magnitude == 1
    with pytest.raises(CapacityError, match=r"Take a smaller one or a key of at least 6801 bits"):
        Codec(2048, 1700, 5)


@pytest.mark.parametrize(("name", "value"), [("key_bits", 8), ("batch", 0), ("clients", 0), ("degree", 3), ("batch", 2.0),
                                              ("clients", True)])
def test_parameters_must_be_whole_numbers_in_their_range(name, value):
    with pytest.raises(SettingError, match=f"{name}: must be a whole number from"):
        Codec(**{"key_bits": 2048, "batch": 10, "clients": 5} | {name: value})


@pytest.mark.parametrize("values", [np.array([1.0]), np.array([[1]]), np.array([1], np.uint8), [1], np.array([True])])
def test_only_vectors_of_signed_whole_numbers_are_packed(values):
    """T3."""
    with pytest.raises(SettingError, match="pack: values must be a vector of signed whole numbers"):
        Codec(512, 10, 5).pack(values)


@pytest.mark.parametrize("sign", [-1, 1])
def test_values_beyond_the_magnitude_are_refused(sign):
    codec = Codec(512, 10, 5)
    with pytest.raises(SettingError, match=f"pack: values must lie within ±{codec.magnitude}"):
        codec.pack(np.array([0, sign * (codec.magnitude + 1)]))
    with pytest.raises(SettingError, match="must lie within"):
        codec.pack(np.array([np.iinfo(np.int64).min]))


@given(key_bits=st.integers(64, 600), batch=st.integers(1, 40), clients=st.integers(1, 12), sign=st.sampled_from([-1, 1]))
def test_one_summand_too_many_at_the_extreme_never_gives_a_number(key_bits, batch, clients, sign):
    """T4: the counter bypassed."""
    assume(batch <= (key_bits - 1) // (clients.bit_length() + 1))
    codec = Codec(key_bits, batch, clients)
    (plaintext,) = codec.pack(np.full(batch, sign * codec.magnitude))
    for terms in range(1, clients + 1):
        with pytest.raises(DecodeOverflow, match="More updates were added than counted"):
            codec.unpack([(terms + 1) * plaintext], terms, batch)


def test_values_in_the_tail_are_refused():
    """T5."""
    codec = Codec(512, 10, 5)
    plaintexts = codec.pack(np.ones(20, np.int64))
    with pytest.raises(DecodeOverflow):
        codec.unpack(plaintexts, 1, 15)


@given(st.integers(min_value=-(2**2046), max_value=2**2046))
def test_a_random_plaintext_is_refused(plaintext):
    """T6, the canary: 47 spare bits and the bound of every slot."""
    assume(abs(plaintext) > 2**2000)
    with pytest.raises(DecodeOverflow):
        Codec(2048, 100, 5).unpack([plaintext], 1, 100)


def test_wide_slots_refuse_stray_bits():
    codec = Codec(512, 2, 5)
    for stray in (1 << 100, 1 << 254, -(1 << 254), 1 << 600, -(1 << 600)):
        with pytest.raises(DecodeOverflow):
            codec.unpack([stray], 5, 2)


@pytest.mark.parametrize(("plaintexts", "terms", "message"), [([0], 0, "terms must be from 1 to 5"), ([0], 6, "terms must be from 1 to 5"),
                                                            ([], 1, "must lie in 1 plaintexts, found 0")])
def test_unpacking_needs_the_right_counts(plaintexts, terms, message):
    with pytest.raises(SettingError, match=message):
        Codec(512, 10, 5).unpack(plaintexts, terms, 10)


def test_nothing_packs_to_nothing():
    codec = Codec(512, 10, 5)
    assert codec.pack(np.zeros(0, np.int64)) == []
    assert len(codec.unpack([], 1, 0)) == 0

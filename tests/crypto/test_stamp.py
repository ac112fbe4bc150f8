"""Stamps: the numbers add up as the uploads do, say nothing of them, and fit no other sum, label, key or codec."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpareto.crypto.stamp import BLOCK, PRIME, Stamp, Stamps, added
from fedpareto.errors import BadCiphertext

STAMPS = Stamps(b"secret", "codec")
WHOLE = st.integers(-(2**62), 2**62) | st.integers(-(2**31), 2**31) | st.integers(-5, 5)


def product(values):
    """By whole numbers of Python, with the weights put together from their digits."""
    weights = [sum(int(digit) << 16 * j for j, digit in enumerate(row)) for row in STAMPS._weights]
    return sum(w * int(v) for w, v in zip(weights, values, strict=False))


@given(st.lists(WHOLE, max_size=40))
def test_the_number_is_the_exact_product_with_the_weights(values):
    assert STAMPS._product(np.array(values, np.int64)) == product(values)


@pytest.mark.parametrize("value", [2**62, -(2**62), 2**31 - 1, -(2**31), 2**16 - 1])
def test_the_product_is_exact_across_blocks_at_the_extremes(value):
    values = np.full(BLOCK + 3, value, np.int64)
    assert STAMPS._product(values) == product(values)


@given(st.lists(st.lists(st.integers(-100, 100), min_size=6, max_size=6), min_size=1, max_size=5))
def test_the_stamp_of_a_sum_is_the_sum_of_the_stamps_and_fits_nothing_else(rows):
    values = np.array(rows, np.int64)
    stamp = added("add", [STAMPS.make(row, "a") for row in values])
    sums = values.sum(0)
    STAMPS.check(stamp, sums, "a")
    others = [(stamp, sums + np.eye(6, dtype=np.int64)[0], "a"), (stamp, sums, "b"), (stamp, sums[::-1] + 1, "a"), (stamp, np.append(sums, 0), "a"),
              (Stamp(stamp.names[1:], stamp.number), sums, "a"), (Stamp((*stamp.names, b"n" * 16), stamp.number), sums, "a"),
              (Stamp(stamp.names, (stamp.number + 1) % PRIME), sums, "a")]
    for case in others:
        with pytest.raises(BadCiphertext, match="the stamp must fit"):
            STAMPS.check(*case)


def test_stamps_of_another_key_or_codec_do_not_fit():
    x = np.arange(9)
    stamp = STAMPS.make(x, "a")
    Stamps(b"secret", "codec").check(stamp, x, "a")  # another client with the same key
    for other in (Stamps(b"other", "codec"), Stamps(b"secret", "other")):
        with pytest.raises(BadCiphertext, match="the stamp must fit"):
            other.check(stamp, x, "a")


def test_numbers_and_names_never_repeat_and_are_spread_evenly():
    stamps = [STAMPS.make(np.zeros(3, np.int64), "") for _ in range(400)]
    assert len({s.number for s in stamps}) == len({s.names for s in stamps}) == 400
    assert np.mean([s.number / PRIME for s in stamps]) == pytest.approx(0.5, abs=0.1)  # 7 standard deviations


def test_a_stamp_comes_back_from_its_bytes():
    stamp = added("add", [STAMPS.make(np.arange(3), "") for _ in range(3)])
    assert Stamp.from_bytes(stamp.to_bytes()) == stamp
    for bad in (b"", b"x" * 16, stamp.to_bytes()[:-1], PRIME.to_bytes(16, "big") + b"x" * 16):
        with pytest.raises(BadCiphertext, match="the stamp must be a number below"):
            Stamp.from_bytes(bad)

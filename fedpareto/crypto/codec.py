"""Pack many small whole numbers into one plaintext, so that adding plaintexts adds the numbers.

A plaintext is the signed number Σ qᵢ·2^(S·i): signed digits add exactly, with no sign bits and no
carries to follow, and one constant added after decryption brings every digit back above zero. Up to
`clients` plaintexts may be added; fewer do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedpareto.errors import CapacityError, DecodeOverflow, SettingError

Numbers = NDArray[np.int64]
LARGEST = 2**31 - 1  # magnitudes beyond it gain nothing in float64 and would not add up in 64 bits
MOST_CLIENTS = 2**31


@dataclass(frozen=True)
class Codec:
    """How whole numbers are laid out in the plaintexts of a key."""

    key_bits: int
    batch: int  # numbers in one plaintext
    clients: int  # plaintexts that may be added
    degree: int = 1  # Damgård–Jurik's s: 1 is Paillier, 2 doubles the plaintext of the same key

    def __post_init__(self) -> None:
        limits = {
            "key_bits": (16, 65536),
            "batch": (1, 2**20),
            "clients": (1, MOST_CLIENTS),
            "degree": (1, 2),
        }
        for name, (low, high) in limits.items():
            found = getattr(self, name)
            if isinstance(found, bool) or not isinstance(found, int) or not low <= found <= high:
                raise SettingError(
                    f"{name}: must be a whole number from {low} to {high}, found {found!r}."
                )
        if self.batch > self.most_batch:
            raise CapacityError(self._too_many())

    @property
    def capacity(self) -> int:
        """Return the bits of a plaintext that can be used as a signed number."""
        return self.degree * (self.key_bits - 1)

    @property
    def least_slot(self) -> int:
        """Return the bits that one value needs at least: every client sends -1, 0 or 1."""
        return self.clients.bit_length() + 1

    @property
    def most_batch(self) -> int:
        """Return the largest batch that fits this key."""
        return self.capacity // self.least_slot

    @property
    def slot(self) -> int:
        """Return the bits each value has, S."""
        return self.capacity // self.batch

    @property
    def magnitude(self) -> int:
        """Return the largest quantised magnitude, Q: `clients` values of ±Q add up in one slot."""
        return min(((1 << (self.slot - 1)) - 1) // self.clients, LARGEST)

    def count(self, length: int) -> int:
        """Return how many plaintexts hold this many values."""
        return -(-length // self.batch)

    def pack(self, values: Numbers) -> list[int]:
        """Return signed plaintexts that hold whole numbers [V] from -Q to Q.

        The last plaintext is filled up with zeros.
        """
        check_numbers("pack", values, self.magnitude)
        digits = np.full(self.count(len(values)) * self.batch, self.magnitude, np.uint64)
        # modulo 2^64, so that negative ones subtract
        digits[: len(values)] += values.astype(np.uint64)
        words = self._words(np.ascontiguousarray(digits.reshape(-1, self.batch).T))
        shift = self.magnitude * self._ones
        whole = np.ascontiguousarray(words.T).tobytes()
        size = 8 * len(words)
        parts = [whole[i : i + size] for i in range(0, len(whole), size)]
        return [int.from_bytes(part, "little") - shift for part in parts]

    def unpack(self, plaintexts: Sequence[int], terms: int, length: int) -> Numbers:
        """Return the sums [length] in signed plaintexts that are sums of `terms` packed ones."""
        if not 1 <= terms <= self.clients:
            raise SettingError(f"unpack: terms must be from 1 to {self.clients}, found {terms}.")
        if len(plaintexts) != self.count(length):
            raise SettingError(
                f"unpack: {length} values must lie in {self.count(length)} plaintexts, found "
                f"{len(plaintexts)}."
            )
        bound = terms * self.magnitude
        shift = bound * self._ones
        size = 8 * self._word_count
        shifted = [int(p) + shift for p in plaintexts]
        if any(v < 0 or v.bit_length() > self.slot * self.batch for v in shifted):
            raise DecodeOverflow(self._overflow(terms))
        whole = b"".join(v.to_bytes(size, "little") for v in shifted)
        rows = np.frombuffer(whole, "<u8").reshape(-1, self._word_count)
        words = np.ascontiguousarray(rows.T)  # [words, plaintexts]
        digits = self._digits(words)  # [batch, plaintexts]
        if (digits > 2 * bound).any() or (self._words(digits) != words).any():
            raise DecodeOverflow(self._overflow(terms))
        sums = digits.T.ravel().astype(np.int64) - bound
        if sums[length:].any():
            raise DecodeOverflow(self._overflow(terms))
        return sums[:length]

    @cached_property
    def _ones(self) -> int:
        """Return the plaintext with a one in every slot."""
        return int((2 ** (self.slot * self.batch) - 1) // (2**self.slot - 1))

    @property
    def _word_count(self) -> int:
        return self.slot * self.batch // 64 + 2

    def _words(self, digits: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the 64-bit words [words, plaintexts] of digits [batch, plaintexts] below 2^63."""
        words = np.zeros((self._word_count, digits.shape[1]), np.uint64)
        for i, row in enumerate(digits):
            word, shift = divmod(i * self.slot, 64)
            words[word] |= row << shift
            if shift:
                words[word + 1] |= row >> (64 - shift)
        return words

    def _digits(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the digits [batch, plaintexts] of words [words, plaintexts], 63 bits at most."""
        digits = np.empty((self.batch, words.shape[1]), np.uint64)
        for i in range(self.batch):
            word, shift = divmod(i * self.slot, 64)
            digits[i] = words[word] >> shift
            if shift:
                digits[i] |= words[word + 1] << (64 - shift)
        return digits & np.uint64(2 ** min(self.slot, 63) - 1)

    def _too_many(self) -> str:
        bits = self.least_slot * self.batch
        doubled = ""
        if self.degree == 1 and 2 * self.capacity >= bits:
            doubled = f", degree 2 (at most {2 * self.capacity // self.least_slot})"
        return (
            f"batch: must be at most {self.most_batch} for a key of {self.key_bits} bits, "
            f"{self.clients} clients and degree {self.degree}, found {self.batch}. Take a smaller "
            f"one{doubled} or a key of at least {-(-bits // self.degree) + 1} bits."
        )

    def _overflow(self, terms: int) -> str:
        return (
            f"unpack: every sum of {terms} values must lie within ±{terms * self.magnitude} and "
            f"fill the slots of {self!r}, found other bits. More updates were added than counted, "
            "the key is another one, or a ciphertext was changed."
        )


def check_numbers(where: str, values: Numbers, magnitude: int) -> None:
    """Refuse anything but a vector of whole numbers from -magnitude to magnitude."""
    found = ""
    if not isinstance(values, np.ndarray):
        found = type(values).__name__
    elif values.ndim != 1 or not np.issubdtype(values.dtype, np.signedinteger):
        found = f"{values.dtype} {list(values.shape)}"
    if found:
        raise SettingError(
            f"{where}: values must be a vector of signed whole numbers, found {found}. Quantise "
            "them first."
        )
    if len(values) and max(int(values.max()), -int(values.min())) > magnitude:
        raise SettingError(
            f"{where}: values must lie within ±{magnitude}, found {int(values.min())} to "
            f"{int(values.max())}. Quantise them with this codec's magnitude."
        )

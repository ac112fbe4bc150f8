"""Random numbers. The study's seed and a path name each stream, so streams are independent.

A deployment draws from the system instead: `system_seed` and `SystemNoise`.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor


WIDE = 2**255  # seeds from here on are wide: they are secret, and none of them may be lost


def derive(seed: int, *path: str | int) -> int:
    """Return the seed of the stream with this path: below 2^63, but wide from a wide seed."""
    if seed >= WIDE:
        return widened(seed, *path)
    text = "/".join([str(seed), *map(str, path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def widened(seed: int, *path: str | int) -> int:
    """Return a wide seed of the stream with this path, of 256 bits, which nobody can try out.

    Noise from it takes all of them. torch's generator on a CPU takes 32: few enough to try, and
    for two streams of many to be the same.
    """
    text = "/".join([str(seed), *map(str, path)])
    return WIDE | int.from_bytes(hashlib.blake2b(text.encode(), digest_size=32).digest(), "big")


def rng(seed: int, *path: str | int) -> np.random.Generator:
    """Return a fresh numpy generator for this path."""
    return np.random.default_rng(derive(seed, *path))


def stream(seed: int, *path: str | int, device: str = "cpu") -> torch.Generator:
    """Return a fresh torch generator for this path."""
    import torch

    return torch.Generator(device).manual_seed(derive(seed, *path) % 2**63)


@dataclass
class Noise:
    """The noise of one round of one repeat; a client's draws do not depend on who else takes part.

    Every federation of the repeat has the same draws (common random numbers), so they have no
    dimension R.
    """

    seed: int
    round: int
    clients: Sequence[int]  # [K]
    device: str = "cpu"
    together: bool = False  # whether all clients' draws are one stream, which takes less time
    draws: int = field(default=0, init=False)

    def normal(self, size: int, out: Tensor | None = None) -> Tensor:
        """Return standard normal numbers [K, size], in memory that is there already if given."""
        return self._filled(size, "normal_", out)

    def uniform(self, size: int) -> Tensor:
        """Return numbers [K, size] from [0, 1)."""
        return self._filled(size, "uniform_")

    def _filled(self, size: int, fill: str, out: Tensor | None = None) -> Tensor:
        import torch

        if out is None:
            out = torch.empty(len(self.clients), size, device=self.device)
        generator = torch.Generator(self.device)
        rows = [(out, self.clients[0])] if self.together else zip(out, self.clients, strict=True)
        for row, client in rows:
            seed = derive(self.seed, "noise", self.round, int(client), self.draws)
            if seed >= WIDE:
                row.copy_(torch.from_numpy(_numbers(seed, size, fill)))
            else:
                getattr(row, fill)(generator=generator.manual_seed(seed))
        self.draws += 1
        return out


def _numbers(seed: int, size: int, fill: str) -> NDArray[np.float32]:
    """Return numbers [size] from a wide seed."""
    draw = np.random.default_rng(seed)
    drawn = draw.standard_normal if fill == "normal_" else draw.random
    return drawn(size, dtype=np.float32)


def added(
    noise: Noise | SystemNoise, values: Tensor, spread: Tensor, where: Tensor | None = None
) -> Tensor:
    """Return values [R,K,P], which may be written over, with normal noise of this spread [R,1,1].

    where [R,P] says which numbers there are; None for all.
    """
    if isinstance(noise, SystemNoise):
        return noise.onto(values, spread, where)
    drawn = noise.normal(values.shape[2])
    if where is not None:
        drawn = drawn * where[:, None]
    return values.addcmul_(spread, drawn)


FINE = 20  # the grid of deployed noise has between 2^20 and 2^21 points to one spread


def system_seed() -> int:
    """Return a wide seed from the system's secure randomness."""
    return WIDE | secrets.randbits(255)


@dataclass(frozen=True)
class SystemNoise:
    """The noise of a deployed client: drawn from the system's secure randomness, and never again.

    `onto` is safe against who reads the last bits of a floating-point sum (Mironov 2012): what is
    sent is a whole multiple of a power of two, whatever the value. See there.
    """

    rows: int = 1  # clients
    device: str = "cpu"

    def normal(self, size: int, out: Tensor | None = None) -> Tensor:
        """Return standard normal numbers [K, size], in memory that is there already if given."""
        import torch

        drawn = torch.from_numpy(system_normal(self.rows * size)).view(self.rows, size)
        if out is None:
            return drawn.float().to(self.device)
        return out.copy_(drawn)

    def uniform(self, size: int) -> Tensor:
        """Return numbers [K, size] from [0, 1), each a multiple of 2⁻²⁴."""
        import torch

        drawn = (system_uniform(self.rows * size) * 2**24).astype(np.int64) / 2**24
        return torch.from_numpy(drawn).view(self.rows, size).float().to(self.device)

    def onto(self, values: Tensor, spread: Tensor, where: Tensor | None = None) -> Tensor:
        """Return values [R,K,P] with normal noise of this spread [R,1,1] added, on a grid.

        The value is rounded towards zero to the grid, which lengthens no vector, and the noise to
        the nearest point. Adding a point of the grid to a number and rounding the number commute,
        so the sum is the Gaussian mechanism on a grid value, rounded: nothing that an accountant
        does not count already.
        """
        import torch

        drawn = torch.from_numpy(system_normal(self.rows * values.shape[2]))
        drawn = drawn.view(self.rows, -1).to(values.device)
        strength = spread.double().expand(len(values), 1, 1)
        grid = torch.exp2(strength.clamp_min(1e-300).log2().floor() - FINE)
        noise = (drawn * (strength / grid)).round()
        if where is not None:
            noise = noise * where[:, None]
        noisy = ((values.double() / grid).trunc() + noise) * grid
        return torch.where(strength > 0, noisy.float(), values)


def system_uniform(size: int) -> NDArray[np.float64]:
    """Return numbers [size] from [0, 1), each of 53 bits of the system's secure randomness."""
    bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
    return (bits >> np.uint64(11)) / 2.0**53


def system_normal(size: int) -> NDArray[np.float64]:
    """Return standard normal numbers [size] from the system's secure randomness (Box, Muller)."""
    half = (size + 1) // 2
    first, second = system_uniform(2 * half).reshape(2, half)
    radius = np.sqrt(-2 * np.log(1 - first))  # of a number above 0
    angle = 2 * math.pi * second
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]

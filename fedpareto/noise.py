"""Random numbers. The study's seed and a path name each stream, so streams are independent."""

from __future__ import annotations

import hashlib
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
        for row, client in zip(out, self.clients, strict=True):
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

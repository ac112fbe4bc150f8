"""Random numbers. The study's seed and a path name each stream, so streams are independent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def derive(seed: int, *path: str | int) -> int:
    """Return the seed, below 2^63, of the stream with this path."""
    text = "/".join([str(seed), *map(str, path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def rng(seed: int, *path: str | int) -> np.random.Generator:
    """Return a fresh numpy generator for this path."""
    return np.random.default_rng(derive(seed, *path))


def stream(seed: int, *path: str | int, device: str = "cpu") -> torch.Generator:
    """Return a fresh torch generator for this path."""
    import torch

    return torch.Generator(device).manual_seed(derive(seed, *path))


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

    def normal(self, size: int) -> Tensor:
        """Return standard normal numbers [K, size]."""
        return self._filled(size, "normal_")

    def uniform(self, size: int) -> Tensor:
        """Return numbers [K, size] from [0, 1)."""
        return self._filled(size, "uniform_")

    def _filled(self, size: int, fill: str) -> Tensor:
        import torch

        out = torch.empty(len(self.clients), size, device=self.device)
        generator = torch.Generator(self.device)
        for row, client in zip(out, self.clients, strict=True):
            generator.manual_seed(derive(self.seed, "noise", self.round, int(client), self.draws))
            getattr(row, fill)(generator=generator)
        self.draws += 1
        return out

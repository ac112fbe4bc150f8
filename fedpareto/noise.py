"""Random numbers: every stream is named by the study's seed and a path, so none depends on what was drawn elsewhere."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *path: str | int) -> int:
    """Return the seed, below 2^63, that belongs to this path."""
    text = "/".join([str(seed), *map(str, path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def rng(seed: int, *path: str | int) -> np.random.Generator:
    """Return a fresh numpy stream for this path."""
    return np.random.default_rng(derive(seed, *path))


def stream(seed: int, *path: str | int, device: str = "cpu") -> torch.Generator:
    """Return a fresh torch stream for this path."""
    import torch

    return torch.Generator(device).manual_seed(derive(seed, *path))

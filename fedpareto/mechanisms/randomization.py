"""Clip the client's update and add Gaussian noise (Kang 2023, RD; Gu 2024, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedpareto.mechanisms.base import Upload
from fedpareto.settings import Real, setting

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


@dataclass(frozen=True)
class Randomization:
    """Clip the update to clipping_norm, then add N(0, sigma²) to every coordinate, at the client."""

    sigma: Real = setting(help="standard deviation of the noise each client adds to every coordinate", at_least=0,
                          at_most=1e6)
    clipping_norm: Real = setting(1.0, help="largest L2 norm of a client's update; a longer one is scaled down", above=0,
                                  at_most=1e9)

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        from torch import float64
        from torch.linalg import vector_norm

        norm = vector_norm(upload.values, dim=2, keepdim=True, dtype=float64).float()  # [R,K,1]; a float32 sum would fall short
        clip = values["clipping_norm"][:, None, None]
        clipped = upload.values * (clip / norm.clamp_min(1e-30)).clamp_max(1.0)
        drawn = noise.normal(upload.values.shape[2])
        return replace(upload, values=clipped.addcmul_(values["sigma"][:, None, None], drawn))

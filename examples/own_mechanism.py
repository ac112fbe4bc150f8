"""Mechanisms of one's own: signs, which promise nothing, and Laplace noise, which states its ε.

Run a study with one: fedpareto run examples/own_mechanism.toml
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from dp_accounting.pld import common, privacy_loss_distribution

from fedpareto.settings import Real, setting
from fedpareto.testing import check_mechanism


@dataclass(frozen=True)
class Signs:
    """Send one bit per coordinate."""

    step: Real = setting(help="size of every coordinate that is sent", above=0)

    def protect(self, upload, values, noise):
        signs = upload.values.sign() * values["step"][:, None, None]
        return replace(upload, values=signs, bits=upload.bits * 0 + 1)


@dataclass(frozen=True)
class Laplace:
    """Clip each update to an L1 norm and add Laplace noise to every number."""

    scale: Real = setting(help="scale of the noise on every number", above=0)
    l1_norm: Real = setting(1.0, help="largest sum of sizes that is sent unscaled", above=0)

    def protect(self, upload, values, noise):
        norm, scale = values["l1_norm"][:, None, None], values["scale"][:, None, None]
        length = upload.values.abs().sum(dim=2, keepdim=True)
        clipped = upload.values * (norm / length.clamp(min=1e-30)).clamp(max=1)
        sent = torch.where(length.isfinite(), clipped, 0.0)
        u = noise.uniform(upload.values.shape[2]) - 0.5  # [K,P]
        drawn = -u.sign() * torch.log((1 - 2 * u.abs()).clamp(min=1e-7))
        return upload.dense(sent + scale * drawn)

    def privacy_loss(self, values, replace):
        moved = values["l1_norm"] * (2 if replace else 1)
        pure = common.DifferentialPrivacyParameters(moved / values["scale"], 0)
        return privacy_loss_distribution.from_privacy_parameters(pure)


if __name__ == "__main__":
    check_mechanism(Signs(0.01))
    check_mechanism(Laplace(0.5))
    print("Signs and Laplace keep the contract of a mechanism")

"""Thin out the model and keep the smallest updates at the client (Kang 2023, SF)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedpareto.mechanisms.base import Upload, each, portion, smallest
from fedpareto.settings import Real, setting

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


@dataclass(frozen=True)
class Sparsification:
    """Thin out fully connected layers, and keep the smallest updates private: the client goes on with its own values there."""

    connection_probability: Real = setting(
        1.0,
        help="probability ρ of each connection between neighbouring fully connected layers; "
        "what is not connected never is",
        at_least=0,
        at_most=1,
    )
    private_fraction: Real = setting(
        0.0,
        help="share ξ of the parameters, those of smallest update, that stays at the client",
        at_least=0,
        at_most=0.9999,
    )
    c2: float = setting(
        8.0,
        help="C₂ of the leakage formula, Kang 2023, Eq. 15: 8 for Fashion-MNIST, 32 for CIFAR-10",
        above=0,
        at_most=1e12,
        search=False,
    )
    withheld: str = setting(
        "l2",
        help="what μ of Kang 2023, Eq. 15 is of the private values: their L2 norm, mean square, mean size, "
        "or mean as printed (undefined where negative)",
        options=("l2", "mean_square", "mean_size", "mean"),
        search=False,
    )

    def connections(self, values: Mapping[str, Tensor], drawn: Tensor, linear: Tensor) -> Tensor:
        """Return which parameters exist, [R,P]; drawn [P] is uniform and linear [P] marks the weights of fully connected layers."""
        return (drawn < values["connection_probability"][:, None]) | ~linear

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        private = smallest(upload.values.abs(), values["private_fraction"], upload.exists)
        here = upload.values if upload.model is None else upload.values + upload.model[:, None]
        thin = upload.without(private)
        some = each(values["private_fraction"]) > 0
        if not bool(some.any()):
            return replace(upload, withheld=self._size(here, private))
        return replace(thin, private=private, withheld=self._size(here, private))

    def costs(self, upload: Upload, values: Mapping[str, Tensor]) -> Upload | None:
        """Return what is sent: known where every connection exists and nothing was dropped before, which might have been the same."""
        if self.connection_probability != 1 or upload.sent is not None:
            return None
        return upload.lighter(portion(values["private_fraction"], upload.parameters.double()))

    def _size(self, values: Tensor, private: Tensor) -> Tensor:
        """Return the size of the private values, [R,K]."""
        import torch

        mine, count = values * private, private.sum(2).clamp_min(1)
        if self.withheld == "l2":
            norm: Tensor = torch.linalg.vector_norm(mine, dim=2)
            return norm
        measured = (
            mine.square()
            if self.withheld == "mean_square"
            else mine.abs()
            if self.withheld == "mean_size"
            else mine
        )
        return measured.sum(2) / count

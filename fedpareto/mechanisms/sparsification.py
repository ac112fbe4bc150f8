"""Thin out the model and keep the smallest updates at the client (Kang 2023, SF)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedpareto.mechanisms.base import Upload, portion, smallest, subject
from fedpareto.settings import Real, setting

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


@dataclass(frozen=True)
class Sparsification:
    """Thin out fully connected layers, and keep the smallest updates private.

    Where an update is kept private, the client goes on with its own values.
    """

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
    leakage_rounds: int = setting(
        0,
        help="rounds, the last ones, that the leakage of Kang 2023, Eq. 15 is the mean of: 0 for "
        "all of them as in the paper's Algorithm 1, 1 for the last alone",
        at_least=0,
        at_most=100_000,
        search=False,
    )
    withheld: str = setting(
        "l2",
        help="what μ of Kang 2023, Eq. 15 is of the private values: their L2 norm, mean square, "
        "mean size, or mean as printed (undefined where negative)",
        options=("l2", "mean_square", "mean_size", "mean"),
        search=False,
    )

    def connections(self, values: Mapping[str, Tensor], drawn: Tensor, linear: Tensor) -> Tensor:
        """Return which parameters exist, [R,P].

        drawn [P] is uniform; linear [P] marks the weights of fully connected layers.
        """
        return (drawn < values["connection_probability"][:, None]) | ~linear

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        private = smallest(upload.values.abs(), values["private_fraction"], upload.exists)
        withheld = self._size(subject(upload, "parameters"), private)
        if not bool((values["private_fraction"] > 0).any()):
            return replace(upload, withheld=withheld)
        return replace(upload.without(private), private=private, withheld=withheld)

    def costs(self, upload: Upload, values: Mapping[str, Tensor]) -> Upload | None:
        """Return what is sent, known where every connection exists; None where it is not.

        What was dropped before might have been the same numbers, so then it is not known either.
        """
        if self.connection_probability != 1 or upload.sent is not None:
            return None
        return upload.lighter(portion(values["private_fraction"], upload.parameters.double()))

    def _size(self, values: Tensor, private: Tensor) -> Tensor:
        """Return the size of the private values, [R,K]."""
        import torch

        mine = values * private
        if self.withheld == "l2":
            norm: Tensor = torch.linalg.vector_norm(mine, dim=2)
            return norm
        if self.withheld == "mean_square":
            mine = mine.square()
        elif self.withheld == "mean_size":
            mine = mine.abs()
        return mine.sum(2) / private.sum(2).clamp_min(1)

"""Send few bits per number (Xiao 2025, Eq. 3; stochastic rounding is unbiased)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedpareto.mechanisms.base import OF, OF_HELP, Upload, each, restored, subject
from fedpareto.settings import Whole, setting

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


@dataclass(frozen=True)
class Quantization:
    """Round every number to one of 2^bits levels between a client's smallest and largest."""

    bits: Whole = setting(
        8, help="bits per number; 32 sends floats as they are", at_least=1, at_most=32
    )
    rounding: str = setting(
        "nearest",
        help="to the nearest level; up or down at random so that the mean is right; down; "
        "or as Xiao 2025 prints Eq. 3, which leaves two levels",
        options=("nearest", "stochastic", "down", "printed"),
        search=False,
    )
    of: str = setting("update", help=OF_HELP, **OF)

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        import torch

        sent = subject(upload, self.of)
        bits = values["bits"].round()
        there = self._there(upload)
        low, high = _ends(sent, there)
        width = (high - low).clamp_min(0.0)  # [R,K,1]; −∞ where nothing is sent
        levels = each(torch.exp2(bits.double()) - 1)
        part = (sent.double() - low) / width.double().clamp_min(1e-300)
        place = part.clamp(0.0, 1.0) * levels
        rounded = (low + self._rounded(place, levels, noise) / levels * width).float()
        rounded = torch.where((width > 0) & each(bits < 32), rounded, sent)
        if there is not None:
            rounded = torch.where(there, rounded, sent)
        return self.costs(replace(upload, values=restored(upload, rounded, self.of)), values)

    def costs(self, upload: Upload, values: Mapping[str, Tensor]) -> Upload:
        bits = values["bits"].round()[:, None]
        ends = 64.0 * (bits < 32).expand_as(upload.count)  # the smallest and the largest, as floats
        overhead = ends if upload.overhead is None else upload.overhead + ends
        return replace(upload, bits=bits.expand_as(upload.bits).float(), overhead=overhead)

    def _there(self, upload: Upload) -> Tensor | None:
        """Return which numbers are sent, [R,K,P]; None for all. What was dropped stays dropped."""
        if upload.sent is not None:
            return upload.sent
        if upload.exists is None:
            return None
        return (upload.exists > 0)[:, None].expand_as(upload.values)

    def _rounded(self, place: Tensor, levels: Tensor, noise: Noise) -> Tensor:
        """Return the level of every number, from 0 to levels."""
        if self.rounding == "stochastic":
            return (place + noise.uniform(place.shape[2])).floor().clamp_max_(levels)
        if self.rounding == "nearest":
            return place.round()
        if self.rounding == "down":
            return place.floor()
        return (place / levels).floor() * levels  # as printed


def _ends(sent: Tensor, there: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest number that each client sends, each [R,K,1]."""
    import torch

    if there is None:
        return sent.amin(2, keepdim=True), sent.amax(2, keepdim=True)
    low = sent.masked_fill(~there, torch.inf).amin(2, keepdim=True)
    high = sent.masked_fill(~there, -torch.inf).amax(2, keepdim=True)
    return low, high

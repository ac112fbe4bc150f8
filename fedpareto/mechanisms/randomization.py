"""Clip and add Gaussian noise at the client.

The papers: Kang 2023, RD; Gu 2024, Algorithm 1; Xiao 2025, Eq. 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpareto.contract import share_of_noise
from fedpareto.errors import SettingError
from fedpareto.mechanisms.base import OF, OF_HELP, Upload, each, restored, subject
from fedpareto.noise import added
from fedpareto.settings import Real, setting

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise

MOST = 1e30  # how many times too long a vector may be for a factor in float32


@dataclass(frozen=True)
class Randomization:
    """Clip the update to clipping_norm, then add Gaussian noise to every number, at the client."""

    sigma: Real | None = setting(
        None,
        help="standard deviation of the noise each client adds to every coordinate; or give "
        "noise_multiplier",
        at_least=0,
        at_most=1e6,
    )
    clipping_norm: Real = setting(
        1.0,
        help="largest L2 norm of a client's update; a longer one is scaled down",
        above=0,
        at_most=1e9,
    )
    noise_multiplier: Real | None = setting(
        None,
        help="standard deviation of the noise on the sum of a round's uploads, in units "
        "of clipping_norm; each client adds its share",
        at_least=0,
        at_most=1e6,
    )
    of: str = setting("update", help=OF_HELP, **OF)
    clipping: str = setting(
        "norm",
        help="scale down by norm / clipping_norm, or by its square over clipping_norm as Gu 2024 "
        "prints in line 21, which bounds the norm by √clipping_norm",
        options=("norm", "printed"),
        search=False,
    )
    noise_on: str = setting(
        "sum",
        help="what noise_multiplier counts on: the sum of a round's uploads, as accountants have "
        "it, or their average, as Xiao 2025 prints in Eq. 4, which is a cohort times as much",
        options=("sum", "average"),
        search=False,
    )
    leakage_c: float = setting(
        1.0,
        help="C of Gu 2024, Eq. 2, which the paper never gives; the leakage grows with it",
        above=0,
        at_most=1e9,
        search=False,
    )
    leakage_c1: float = setting(
        1.0,
        help="C₁ of Kang 2023, Eq. 13; the larger, the sooner the leakage is 0",
        above=0,
        at_most=1e9,
        search=False,
    )

    def __post_init__(self) -> None:
        if (self.sigma is None) == (self.noise_multiplier is None):
            found = "neither" if self.sigma is None else "both"
            raise SettingError(
                f"sigma: exactly one of sigma and noise_multiplier must be given, found {found}."
            )
        if self.noise_on != "sum" and self.noise_multiplier is None:
            raise SettingError(
                f"noise_on: must be sum where sigma is given, found {self.noise_on}: sigma is each "
                "client's own noise. Give noise_multiplier."
            )

    def gaussian(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return each client's noise and the norm it hides, each [R].

        values holds the cohort beside the settings.
        """
        clip = values["clipping_norm"]
        if self.noise_multiplier is None:
            sigma = values["sigma"]
        else:
            on_the_sum = values["noise_multiplier"] * clip
            if self.noise_on == "average":
                on_the_sum = on_the_sum * values["cohort"]
            sigma = on_the_sum / values["cohort"] ** 0.5
        hidden = clip if self.clipping == "norm" else clip**0.5
        return sigma, hidden

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        """Clip and add noise.

        The noise lies on every number, so what was thinned out before is sent in full again.
        """
        sent = subject(upload, self.of)
        everyone = upload.count.new_tensor(float(sent.shape[1]))
        sigma, _ = self.gaussian({"cohort": everyone, **values})
        clipped = self._clipped(sent, values)
        noisy = added(noise, clipped, each(sigma * _topped_up(values)), upload.exists)
        return upload.dense(restored(upload, noisy, self.of))

    def _clipped(self, sent: Tensor, values: Mapping[str, Tensor]) -> Tensor:
        """Return vectors [R,K,P] none of which is too long, and nothing that is not finite."""
        import torch

        over = self._over(sent, values)
        if bool((over <= MOST).all()):
            return sent * over.clamp_min(1.0).reciprocal().float()
        sent = _finite(sent)
        over = self._over(sent, values)
        short = sent * over.clamp_min(1.0).reciprocal().float()  # as if no other were longer
        return torch.where(over <= MOST, short, (sent / over).float())

    def _over(self, sent: Tensor, values: Mapping[str, Tensor]) -> Tensor:
        """Return the length of each vector of sent [R,K,P] over the longest allowed, [R,K,1]."""
        from torch import float64
        from torch.linalg import vector_norm

        # a float32 sum would fall short
        norm = vector_norm(sent, dim=2, keepdim=True, dtype=float64)
        length: Tensor = norm if self.clipping == "norm" else norm**2
        return length / each(values["clipping_norm"])

    def costs(self, upload: Upload, values: Mapping[str, Tensor]) -> Upload:
        return upload.dense(upload.values)


def _finite(sent: Tensor) -> Tensor:
    """Return values [R,K,P] that clipping can bound: of an infinite vector, its direction."""
    import torch

    infinite = sent.isinf()
    direction = torch.where(infinite, sent.sign(), 0.0)
    return torch.where(infinite.any(2, keepdim=True), direction, sent.nan_to_num(nan=0.0))


def _topped_up(values: Mapping[str, Tensor]) -> Any:
    """Return by what each client multiplies its noise where another number came than expected.

    The sum then has the noise of the expected cohort (Poisson sampling).
    """
    if "participants" not in values:
        return 1.0
    return share_of_noise(values["cohort"], values["participants"].clamp_min(1.0))

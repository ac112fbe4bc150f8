"""Drop the smallest numbers (Xiao 2025, Eq. 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedpareto.errors import SettingError
from fedpareto.mechanisms.base import (
    OF,
    OF_HELP,
    Upload,
    each,
    portion,
    restored,
    smallest,
    subject,
)
from fedpareto.settings import Real, setting

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


@dataclass(frozen=True)
class Pruning:
    """Send only the large numbers: those of at least a threshold, or all but the smallest share."""

    prune_rate: Real | None = setting(
        None,
        help="share of the numbers, the smallest, that is dropped; or give threshold",
        at_least=0,
        at_most=0.9999,
    )
    threshold: Real | None = setting(
        None,
        help="size ξ below which a number is dropped; or give prune_rate",
        at_least=0,
        at_most=1e9,
    )
    layers: str = setting(
        "linear",
        help="what may be dropped: weights of fully connected layers, as in Xiao 2025, "
        "or everything",
        options=("linear", "all"),
        search=False,
    )
    of: str = setting("update", help=OF_HELP, **OF)

    def __post_init__(self) -> None:
        if (self.prune_rate is None) == (self.threshold is None):
            found = "neither" if self.threshold is None else "both"
            raise SettingError(
                f"prune_rate: exactly one of prune_rate and threshold must be given, found {found}."
            )

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        whole = subject(upload, self.of)
        size = whole.abs()
        may = self._may(upload)
        if self.threshold is None:
            dropped = smallest(size, values["prune_rate"], may)
        else:
            dropped = size < each(values["threshold"])
            if may is not None:
                dropped = dropped & may[:, None]
        thin = upload.without(dropped)
        return replace(thin, values=restored(upload, whole * ~dropped, self.of))

    def costs(self, upload: Upload, values: Mapping[str, Tensor]) -> Upload | None:
        """Return what is sent, known where a share is dropped; None where it is not.

        What was dropped before might have been the same numbers, so then it is not known either.
        """
        if self.threshold is not None or upload.sent is not None:
            return None
        may = upload.parameters if self.layers == "all" else values["linear_parameters"]
        return upload.lighter(portion(values["prune_rate"], may.double()))

    def _may(self, upload: Upload) -> Tensor | None:
        """Return which parameters may be dropped, [R,P]; None for all."""
        exists = None if upload.exists is None else upload.exists > 0
        if self.layers == "all" or upload.linear is None:
            return exists
        linear = upload.linear.expand(len(upload.values), -1)
        return linear if exists is None else linear & exists

"""Mechanisms one after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpareto.errors import SettingError
from fedpareto.mechanisms.base import Mechanism, Upload
from fedpareto.mechanisms.capabilities import (
    AddsGaussian,
    KnowsCosts,
    LimitsSummands,
    ThinsOut,
    adds_noise,
    needs_everyone,
)
from fedpareto.settings import link_names, setting
from fedpareto.space import Variable

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


MOST = 20  # links of a chain


@dataclass(frozen=True)
class Chain:
    """Protect by several mechanisms, each on what the one before would have sent; costs add up."""

    links: tuple[Mechanism, ...] = setting(
        help="mechanisms in order, each a table with its name and settings; where two links have a "
        "setting of the same name, points know it with the link's number behind it",
        search=False,
    )

    def __post_init__(self) -> None:
        if not self.links:
            raise SettingError("links: a chain must have at least one link, found none.")
        if len(self.links) > MOST:
            raise SettingError(
                f"links: a chain must have at most {MOST} links, found {len(self.links)}."
            )
        renamed = tuple(
            _renamed(link, names)
            for link, names in zip(self.links, link_names(self.links), strict=True)
        )
        object.__setattr__(self, "links", renamed)
        self._check_order()

    def _check_order(self) -> None:
        """Refuse noise on the mean of all clients: one client moves it as much as they all may."""
        for i, link in enumerate(self.links):
            late = [type(later).__name__ for later in self.links[i + 1 :] if adds_noise(later)]
            if needs_everyone(link) and late:
                raise SettingError(
                    "links: noise must come before a link that needs all clients at once, found "
                    f"{late[0]} after {type(link).__name__}: it would lie on the mean of all "
                    "clients, which no clipping bounds for one of them. Put the noise first."
                )

    @property
    def joint(self) -> bool:
        """Whether a link needs all clients of a round at once."""
        return any(map(needs_everyone, self.links))

    def fits(self, summands: int) -> None:
        """Refuse what a link cannot sum."""
        for link in self.links:
            if isinstance(link, LimitsSummands):
                link.fits(summands)

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        for link, mine in self._each(values):
            upload = link.protect(upload, mine, noise)
        return upload

    def costs(self, upload: Upload, values: Mapping[str, Tensor]) -> Upload | None:
        """Return what the whole chain costs; None where the cost of a link is not known."""
        sent: Upload | None = upload
        for link, mine in self._each(values):
            if sent is None or not isinstance(link, KnowsCosts):
                return None
            sent = link.costs(sent, mine)
        return sent

    def gaussian(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the noise of the link that protects most, and the norm it hides.

        What comes before and after that link cannot weaken it, for whoever sees each upload. Of
        sums that holds only where noise comes last, see `noise_comes_last`. An update of zero has
        noise, and so is not zero, when it reaches a second such link: left out, it moves that by
        twice its norm.
        """
        noisy = [
            link.gaussian(mine)
            for link, mine in self._each(values)
            if isinstance(link, AddsGaussian)
        ]
        sigma, norm = noisy[0]
        for other, bound in noisy[1:]:
            better = other / (2 * bound) > sigma / norm  # a number, an array or a tensor
            worse = other / (2 * bound) <= sigma / norm
            sigma = better * other + worse * sigma
            norm = better * 2 * bound + worse * norm
        return sigma, norm

    def connections(self, values: Mapping[str, Tensor], drawn: Tensor, linear: Tensor) -> Tensor:
        """Return which parameters every link leaves in the model, [R,P]."""
        exists = linear.new_ones(len(next(iter(values.values()))), len(drawn))
        for link, mine in self._each(values):
            if isinstance(link, ThinsOut):
                exists = exists & link.connections(mine, drawn, linear)
        return exists

    def _each(self, values: Mapping[str, Any]) -> list[tuple[Any, dict[str, Any]]]:
        """Return every link with its settings by the names that the link knows."""
        all_names = link_names(self.links)
        settings = {new for names in all_names for new in names.values()}
        # the cohort, the cost model's figures
        rest = {name: value for name, value in values.items() if name not in settings}
        found = []
        for link, names in zip(self.links, all_names, strict=True):
            mine = {old: values[new] for old, new in names.items() if new in values}
            found.append((link, rest | mine))
        return found


def _renamed(link: Any, names: Mapping[str, str]) -> Any:
    """Return a link whose variables have the names by which a point knows them."""
    held = {f.name: getattr(link, f.name) for f in dataclasses.fields(link)}
    new = {
        name: dataclasses.replace(v, name=names[name])
        for name, v in held.items()
        if isinstance(v, Variable) and v.name != names[name]
    }
    return dataclasses.replace(link, **new) if new else link

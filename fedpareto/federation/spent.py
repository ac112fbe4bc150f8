"""What a round costs: bytes, numbers shared, seconds by the cost model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedpareto.federation.cost import Cost
from fedpareto.mechanisms import Upload

SUMMED = ("upload_bytes", "download_bytes", "shared", "seconds", "reading_seconds")
LARGEST = ("shared_worst", "seconds_worst", "round_seconds")
BY_SIZE = ("shared_by_size", "seconds_by_size")  # means that count clients by what they hold
LOCAL = "local_loss"  # the mean of the clients' own losses, where they were asked for
HELD = "held"  # the examples of a round's clients together, by which the former are divided


@dataclass(frozen=True)
class Spent:
    """What some clients of a round, in one repeat, spent together and at the most."""

    sums: dict[str, Tensor]  # name of SUMMED → [R]; with what clients hold, BY_SIZE and HELD too
    most: dict[str, Tensor]  # name of LARGEST → [R]
    adding: Tensor  # [R] seconds of the server
    withheld: Tensor | None  # [R,M] size of each client's private values, nan for who is absent
    held: Tensor | None = None  # [R,M] examples of each client, where withheld is known

    def plus(self, other: Spent) -> Spent:
        """Return what these and other clients of the same round spent."""
        return Spent(
            {name: column + other.sums[name] for name, column in self.sums.items()},
            {name: torch.maximum(self.most[name], other.most[name]) for name in LARGEST},
            self.adding + other.adding,
            _joined(self.withheld, other.withheld),
            _joined(self.held, other.held),
        )

    def beside(self, local_losses: Tensor) -> Spent:
        """Return the same with the sum of the clients' local losses, [R]."""
        return replace(self, sums={**self.sums, LOCAL: local_losses})

    def figures(self, came: Tensor) -> dict[str, Tensor]:
        """Return what the round cost, name → [R]; came [R] is how many clients took part."""
        each = came.double().clamp_min(1)
        more = {}
        if HELD in self.sums:
            everything = self.sums[HELD].clamp_min(1)
            more = {name: self.sums[name] / everything for name in BY_SIZE}
        if LOCAL in self.sums:
            more[LOCAL] = self.sums[LOCAL] / each
        return more | {
            "upload_bytes": self.sums["upload_bytes"],
            "download_bytes": self.sums["download_bytes"],
            "shared": self.sums["shared"] / each,
            "shared_worst": self.most["shared_worst"],
            "seconds": self.sums["seconds"] / each,
            "seconds_worst": self.most["seconds_worst"],
            "round_seconds": self.most["round_seconds"] + self.adding,
            "reading_seconds": self.sums["reading_seconds"] / each,
            "server_seconds": self.adding,
        }


def _joined(mine: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Return what clients have, and others after them; None where that is unknown."""
    return None if mine is None or other is None else torch.cat([mine, other], dim=1)


def spent(
    upload: Upload,
    takes_part: Tensor,
    steps: Tensor,
    images: Tensor,
    parameters: Tensor,
    cost: Cost,
    held: Tensor | None = None,
) -> Spent:
    """Count what clients spent on training and on an upload of models of parameters [R].

    They took steps and saw images, [R,M], or [1,M] where all federations trained alike. takes_part
    [R,M] says who counts, or how many clients one stands for; held [M] how many examples each
    client holds.
    """
    size = parameters[:, None]
    seconds = cost.step_seconds * steps.double()
    seconds = seconds + cost.parameter_seconds * images.double() * size  # [R,M]
    seconds = seconds + upload.seconds
    none = torch.zeros_like(seconds)
    sent = upload.total_bits / 8
    reading = none if upload.reading is None else upload.reading
    received = none + 4 * size if upload.download is None else upload.download / 8
    whole = seconds + reading + sent / cost.upload_rate + received / cost.download_rate
    count = upload.count.double()
    sums = dict(zip(SUMMED, (sent, received, count, seconds, reading), strict=True))
    most = dict(zip(LARGEST, (count, seconds, whole), strict=True))
    total = {name: (column * takes_part).sum(1) for name, column in sums.items()}
    if held is not None:
        weight = takes_part * held  # [R,M]
        total |= {f"{name}_by_size": (sums[name] * weight).sum(1) for name in ("shared", "seconds")}
        total[HELD] = weight.sum(1)
    there = takes_part > 0
    withheld = upload.withheld
    if withheld is not None:
        withheld = torch.where(there, withheld, torch.nan)
    return Spent(
        total,
        {name: (column * there).amax(1) for name, column in most.items()},
        torch.zeros_like(parameters) if upload.adding is None else upload.adding.double(),
        withheld,
        None if withheld is None or held is None else held.expand_as(withheld),
    )

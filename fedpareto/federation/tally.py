"""What the rounds of many federations cost: bytes, numbers shared, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedpareto.federation.cost import Cost
from fedpareto.mechanisms import Upload

KINDS = ("upload_bytes", "download_bytes", "shared", "shared_worst", "seconds", "seconds_worst", "round_seconds", "reading_seconds",
         "server_seconds")  # as in the Trace of a training


@dataclass
class Tally:
    """Sums over the rounds so far, each [S,R], and the round under way."""

    parameters: Tensor  # [S,R]
    cost: Cost
    total: Tensor  # [KINDS,S,R]
    asked: Tensor  # [S,R] clients of this round
    sums: Tensor  # [5,S,R] bytes up and down, numbers, seconds and seconds of reading, of this round's clients
    adding: Tensor  # [S,R] seconds of the server in this round
    most: Tensor  # [3,S,R] numbers, seconds, and seconds with transfers, of the client with most
    sizes: list[list[Tensor]] = field(default_factory=list)  # S × chunks × [R,M], private values of this round's clients

    @classmethod
    def start(cls, parameters: Tensor, cost: Cost) -> Tally:
        zero = torch.zeros(len(KINDS), *parameters.shape, dtype=torch.float64, device=parameters.device)
        return cls(parameters, cost, zero, zero[0], zero[:5], zero[0], zero[:3])

    def begin_round(self, asked: Tensor) -> None:
        self.total = self.figures()
        self.asked = asked.double()
        self.sums, self.most, self.adding = torch.zeros_like(self.sums), torch.zeros_like(self.most), torch.zeros_like(self.adding)
        self.sizes = [[] for _ in asked]

    def add(self, s: int, upload: Upload, takes_part: Tensor, work: Sequence[Tensor]) -> None:
        """Count some clients of a repeat; work is the steps and images of each, [M].

        takes_part [R,M] says who counts, or how many clients one stands for.
        """
        steps, images = (w.double() for w in work)
        seconds = self.cost.step_seconds * steps + self.cost.parameter_seconds * images * self.parameters[s][:, None]  # [R,M]
        seconds = seconds + upload.seconds
        none = torch.zeros_like(seconds)
        sent, reading = upload.total_bits / 8, none if upload.reading is None else upload.reading
        received = none + 4 * self.parameters[s][:, None] if upload.download is None else upload.download / 8
        whole = seconds + reading + sent / self.cost.upload_rate + received / self.cost.download_rate
        count = upload.count.double()
        self.sums[:, s] += (torch.stack([sent, received, count, seconds, reading]) * takes_part).sum(2)
        self.most[:, s] = torch.maximum(self.most[:, s], (torch.stack([count, seconds, whole]) * (takes_part > 0)).amax(2))
        if upload.adding is not None:
            self.adding[s] += upload.adding
        if upload.withheld is not None:
            self.sizes[s].append(torch.where(takes_part > 0, upload.withheld, torch.nan))

    def _round(self) -> Tensor:
        """Return what the round under way adds, [KINDS,S,R]."""
        shared, seconds, reading = self.sums[2:] / self.asked.clamp_min(1)
        whole = self.most[2] + self.adding
        return torch.stack([self.sums[0], self.sums[1], shared, self.most[0], seconds, self.most[1], whole, reading, self.adding])

    def figures(self) -> Tensor:
        """Return the sums with the round under way, [KINDS,S,R]."""
        return self.total + self._round()

    def withheld(self) -> Tensor:
        """Return the size of each client's private values in this round, [S,R,M]; M is 0 where the mechanism keeps none."""
        if not self.sizes or not self.sizes[0]:
            return self.parameters.new_zeros(*self.parameters.shape, 0)
        return torch.stack([torch.cat(chunks, dim=1) for chunks in self.sizes])

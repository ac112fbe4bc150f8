"""The rounds of many federations at once: R settings of each of S repeats.

The federations of a repeat have the same split, clients, mini-batches and noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpareto.federation.data import Data, Dataset, load
from fedpareto.federation.draws import cohort, epoch_batches, participants, step_batches
from fedpareto.federation.grouped import Params
from fedpareto.federation.judge import Judge
from fedpareto.federation.split import SPLITS, Indices, Split, deal
from fedpareto.federation.train import Images, LocalSteps, Stack, precision, seeded, stack, threads_for, unflatten
from fedpareto.mechanisms import Mechanism, Upload
from fedpareto.noise import Noise, derive
from fedpareto.problem import tell
from fedpareto.space import FloatArray

if TYPE_CHECKING:
    from fedpareto.federation.models import Model
    from fedpareto.federation.training import Training

DIVERGED = 1e4  # an update this many times longer than the model it started from
CACHE = 8e6  # bytes of parameters that a processor keeps at hand


@dataclass(frozen=True)
class Trace:
    """What the federations showed after every round; nan where a round was not judged."""

    error: FloatArray  # [R,T] share of test images classified wrongly
    loss: FloatArray  # [R,T] mean cross-entropy on the test images
    worst_error: FloatArray  # [R,T] the same for the client whose share of the test images fares worst
    worst_loss: FloatArray  # [R,T]
    upload_bytes: FloatArray  # [R,T] sent by all clients so far
    diverged: FloatArray  # [R] round in which training diverged, nan where it did not
    parameters: FloatArray  # [R] parameters of the model


@dataclass(frozen=True)
class Setup:
    """What all federations of one repeat share."""

    where: Data
    model: Model
    training: Training
    mechanism: Mechanism
    seed: int

    @property
    def data(self) -> Dataset:
        return load(self.where)

    @property
    def clients(self) -> int:
        return self.where.clients

    def train_split(self) -> Split:
        return deal(self.data.y_train, self.where, self.seed)[0]

    def test_split(self) -> Split:
        """Deal the test images in the same proportions."""
        return SPLITS[self.where.split](self.data.y_test, self.where, deal(self.data.y_train, self.where, self.seed)[1])

    def module(self, model: Model) -> nn.Module:
        """Return a model as it starts in this repeat."""
        return seeded(lambda: model.build(self.data.shape, self.data.classes), derive(self.seed, "model"))

    def initial(self, model: Model) -> Params:
        """Return the parameters with which a model starts in this repeat."""
        return [p.detach() for p in self.module(model).parameters()]

    def batches(self, split: Split, client: int, t: int) -> Indices:
        """Return one client's mini-batches [steps, batch] of a round as image numbers, −1 where padded."""
        mine, training = split.of(client), self.training
        if training.local_steps:
            return mine[step_batches(self.seed, t, client, len(mine), training.local_steps, training.batch_size)]
        picks = epoch_batches(self.seed, t, client, len(mine), training.local_epochs, training.batch_size)
        return np.where(picks >= 0, mine[picks], -1)


def train(repeats: Sequence[Setup], values: Mapping[str, Tensor], models: Sequence[Model], slots: int,
          device: str = "cpu") -> Trace:
    """Train federations whose settings are values, name → [R], in every repeat; rows come repeat by repeat, [S·R].

    models is each federation's own, all within the widest, repeats[0].model; slots is the largest cohort there can be.
    """
    setup = repeats[0]
    made = stack(setup.module(setup.model), setup.data.shape, setup.data.classes)
    work = 3 * made.size * len(models) * slots * setup.training.batch_size
    with threads_for(work), precision(setup.training.tf32):
        return Run(repeats, made, values, models, slots, device).trace()


class Run:
    """Federations under way."""

    def __init__(self, repeats: Sequence[Setup], stack: Stack, values: Mapping[str, Tensor], models: Sequence[Model],
                 slots: int, device: str) -> None:
        self.repeats, self.stack, self.device, self.slots = repeats, stack, device, slots
        self.training, self.clients = repeats[0].training, repeats[0].clients
        self.values = {name: v.to(device) for name, v in values.items()}
        data = repeats[0].data
        x, y = torch.from_numpy(data.x_train).to(device), torch.from_numpy(data.y_train).to(device)
        self.images = Images(x, y, data.scale, data.shift)
        self.judge = Judge.of(data, [r.test_split() for r in repeats], len(models), device)
        self.splits = [r.train_split() for r in repeats]
        ratios = values["sample_ratio"].tolist()
        self.cohort = torch.tensor([cohort(q, self.clients) for q in ratios], device=device)  # [R]
        kinds = list(dict.fromkeys(models))  # federations of one width start from the same model: build it once
        begun = [{m: _embedded(r.initial(m), stack.initial) for m in kinds} for r in repeats]
        starts = [[known[m] for m in models] for known in begun]  # S × R × parameters
        self.models = [torch.stack([torch.stack([row[i] for row in rows]) for rows in starts]).to(device)
                       for i in range(len(stack.initial))]  # [S,R,...]
        masks = {model: _mask(repeats[0].initial(model), stack.initial) for model in kinds}
        mask = torch.stack([masks[m] for m in models])  # [R,P], which parameters of the widest model each one has
        self.parameters = mask.sum(1).double().numpy()
        self.mask = None if bool(mask.all()) else mask.float().to(device)
        self.steps: dict[int, LocalSteps] = {}  # by number of slots

    @property
    def federations(self) -> int:
        """R, of each repeat."""
        return len(self.cohort)

    def trace(self) -> Trace:
        """Train all rounds."""
        last = self.values["rounds"].long()
        lasts, every = set(last.tolist()), self.training.evaluate_every
        rows: list[Tensor] = []
        diverged = torch.full((len(self.repeats), self.federations), torch.nan, device=self.device)
        sent = torch.zeros(len(self.repeats), self.federations, dtype=torch.float64, device=self.device)
        for t in range(int(last.max())):
            wild, bytes_sent = self.round(t)
            diverged = torch.where(diverged.isnan() & wild, t + 1.0, diverged)
            sent = sent + bytes_sent
            judged = (t + 1) % every == 0 or t + 1 in lasts
            rows.append(torch.cat([self._seen(judged), sent.view(1, -1)]))
            tell((t + 1) / int(last.max()))
        figures = torch.stack(rows, dim=2).cpu().numpy()  # [5,S·R,T]
        error, loss, worst_error, worst_loss, upload_bytes = figures
        return Trace(error, loss, worst_error, worst_loss, upload_bytes, diverged.flatten().double().cpu().numpy(),
                     np.tile(self.parameters, len(self.repeats)))

    def _seen(self, judged: bool) -> Tensor:
        """Return what the models show on the test images, [4,S·R], nan where they are not judged."""
        if not judged:
            return torch.full((4, self.judge.owner.shape[0] * self.federations), torch.nan, dtype=torch.float64, device=self.device)
        return self.judge(self.stack, [p.flatten(0, 1) for p in self.models]).double()

    def round(self, t: int) -> tuple[Tensor, Tensor]:
        """Train one round; return which federations diverged and the bytes they sent, each [S,R]."""
        who = [participants(r.seed, t, self.clients)[: self.slots] for r in self.repeats]
        sums = [torch.zeros(self.federations, self.stack.size, device=self.device) for _ in self.repeats]
        totals = torch.zeros(len(self.repeats), self.federations, device=self.device)
        wild = torch.zeros(len(self.repeats), self.federations, dtype=torch.bool, device=self.device)
        sent = torch.zeros(len(self.repeats), self.federations, dtype=torch.float64, device=self.device)
        lengths = [torch.cat([p[s].flatten(1) for p in self.models], dim=1).norm(dim=1) for s in range(len(self.repeats))]
        for chunk in self._chunks():
            updates = self._local(who, chunk, t)  # S × [R,M,P]
            for s, (setup, update) in enumerate(zip(self.repeats, updates, strict=True)):
                mine = who[s][chunk]
                takes_part = torch.arange(chunk.start, chunk.stop, device=self.device) < self.cohort[:, None]  # [R,M]
                too_long = ~(update.norm(dim=2) <= DIVERGED * (1 + lengths[s][:, None]))
                wild[s] |= (too_long & takes_part).any(1)
                upload = setup.mechanism.protect(self._plain(update), self.values, Noise(setup.seed, t, mine.tolist(), self.device))
                weights = takes_part * self._weights(s, mine)  # [R,M]
                sums[s] += torch.einsum("rk,rkp->rp", weights, upload.values)
                totals[s] += weights.sum(1)
                sent[s] += (upload.count.double() * upload.bits / 8 * takes_part).sum(1)
        mean = torch.cat([(total / weight[:, None]) for total, weight in zip(sums, totals, strict=True)])
        if self.mask is not None:
            mean = mean * self.mask.repeat(len(self.repeats), 1)
        for p, u in zip(self.models, unflatten(mean, self.stack.initial), strict=True):
            p += u.view_as(p)
        return wild, sent

    def _chunks(self) -> Iterator[slice]:
        """Yield slots that train together: all on a GPU, else as many as keep their parameters near the processor."""
        size = self.slots if self.device != "cpu" else max(1, int(CACHE / (4 * self.stack.size * self.federations)))
        pieces = math.ceil(self.slots / size)
        bounds = np.linspace(0, self.slots, pieces + 1).astype(int)
        yield from (slice(int(a), int(b)) for a, b in pairwise(bounds))

    def _local(self, who: Sequence[Indices], chunk: slice, t: int) -> list[Tensor]:
        """Train these slots of every repeat; return the updates [R,M,P] of each repeat."""
        picks = torch.from_numpy(self._picks(who, chunk, t)).to(self.device)  # [steps,B,S·M]
        slots, M = picks.shape[2], chunk.stop - chunk.start
        known = self.steps.get(slots)
        if known is None or len(known.picks) < len(picks):
            self.steps[slots] = LocalSteps(self.stack, self.images, slots, self.federations, picks, self.training.momentum)
        start = [p[:, None].expand(len(self.repeats), M, *p.shape[1:]).flatten(0, 1) for p in self.models]  # [S·M,R,...]
        update = self.steps[slots].run(start, picks, self.values["learning_rate"])  # [S·M,R,P]
        return [u.transpose(0, 1) for u in update.view(len(self.repeats), M, self.federations, -1)]

    def _picks(self, who: Sequence[Indices], chunk: slice, t: int) -> NDArray[np.int64]:
        """Return the images of every local step, [steps,B,S·M], −1 where padded."""
        drawn = [setup.batches(split, int(k), t) for setup, split, asked in zip(self.repeats, self.splits, who, strict=True)
                 for k in asked[chunk]]
        width = min(self.training.batch_size, max(int(s.sizes.max()) for s in self.splits))
        picks = np.full((max(map(len, drawn)), width, len(drawn)), -1, dtype=np.int64)
        for m, d in enumerate(drawn):
            picks[: len(d), : d.shape[1], m] = d
        return picks

    def _plain(self, update: Tensor) -> Upload:
        """Return the unprotected upload: every parameter, as a 32-bit float."""
        one = torch.ones(update.shape[:2], device=self.device)
        count = torch.from_numpy(self.parameters).float().to(self.device)[:, None] * one
        return Upload(update, count, one * 32, one * 0)

    def _weights(self, repeat: int, clients: Indices) -> Tensor:
        """Return what each client's upload counts, [M]."""
        uniform = self.training.weighting == "uniform"
        sizes = np.ones(len(clients)) if uniform else self.splits[repeat].sizes[clients]
        return torch.from_numpy(sizes).float().to(self.device)


def _embedded(narrow: Params, wide: Params) -> Params:
    """Put the parameters of a narrow model into the first places of the widest one; the rest is zero and stays so."""
    out = [torch.zeros(w.shape) for w in wide]
    for n, o in zip(narrow, out, strict=True):
        o[tuple(slice(size) for size in n.shape)] = n
    return out


def _mask(narrow: Params, wide: Params) -> Tensor:
    """Return which parameters of the widest model a narrow one has, [P]."""
    ones = [torch.ones(p.shape) for p in narrow]
    return torch.cat([m.flatten() for m in _embedded(ones, wide)]).bool()

"""The rounds of many federations at once: R settings of each of S repeats.

The federations of a repeat have the same split, clients, mini-batches and noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpareto.errors import SettingError
from fedpareto.federation.cost import Cost
from fedpareto.federation.data import Data, Dataset, load
from fedpareto.federation.draws import cohort, epoch_batches, participants, step_batches, taking_part
from fedpareto.federation.grouped import Params
from fedpareto.federation.judge import Judge
from fedpareto.federation.split import SPLITS, Indices, Split, deal
from fedpareto.federation.tally import Tally
from fedpareto.federation.train import Images, LocalSteps, Stack, precision, seeded, stack, threads_for, unflatten
from fedpareto.mechanisms import Mechanism, Upload
from fedpareto.noise import Noise, derive, stream
from fedpareto.problem import tell
from fedpareto.settings import named
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
    download_bytes: FloatArray  # [R,T] received by all clients so far
    shared: FloatArray  # [R,T] numbers a client has sent so far, mean over the clients of each round
    shared_worst: FloatArray  # [R,T] the same for the client of each round that sent most
    seconds: FloatArray  # [R,T] a client has spent on training and protection so far, mean over the clients of each round
    seconds_worst: FloatArray  # [R,T] the same for the slowest client of each round
    round_seconds: FloatArray  # [R,T] the rounds have taken so far: the slowest client's, its transfers, the server's
    reading_seconds: FloatArray  # [R,T] a client has spent on decryption so far, mean over the clients of each round
    server_seconds: FloatArray  # [R,T] the server has spent on adding uploads so far
    withheld: FloatArray  # [R,T,M] size of the values each client of a round keeps private; nan where none took the place
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
    cost: Cost = Cost()

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
        data = repeats[0].data
        x, y = torch.from_numpy(data.x_train).to(device), torch.from_numpy(data.y_train).to(device)
        self.images = Images(x, y, data.scale, data.shift)
        self.judge = Judge.of(data, [r.test_split() for r in repeats], len(models), device)
        self.splits = [r.train_split() for r in repeats]
        self.ratios = values["sample_ratio"].double().numpy()  # [R]
        expected = [float(cohort(q, self.clients, self.training.sampling)) for q in self.ratios]
        most = expected if self.training.sampling == "fixed" else [float(self.clients)] * len(expected)
        charged = repeats[0].cost.charged(int(named(repeats[0].mechanism).get("key_bits", 2048)))
        also = {"cohort": expected, "summands": most, **{name: [v] * len(expected) for name, v in charged.items()}}
        self.values = {name: v.to(device) for name, v in {**{k: torch.tensor(v) for k, v in also.items()}, **values}.items()}
        kinds = list(dict.fromkeys(models))  # federations of one width start from the same model: build it once
        begun = [{m: _embedded(r.initial(m), stack.initial) for m in kinds} for r in repeats]
        starts = [[known[m] for m in models] for known in begun]  # S × R × parameters
        self.models = [torch.stack([torch.stack([row[i] for row in rows]) for rows in starts]).to(device)
                       for i in range(len(stack.initial))]  # [S,R,...]
        self._thin_out({model: _mask(repeats[0].initial(model), stack.initial) for model in kinds}, models)
        self.steps: dict[int, LocalSteps] = {}  # by number of slots
        self.kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}  # (repeat, client) → where [R,P], values [R,P]

    def _thin_out(self, widths: Mapping[Model, Tensor], models: Sequence[Model]) -> None:
        """Take the parameters out of the models that they do not have: too narrow, or not connected."""
        self.linear = linear_weights(self.stack.module).to(self.device)
        exists = torch.stack([widths[m] for m in models]).to(self.device).expand(len(self.repeats), -1, -1)  # [S,R,P]
        connected = self._connections()
        exists = exists if connected is None else exists & connected
        self.parameters = exists.sum(2).double()  # [S,R]
        self.exists = None if bool(exists.all()) else exists.float()
        self.thin: list[Tensor | None] = [None] * len(self.models)
        if connected is not None:
            pieces = unflatten(exists.float().flatten(0, 1), self.stack.initial)
            self.thin = [piece.view(len(self.repeats), 1, len(models), *piece.shape[1:]) for piece in pieces]
            for p, mask in zip(self.models, pieces, strict=True):
                p *= mask.view_as(p)

    def _connections(self) -> Tensor | None:
        """Return which parameters the mechanism leaves in the models, [S,R,P], if it thins them out."""
        connections = getattr(self.repeats[0].mechanism, "connections", None)
        if connections is None:
            return None
        drawn = [torch.rand(self.stack.size, generator=stream(r.seed, "connections")).to(self.device) for r in self.repeats]
        return torch.stack([connections(self.values, d, self.linear) for d in drawn])

    @property
    def federations(self) -> int:
        """R, of each repeat."""
        return len(self.ratios)

    def trace(self) -> Trace:
        """Train all rounds."""
        last = self.values["rounds"].long()
        lasts, every = set(last.tolist()), self.training.evaluate_every
        seen, withheld = [], []
        diverged = torch.full((len(self.repeats), self.federations), torch.nan, device=self.device)
        tally = Tally.start(self.parameters, self.repeats[0].cost)
        for t in range(int(last.max())):
            wild = self.round(t, tally)
            diverged = torch.where(diverged.isnan() & wild, t + 1.0, diverged)
            judged = self._seen((t + 1) % every == 0 or t + 1 in lasts)
            if (t + 1) % every:  # not the round of others that end here
                judged = torch.where((last == t + 1).repeat(len(self.repeats)), judged, torch.nan)
            seen.append(torch.cat([judged, tally.figures().flatten(1)]))
            withheld.append(tally.withheld())
            tell((t + 1) / int(last.max()))
        return self._told(seen, withheld, diverged)

    def _told(self, seen: Sequence[Tensor], withheld: Sequence[Tensor], diverged: Tensor) -> Trace:
        figures = torch.stack(list(seen), dim=2).cpu().numpy()  # [13,S·R,T]
        judged_and_counted = dict(zip([f.name for f in fields(Trace)], figures, strict=False))  # in the order of the Trace
        return Trace(**judged_and_counted, withheld=torch.stack(list(withheld), dim=2).flatten(0, 1).cpu().numpy(),
                     diverged=diverged.flatten().double().cpu().numpy(), parameters=self.parameters.flatten().cpu().numpy())

    def _seen(self, judged: bool) -> Tensor:
        """Return what the models show on the test images, [4,S·R], nan where they are not judged."""
        if not judged:
            return torch.full((4, self.judge.owner.shape[0] * self.federations), torch.nan, dtype=torch.float64, device=self.device)
        return self.judge(self.stack, [p.flatten(0, 1) for p in self.models]).double()

    def round(self, t: int, tally: Tally) -> Tensor:
        """Train one round, count what it cost, and return which federations diverged, [S,R]."""
        sampling = self.training.sampling
        who = [participants(r.seed, t, self.clients, sampling)[: self.slots] for r in self.repeats]
        count = np.stack([taking_part(r.seed, t, self.clients, self.ratios, sampling) for r in self.repeats])
        asked = torch.from_numpy(np.minimum(count, self.slots)).to(self.device)  # [S,R]
        began = torch.cat([p.flatten(2) for p in self.models], dim=2)  # [S,R,P]
        sums = torch.zeros_like(began)
        wild = torch.zeros(asked.shape, dtype=torch.bool, device=self.device)
        tally.begin_round(asked)
        for chunk, updates, work in self._trained(who, t, began):
            for s, update in enumerate(updates):
                takes_part = torch.arange(chunk.start, chunk.stop, device=self.device) < asked[s][:, None]  # [R,M]
                too_long = ~(update.norm(dim=2) <= DIVERGED * (1 + began[s].norm(dim=1)[:, None]))
                wild[s] |= (too_long & takes_part).any(1)
                upload = self._protected(s, t, update, who[s][chunk], began[s], asked[s])
                self._keep(s, who[s][chunk], upload, began[s], update, takes_part)
                weights = takes_part * self._weights(s, who[s][chunk])  # [R,M]
                sums[s] += torch.einsum("rk,rkp->rp", weights, upload.values)
                tally.add(s, upload, takes_part, [w[s] for w in work])
        self._move(sums / self._total_weight(who, asked)[:, :, None])
        return wild

    def _protected(self, s: int, t: int, update: Tensor, clients: Indices, began: Tensor, asked: Tensor) -> Upload:
        """Return what the server sees of these clients' updates [R,M,P]."""
        mechanism, noise = self.repeats[s].mechanism, Noise(self.repeats[s].seed, t, clients.tolist(), self.device)
        values = {**self.values, "participants": asked.float()}
        one = torch.ones(update.shape[:2], device=self.device)
        exists = None if self.exists is None else self.exists[s]
        plain = Upload(update, self.parameters[s].float()[:, None] * one, one * 32, one * 0, model=began, exists=exists, linear=self.linear)
        upload = mechanism.protect(plain, values, noise)
        if not isinstance(upload, Upload) or upload.values.shape != update.shape or upload.count.shape != one.shape:
            found = list(upload.values.shape) if isinstance(upload, Upload) else type(upload).__name__
            raise SettingError(f"mechanism {type(mechanism).__name__}: protect must return an Upload with values of shape "
                               f"{list(update.shape)} and counts of shape {list(one.shape)}, found {found}. Try it with "
                               "fedpareto.testing.check_mechanism.")
        return upload

    def _keep(self, s: int, clients: Indices, upload: Upload, began: Tensor, update: Tensor, takes_part: Tensor) -> None:
        """Remember the values that clients keep private, for the next round they take part in."""
        if upload.private is None:
            return
        for m, client in enumerate(clients.tolist()):
            where, values = self.kept.get((s, client), (torch.zeros_like(began, dtype=torch.bool), began))
            takes = takes_part[:, m, None]
            self.kept[s, client] = (torch.where(takes, upload.private[:, m], where), torch.where(takes, began + update[:, m], values))

    def _total_weight(self, who: Sequence[Indices], asked: Tensor) -> Tensor:
        """Return what the uploads of a round weigh together, [S,R]; under Poisson sampling, what they weigh on average."""
        rows = []
        for s, clients in enumerate(who):
            if self.training.sampling == "poisson":
                everyone = self._weights(s, np.arange(self.clients)).sum()
                rows.append(torch.from_numpy(self.ratios).float().to(self.device) * everyone)
            else:
                rows.append(self._weights(s, clients).cumsum(0)[asked[s] - 1])
        return torch.stack(rows)

    def _move(self, mean: Tensor) -> None:
        """Move the models by mean [S,R,P]."""
        if self.exists is not None:
            mean = mean * self.exists
        for p, u in zip(self.models, unflatten(mean.flatten(0, 1), self.stack.initial), strict=True):
            p += u.view_as(p)

    def _trained(self, who: Sequence[Indices], t: int, began: Tensor) -> Iterator[tuple[slice, list[Tensor], list[Tensor]]]:
        """Yield slots with the updates [R,M,P] of each repeat, and the steps and images of each slot, [S,M]; all at once for a mechanism
        that needs all clients of a round."""
        done = ((chunk, *self._local(who, chunk, t, began)) for chunk in self._chunks())
        if not getattr(self.repeats[0].mechanism, "joint", False):
            yield from done
            return
        _, updates, work = zip(*done, strict=True)
        whole = [torch.cat(pieces, dim=1) for pieces in zip(*updates, strict=True)]
        yield slice(0, self.slots), whole, [torch.cat(pieces, dim=1) for pieces in zip(*work, strict=True)]

    def _chunks(self) -> Iterator[slice]:
        """Yield slots that train together: all on a GPU, else as many as keep their parameters near the processor."""
        size = self.slots if self.device != "cpu" else max(1, int(CACHE / (4 * self.stack.size * self.federations)))
        pieces = math.ceil(self.slots / size)
        bounds = np.linspace(0, self.slots, pieces + 1).astype(int)
        yield from (slice(int(a), int(b)) for a, b in pairwise(bounds))

    def _local(self, who: Sequence[Indices], chunk: slice, t: int, began: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Train these slots of every repeat; return the updates [R,M,P] of each repeat, and steps and images, [S,M]."""
        picks = torch.from_numpy(self._picks(who, chunk, t)).to(self.device)  # [steps,B,S·M]
        S, M, slots = len(self.repeats), chunk.stop - chunk.start, picks.shape[2]
        known = self.steps.get(slots)
        if known is None or len(known.picks) < len(picks):
            self.steps[slots] = LocalSteps(self.stack, self.images, slots, self.federations, picks, self.training.momentum, self.thin)
        start, ahead = self._starts(who, chunk, began)
        update = self.steps[slots].run(start, picks, self.values["learning_rate"])  # [S·M,R,P]
        update = update if ahead is None else update + ahead
        there = picks >= 0
        work = [there.any(1).sum(0).view(S, M), there.sum((0, 1)).view(S, M)]
        return [u.transpose(0, 1) for u in update.view(S, M, self.federations, -1)], work

    def _starts(self, who: Sequence[Indices], chunk: slice, began: Tensor) -> tuple[Params, Tensor | None]:
        """Return what each slot starts from, [S·M,R,...], and how far its private values are ahead of the server's, [S·M,R,P]."""
        S, M = len(self.repeats), chunk.stop - chunk.start
        if not self.kept:
            return [p[:, None].expand(S, M, *p.shape[1:]).flatten(0, 1) for p in self.models], None
        start = began[:, None].repeat(1, M, 1, 1)  # [S,M,R,P]
        for s in range(S):
            for m, client in enumerate(who[s][chunk].tolist()):
                if (s, client) in self.kept:
                    where, values = self.kept[s, client]
                    start[s, m] = torch.where(where, values, start[s, m])
        pieces = unflatten(start.flatten(0, 2), self.stack.initial)
        ahead = (start - began[:, None]).flatten(0, 1)
        return [p.view(S * M, self.federations, *p.shape[1:]) for p in pieces], ahead

    def _picks(self, who: Sequence[Indices], chunk: slice, t: int) -> NDArray[np.int64]:
        """Return the images of every local step, [steps,B,S·M], −1 where padded."""
        drawn = [setup.batches(split, int(k), t) for setup, split, asked in zip(self.repeats, self.splits, who, strict=True)
                 for k in asked[chunk]]
        width = min(self.training.batch_size, max(int(s.sizes.max()) for s in self.splits))
        picks = np.full((max(map(len, drawn)), width, len(drawn)), -1, dtype=np.int64)
        for m, d in enumerate(drawn):
            picks[: len(d), : d.shape[1], m] = d
        return picks

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


def linear_weights(module: nn.Module) -> Tensor:
    """Mark the weights of fully connected layers among a module's parameters, [P]."""
    weights = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Linear)}
    return torch.cat([torch.full((p.numel(),), id(p) in weights) for p in module.parameters()])

"""Shadow federations: trained as the study's own, each without half of the records or clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpareto.audit.base import Points, told
from fedpareto.federation import Observer, blocks
from fedpareto.federation.block import Block
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.data import load
from fedpareto.federation.run import run
from fedpareto.federation.split import Indices, Split
from fedpareto.federation.stack import unflatten
from fedpareto.mechanisms import Upload
from fedpareto.noise import rng
from fedpareto.space import FloatArray

# numbers of a block's local models: what a processor's cache holds, and what fills a GPU
ROOM = {"cpu": 1e6, "cuda": 3e7}
AT_ONCE = 512  # records of all slots whose scores are computed at once
STEP = 1e-2  # how far along an upload a model is moved to see what it does, in its own lengths


@dataclass(frozen=True)
class Shown:
    """What shadows show, and what they trained on."""

    seen: FloatArray  # [n,S,N] of points, shadows and records: larger for what was trained on
    member: NDArray[np.bool_]  # [S,N] records, or [S,K] clients
    error: FloatArray  # [n] share of test records that shadows get wrong; nan of numbers
    split: Split


class Shadow(Observer):
    """Leaves out half of the records, or of the clients, and takes down what is seen."""

    def __init__(
        self,
        block: Block,
        records: NDArray[np.int64],
        member: NDArray[np.bool_],
        rounds: FloatArray,
        of: str,
        view: str,
    ) -> None:
        self.block, self.records_seen, self.member = block, records, member
        self.of, self.view, self.rounds = of, view, torch.tensor(rounds)
        S, R = len(block.repeats), block.federations
        self.before = block.initial
        self.ends = torch.zeros_like(block.initial)
        self.totals = np.zeros((R, S, len(records)))
        self.times = np.zeros((R, S, len(records)))
        self.place = np.full(len(block.images.y), -1)
        self.place[records] = np.arange(len(records))
        split = block.splits[0]  # the same in all shadows
        held = [split.of(client) for client in range(len(split.sizes))]
        self.told_apart = [mine[self.place[mine] >= 0] for mine in held]  # records of each client

    def cohort(self, repeat: int, round: int, cohort: Cohort) -> Cohort:
        if self.of != "client":
            return cohort
        there = self.member[repeat][cohort.order]
        order = np.concatenate([cohort.order[there], cohort.order[~there]])
        if self.block.terms.sampling == "fixed":
            return Cohort(order, np.minimum(cohort.count, int(there.sum())))
        return Cohort(order, np.append(0, np.cumsum(there))[cohort.count])

    def records(self, repeat: int, client: int, records: Indices) -> Indices:
        if self.of != "record":
            return records
        mine: Indices = records[self.member[repeat][records]]
        return mine

    @torch.no_grad()
    def uploads(
        self, repeat: int, round: int, clients: Indices, takes_part: Tensor, upload: Upload
    ) -> None:
        if self.view != "server":
            return
        going = (round < self.rounds).to(takes_part.device)[:, None] & takes_part  # [R,M]
        came = going.any(0)
        if not came.any():
            return
        held = self._held(clients[came.cpu().numpy()])  # [M,n]
        shown = self._along(repeat, upload.values[:, came].transpose(0, 1), held)
        there = going[:, came].T.cpu().numpy()[:, :, None] & (held >= 0)[:, None]  # [M,R,n]
        m, r, n = np.nonzero(there)
        places = (r, np.full_like(r, repeat), self.place[held[m, n]])
        self.totals[places] += shown[m, r, n]
        self.times[places] += 1

    def _held(self, clients: Indices) -> NDArray[np.int64]:
        """Return which of the records that are told apart these clients hold, [M,n]; −1 padded."""
        kept = [self.told_apart[client] for client in clients.tolist()]
        out = np.full((len(kept), max(map(len, kept))), -1)
        for row, records in zip(out, kept, strict=True):
            row[: len(records)] = records
        return out

    @torch.no_grad()
    def sums(self, round: int, sums: Tensor, cohorts: Sequence[Cohort]) -> None:
        if self.view != "secagg":
            return
        going = (round < self.rounds).numpy()
        for s, cohort in enumerate(cohorts):
            split = self.block.splits[s]
            owner = np.repeat(np.arange(len(split.sizes)), split.sizes)[np.argsort(split.order)]
            place = np.argsort(cohort.order)[owner[self.records_seen]]  # of who holds each record
            came = (place[None] < np.asarray(cohort.count)[:, None]) & going[:, None]  # [R,n]
            shown = self._along(s, sums[s][None], self.records_seen[None])[0]
            self.totals[:, s] += np.where(came, shown, 0.0)
            self.times[:, s] += came

    def _along(self, repeat: int, sent: Tensor, records: NDArray[np.int64]) -> FloatArray:
        """Return how much sure models get of records [M,n] along what was sent [M,R,P], [M,R,n]."""
        models = self.before[repeat]  # [R,P]
        length = torch.linalg.vector_norm(sent, dim=2).clamp_min(1e-12)
        far = STEP * (1 + torch.linalg.vector_norm(models, dim=1)) / length
        ahead = margins(self.block, models + far[:, :, None] * sent, records)
        here = margins(self.block, models[None], self.records_seen[None])[0]  # [R,N]
        here = here[:, self.place[records]].transpose(0, 1)
        return np.asarray(((ahead - here) / (far * length)[:, :, None]).double().cpu())

    def models(self, round: int, models: Tensor) -> None:
        self.before = models
        ended = (self.rounds == round + 1).to(models.device)
        self.ends = torch.where(ended[None, :, None], models, self.ends)

    def seen(self) -> FloatArray:
        """Return what was seen of each record, [R,S,n]; nan where nothing."""
        if self.view != "release":
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.asarray(self.totals / self.times)
        S, R, P = self.ends.shape
        found = margins(self.block, self.ends.reshape(1, S * R, P), self.records_seen[None])
        return found.view(S, R, -1).transpose(0, 1).double().cpu().numpy()

    def error(self) -> FloatArray:
        """Return the share of test records that the models get wrong, [R]."""
        S, R, P = self.ends.shape
        judge = replace(self.block.judge, own=())
        pieces = unflatten(self.ends.reshape(S * R, P), self.block.stack.initial)
        error = judge(self.block.stack, [p.contiguous() for p in pieces])["error"]
        return error.view(S, R).mean(0).cpu().numpy()


@torch.no_grad()
def margins(block: Block, models: Tensor, records: NDArray[np.int64]) -> Tensor:
    """Return how sure models [M,R,P] are of the labels of records [M,n], [M,R,n].

    That is log p / (1 − p) of the right class; of numbers to predict, what the loss is below 0.
    Places that are padded (−1) show anything.
    """
    M, R, P = models.shape
    pieces = unflatten(models.reshape(M * R, P), block.stack.initial)
    params = [p.view(M, R, *p.shape[1:]).contiguous() for p in pieces]
    picks = torch.from_numpy(records).clamp_min(0).to(models.device)
    out = []
    for part in torch.split(picks, max(1, AT_ONCE // M), dim=1):
        scores = block.stack.scores(params, block.images.at(part.T))  # [M,R,C,b]
        truth = block.images.y[part]  # [M,b]
        if truth.is_floating_point():
            each = block.recipe.loss.each
            out.append(-torch.stack([each(s, y) for s, y in zip(scores, truth, strict=True)]))
            continue
        right = truth[:, None, None].expand(-1, R, 1, -1)
        of_right = scores.gather(2, right)[:, :, 0]
        others = scores.scatter(2, right, -torch.inf)
        out.append(of_right - torch.logsumexp(others, dim=2))
    return torch.cat(out, dim=2)


def shadows(
    points: Points, seeds: Sequence[int], seed: int, of: str, view: str, most: int
) -> Shown:
    """Train shadows of points and return what they show of at most so many records.

    All shadows deal the data as the first does, so that a client is the same client in all.
    """
    problem = points.problem
    quiet = replace(problem.training, evaluate_every=points.rounds)
    problem = replace(problem, training=quiet, objectives=())
    split = blocks.setup_of(problem, seeds[0]).train_split()
    member = members(split, len(seeds), seed, of)
    drawn = rng(seed, "records").permutation(len(load(problem.data).y_train))
    records = np.sort(drawn[:most])
    seen, errors = [], []
    most_often = float(points.given["sample_ratio"].max())
    each = points.columns["parameters"].max() * len(points) * points.columns["cohort"].max()
    size = max(1, int(ROOM[blocks.device_of(problem)] / each))
    parts = [range(i, min(i + size, len(seeds))) for i in range(0, len(seeds), size)]
    for b, part in enumerate(parts):
        some = [seeds[i] for i in part]
        repeats = [replace(blocks.setup_of(problem, s), together=True) for s in some]
        rows = np.arange(len(points))
        slots = blocks.slots(problem, some, most_often)
        block = blocks.prepared(problem, points.values, points.given, rows, repeats, slots)
        block = replace(block, splits=(split,) * len(some))
        watch = Shadow(block, records, member[list(part)], points.columns["rounds"], of, view)
        run(block, watch)
        seen.append(watch.seen())
        errors.append(watch.error() * len(some))
        told(parts, b)
    error = np.sum(errors, axis=0) / len(seeds)
    together = np.concatenate(seen, axis=1)
    if of == "record":
        return Shown(together, member[:, records], error, split)
    owner = np.repeat(np.arange(problem.data.clients), split.sizes)[np.argsort(split.order)]
    return Shown(_by_client(together, owner[records], problem.data.clients), member, error, split)


def members(split: Split, shadows: int, seed: int, of: str) -> NDArray[np.bool_]:
    """Draw for each shadow which half it trains on: records [S,N], or clients [S,K].

    A client keeps at least one record, and at least one client stays. Shadows come in pairs of
    opposite halves, so that each record is in as many as it is out of.
    """
    n = len(split.order) if of == "record" else len(split.sizes)
    half = rng(seed, "members", of).random((-(-shadows // 2), n)) < 0.5
    member = np.stack([half, ~half], axis=1).reshape(-1, n)[:shadows]
    if of == "client":
        member[~member.any(1), 0] = True
        return member
    for client in range(len(split.sizes)):
        mine = split.of(client)
        none = ~member[:, mine].any(1)
        member[none, mine[0]] = True
    return member


def _by_client(seen: FloatArray, owner: NDArray[np.int64], clients: int) -> FloatArray:
    """Return the mean of what is seen over the records of each client, [n,S,K]."""
    there = np.isfinite(seen)
    x = np.where(there, seen, 0.0)
    out = np.full((*seen.shape[:2], clients), np.nan)
    for client in np.unique(owner):
        mine = owner == client
        count = there[:, :, mine].sum(2)
        total = x[:, :, mine].sum(2)
        out[:, :, client] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return out

"""Local training of a round: clients start from the model, or from their own private values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpareto.contract import chance
from fedpareto.federation.block import Block
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.grouped import Params
from fedpareto.federation.local import ClipsRecords
from fedpareto.federation.observer import Observer
from fedpareto.federation.split import Indices
from fedpareto.federation.stack import unflatten
from fedpareto.federation.state import State
from fedpareto.federation.steps import NO_STEP, LocalSteps
from fedpareto.mechanisms import needs_everyone

RARE = 1e-9  # the chance that a mini-batch needs more room than there is, which is then made


@dataclass(frozen=True)
class Updates:
    """What the clients in some slots of a round trained, in every repeat."""

    places: slice  # of the cohort's order
    values: tuple[Tensor, ...]  # S × [R,M,P]
    steps: Tensor  # [S,M,R] mini-batch steps that each client took; [S,M,1] where all are alike
    images: Tensor  # [S,M,R] images that they saw; [S,M,1] where all are alike


@dataclass(frozen=True)
class Draws:
    """Which images the clients of some slots train on, step by step.

    Federations whose mini-batches have another size have slots of their own: then M is M·R.
    """

    picks: Tensor  # [steps,B,M], −1 where padded
    ends: NDArray[np.int64] | None  # [M,R] after how many steps each federation is done


class Clients:
    """Train clients locally; keeps the memory of their steps from round to round."""

    def __init__(self, block: Block, observer: Observer | None = None) -> None:
        self.block = block
        self.observer = observer
        sizes = np.concatenate([s.sizes for s in block.splits])
        self.width = min(block.batch, int(sizes.max()))
        self.by_chance = block.setup.draws_records_by_chance
        if self.by_chance:
            self.width = _room(self.width, int(sizes[sizes > 0].min()), block.device)
        self.steps: dict[int, LocalSteps] = {}  # by number of slots

    def trained(self, state: State, cohorts: Sequence[Cohort], t: int) -> Iterator[Updates]:
        """Yield the updates of a round, slots after slots.

        All at once for a mechanism that needs every client of a round.
        """
        done = (self._trained(state, cohorts, places, t) for places in self.block.pieces())
        if needs_everyone(self.block.setup.mechanism):
            yield _joined(list(done))
        else:
            yield from done

    def _trained(self, state: State, cohorts: Sequence[Cohort], places: slice, t: int) -> Updates:
        block = self.block
        S, R, M = len(block.repeats), block.federations, places.stop - places.start
        who = [cohort.order[places] for cohort in cohorts]
        draws = self._drawn(who, t)
        begun, ahead = _starts(block, state, who)
        rate = block.settings["learning_rate"]
        momentum = block.settings.get("momentum", torch.zeros_like(rate))
        if not block.shared:  # each federation in slots of its own
            begun = [p.reshape(-1, 1, *p.shape[2:]) for p in begun]
            rate, momentum = (v.repeat(S * M)[:, None] for v in (rate, momentum))
        steps = self._steps(draws.picks)
        update = steps.run(begun, draws.picks, rate, momentum, draws.ends, self._noise(who, t))
        if ahead is not None:
            update = update.view(ahead.shape) + ahead
        taken, seen = _counted(draws)
        if self.by_chance:  # those expected: how many there were is not to be told
            seen = taken * block.batch
        return Updates(
            places,
            tuple(u.transpose(0, 1) for u in update.view(S, M, R, -1)),
            taken.view(S, M, -1),
            seen.view(S, M, -1),
        )

    def _noise(self, who: Sequence[Indices], t: int) -> Callable[[Tensor], object] | None:
        """Return what draws the noise of one local step after another into [S·M,P]."""
        block = self.block
        if not isinstance(block.setup.local, ClipsRecords):
            return None
        sources = [
            repeat.noise(t, clients, block.device, "records")
            for repeat, clients in zip(block.repeats, who, strict=True)
        ]

        def draw(out: Tensor) -> None:
            for source, mine in zip(sources, out.chunk(len(sources)), strict=True):
                source.normal(block.stack.size, mine)

        return draw

    def _steps(self, picks: Tensor) -> LocalSteps:
        """Return the memory for these picks [steps,B,slots], made anew where they do not fit."""
        block = self.block
        slots = picks.shape[2]
        known = self.steps.get(slots)
        if known is None or not _fits(picks, known.picks):
            R = block.federations if block.shared else 1
            known = LocalSteps(
                block.recipe, block.images, slots, R, picks, block.thin, block.settings
            )
            self.steps[slots] = known
        return known

    def _drawn(self, who: Sequence[Indices], t: int) -> Draws:
        """Return the images of every local step, filled up to the width of the block.

        A Poisson mini-batch that is larger than the room makes more: none is ever cut short.
        """
        block = self.block
        asked = [(s, int(k)) for s, clients in enumerate(who) for k in clients]
        works = [block.longest] if block.shared else block.works
        differ = block.setup.training.works_differ
        drawn = []
        ends = []
        for s, client in asked:
            dealt, mine = self._images(s, client)
            batches_of = block.repeats[s].batches_of
            drawn += [batches_of(mine, client, t, dealt, work) for work in works]
            if differ:
                held = dealt if self.by_chance else len(mine)
                ends.append([work.of(held)[0] for work in block.works])
        width = max(self.width, *(d.shape[1] for d in drawn))
        picks = np.full((max(map(len, drawn)), width, len(drawn)), NO_STEP, dtype=np.int64)
        for m, d in enumerate(drawn):
            picks[: len(d), :, m] = -1
            picks[: len(d), : d.shape[1], m] = d
        done = None
        if differ:
            done = np.array(ends) if block.shared else np.reshape(ends, (-1, 1))
            picks = picks[: done.max()]
        return Draws(torch.from_numpy(picks).to(block.device), done)

    def _images(self, s: int, client: int) -> tuple[int, Indices]:
        """Return how many images a client was dealt, and those that it trains on."""
        mine = self.block.splits[s].of(client)
        dealt = len(mine)
        if self.observer is not None:
            mine = self.observer.records(s, client, mine)
        return dealt, mine


def _counted(draws: Draws) -> tuple[Tensor, Tensor]:
    """Return the steps that were taken and the images seen, [M,R], or [M,1] where all are alike."""
    there = draws.picks >= 0
    if draws.ends is None:
        return (draws.picks[:, 0] != NO_STEP).sum(0)[:, None], there.sum((0, 1))[:, None]
    steps = torch.from_numpy(draws.ends).to(draws.picks.device)
    images = there.sum(1).cumsum(0).t()  # [M,steps]
    return steps, images.gather(1, steps - 1)


def _room(batch: int, fewest: int, device: str) -> int:
    """Return how many records a mini-batch drawn by chance has room for, at first.

    A CUDA graph should be made once, so it has room for nearly all there can be.
    """
    if device == "cpu":
        return 1
    at_least = np.arange(batch, fewest + 1)
    beyond = scipy.special.bdtrc(at_least, fewest, float(chance(batch, fewest)))
    return int(at_least[np.argmax(beyond < RARE)])


def _fits(picks: Tensor, room: Tensor) -> bool:
    """Say whether so many steps of so many images fit."""
    return len(picks) <= len(room) and picks.shape[1] <= room.shape[1]


def _joined(pieces: Sequence[Updates]) -> Updates:
    """Return the updates of all slots as one."""
    values = [torch.cat(parts, dim=1) for parts in zip(*(p.values for p in pieces), strict=True)]
    steps = torch.cat([p.steps for p in pieces], dim=1)
    images = torch.cat([p.images for p in pieces], dim=1)
    return Updates(slice(0, pieces[-1].places.stop), tuple(values), steps, images)


def _starts(block: Block, state: State, who: Sequence[Indices]) -> tuple[Params, Tensor | None]:
    """Return what each slot starts from, [S·M,R,...], and how far it is ahead of the server.

    A client that keeps values private starts from its own; None where none does.
    """
    S, R, M = len(block.repeats), block.federations, len(who[0])
    if not state.kept:
        pieces = unflatten(state.models.flatten(0, 1), block.stack.initial)
        shaped = [p.view(S, 1, R, *p.shape[1:]) for p in pieces]
        return [p.expand(-1, M, *p.shape[2:]).flatten(0, 1) for p in shaped], None
    begun = state.models[:, None].repeat(1, M, 1, 1)  # [S,M,R,P]
    for s, clients in enumerate(who):
        for m, client in enumerate(clients.tolist()):
            own = state.kept.get((s, client))
            if own is not None:
                begun[s, m] = torch.where(own.where, own.values, begun[s, m])
    pieces = unflatten(begun.flatten(0, 2), block.stack.initial)
    ahead = (begun - state.models[:, None]).flatten(0, 1)
    return [p.view(S * M, R, *p.shape[1:]) for p in pieces], ahead

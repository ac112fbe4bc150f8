"""The state of federations between two rounds: models, what clients keep, what the server keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedpareto.federation.block import Block
from fedpareto.federation.servers.base import Memory
from fedpareto.federation.split import Indices
from fedpareto.mechanisms import Upload


@dataclass(frozen=True)
class Kept:
    """What a client keeps private: where it goes on with its own values, and those values."""

    where: Tensor  # [R,P]
    values: Tensor  # [R,P]


@dataclass(frozen=True)
class State:
    """Everything that a round changes."""

    models: Tensor  # [S,R,P]
    server: Memory = ()  # what the server remembers
    kept: Mapping[tuple[int, int], Kept] = field(default_factory=dict)  # (repeat, client) → private


def start(block: Block) -> State:
    """Return the state before the first round."""
    server = block.setup.server
    return State(block.initial, server.start(block.initial, block.settings))


def keep(
    state: State, repeat: int, clients: Indices, upload: Upload, updates: Tensor, part: Tensor
) -> State:
    """Return the state with the values that these clients keep private for their next round.

    updates [R,M,P] is what they trained, part [R,M] who takes part.
    """
    if upload.private is None:
        return state
    began = state.models[repeat]
    kept = dict(state.kept)
    nothing = Kept(torch.zeros_like(began, dtype=torch.bool), began)
    for m, client in enumerate(clients.tolist()):
        before = kept.get((repeat, client), nothing)
        takes = part[:, m, None]
        where = torch.where(takes, upload.private[:, m], before.where)
        values = torch.where(takes, began + updates[:, m], before.values)
        kept[repeat, client] = Kept(where, values)
    return replace(state, kept=kept)

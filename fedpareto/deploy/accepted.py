"""Which answers of a round are taken, and which are refused by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedpareto.contract import FLOAT32
from fedpareto.deploy.deployment import Deployment
from fedpareto.deploy.messages import unpacked, whole
from fedpareto.deploy.party import spread_of
from fedpareto.errors import DeploymentError, shown
from fedpareto.federation.block import Block
from fedpareto.federation.run import DIVERGED
from fedpareto.federation.state import State

SURE = 9.0  # standard deviations by which the length of noise exceeds its own at most
SLACK = 1e-4  # what 32 bits may add to a length


@dataclass(frozen=True)
class Taken:
    """An upload that is counted."""

    values: Tensor  # [P]
    rounds: int  # in how many rounds the site has answered, this one included, as it says


@dataclass(frozen=True)
class Refused:
    """An answer that is not counted, and why."""

    client: int
    why: str


def accepted(
    agreed: Deployment,
    block: Block,
    state: State,
    t: int,
    asked: Mapping[int, int],
    answers: Iterable[tuple[int, Mapping[str, Any]]],
) -> tuple[dict[int, Taken], list[Refused]]:
    """Return the uploads that are counted, by client, and what is refused.

    asked says of each client who was asked in how many rounds it was, this one included.
    """
    uploads: dict[int, Taken] = {}
    refused = []
    for client, answer in answers:
        if client not in asked:
            continue  # it only judged
        try:
            check_answer(client, answer, client in uploads)
            uploads[client] = _taken(agreed, block, state, t, asked[client], answer)
        except DeploymentError as error:
            refused.append(Refused(client, str(error)))
    return uploads, refused


def check_answer(client: int, answer: Mapping[str, Any], known: bool) -> None:
    """Refuse a refusal, the answer of another site, and a second answer."""
    if "refused" in answer:
        raise DeploymentError(f"the site refused: {shown(answer['refused'])}")
    if answer.get("client") != client:
        raise DeploymentError(
            f"client: must be {client}, who was asked, found {shown(answer.get('client'))}."
        )
    if known:
        raise DeploymentError(
            "answer: must come once, found a second one. The first is counted, this is not."
        )


def _taken(
    agreed: Deployment, block: Block, state: State, t: int, times: int, answer: Mapping[str, Any]
) -> Taken:
    """Return an upload that may be counted; refuse one of another round, shape or length."""
    whole(answer, "round", t, t)
    values = unpacked(answer.get("values"), block.stack.size, "values")
    length = float(torch.linalg.vector_norm(values, dtype=torch.float64))
    most = longest(agreed, block, state)
    if length > most:
        raise DeploymentError(
            f"values: must be at most {most:.4g} long, which clipping and noise allow, found "
            f"{length:.4g}."
        )
    rounds = whole(answer, "rounds", 0, agreed.rounds)
    if rounds > times:
        raise DeploymentError(
            f"rounds: must be at most {times}, in which this server's ledger has asked the site, "
            f"found that it has answered in {rounds}: the server's folder may be an older copy, "
            "whose ledger forgets what was spent since. Put the newest one back."
        )
    return Taken(values, rounds)


def longest(agreed: Deployment, block: Block, state: State) -> float:
    """Return how long an honest upload can be, but for a chance of 1e-18."""
    model = float(torch.linalg.vector_norm(state.models[0, 0], dtype=torch.float64))
    terms = agreed.terms
    if terms.noise is None or not terms.noise_last or not terms.centred:
        return DIVERGED * (1 + model)
    # a site adds most noise where it comes alone
    noise = max(spread_of(agreed, 1) or 0.0, 0.0)
    most = float(terms.norm[0]) * FLOAT32 + noise * (math.sqrt(block.stack.size) + SURE)
    return most * (1 + SLACK)

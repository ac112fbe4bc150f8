"""The parts of the simulation that a deployment runs: one federation, with the system's noise."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from fedpareto.deploy.deployment import Deployment
from fedpareto.errors import DeploymentError
from fedpareto.federation import blocks
from fedpareto.federation.block import Block
from fedpareto.federation.columns import given_of
from fedpareto.federation.data import Dataset
from fedpareto.federation.setup import Held
from fedpareto.mechanisms import BatchCrypt, Chain, Mechanism, Unprotected, links_of
from fedpareto.noise import system_seed

REPLAY = "FEDPARETO_REPLAY"  # the environment variable without which no study is replayed


def check_replay(seed: int | None) -> None:
    """Refuse to draw from a study's seed, which others know, unless a test says that it may."""
    if seed is not None and os.environ.get(REPLAY) != "in a test":
        raise DeploymentError(
            "replay: must stay within tests, found a seed. A deployment draws from the system's "
            "secure randomness: noise from a study's seed hides nothing. Leave it out."
        )


def block_of(
    agreed: Deployment, records: Dataset, client: int, slots: int, replay: int | None
) -> Block:
    """Return the one federation as it is prepared for training, with the records that are here."""
    problem = replace(agreed.problem, mechanism=before_encryption(agreed), objectives=(), limits=())
    seed = agreed.seed if replay is None else replay
    setup = replace(
        blocks.setup_of(problem, seed),
        held=Held(records, client),
        secret=system_seed() if replay is None else None,
    )
    given = given_of(problem, {}, 1)
    return blocks.prepared(problem, {}, given, np.zeros(1, dtype=np.int64), [setup], slots)


def encryption_of(agreed: Deployment) -> BatchCrypt | None:
    """Return the link that encrypts what clients send, the last one; None where none does."""
    last = links_of(agreed.problem.mechanism)[-1]
    return last if isinstance(last, BatchCrypt) else None


def before_encryption(agreed: Deployment) -> Mechanism:
    """Return how clients protect updates before they encrypt them, if they do."""
    mechanism = agreed.problem.mechanism
    if encryption_of(agreed) is None:
        return mechanism
    rest = links_of(mechanism)[:-1]
    if not rest:
        return Unprotected()
    return rest[0] if len(rest) == 1 else Chain(rest)

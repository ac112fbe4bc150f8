"""A site of a deployment: its records, its state and its ledger, and how it trains for a round."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from fedpareto.contract import share_of_noise
from fedpareto.deploy import ledger as ledgers
from fedpareto.deploy.deployment import Deployment, read_agreed
from fedpareto.deploy.kept import Kept
from fedpareto.deploy.ledger import Ledger
from fedpareto.deploy.messages import Message, whole
from fedpareto.deploy.parts import block_of, check_replay
from fedpareto.deploy.site import Site, dataset_of
from fedpareto.errors import DeploymentError, shown
from fedpareto.federation.block import Block
from fedpareto.federation.clients import Clients
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.protection import protect
from fedpareto.federation.run import finite
from fedpareto.federation.stack import unflatten
from fedpareto.federation.state import Kept as Private
from fedpareto.federation.state import State, keep
from fedpareto.federation.steps import precision, threads_for
from fedpareto.noise import Noise

UNLIKELY = 1e-9  # the chance with which a site that is asked so often is asked as agreed


@dataclass(frozen=True)
class Client:
    """One site: its number among the clients, its records, and where it keeps its state."""

    agreed: Deployment
    number: int
    folder: Path
    load: Callable[[], Site]
    replay: int | None = None  # a study's seed, in tests alone
    key: Path | None = None  # the key that sites share, where sums are encrypted

    def __post_init__(self) -> None:
        check_replay(self.replay)
        whole = isinstance(self.number, int) and not isinstance(self.number, bool)
        if not whole or not 0 <= self.number < self.agreed.clients:
            raise DeploymentError(
                f"client: must be a number from 0 to {self.agreed.clients - 1}, found "
                f"{shown(self.number)}. Each site has its own."
            )

    @functools.cached_property
    def block(self) -> Block:
        """The federation as this site prepares it, with its own records alone."""
        records = dataset_of(self.load(), self.agreed)
        return block_of(self.agreed, records, self.number, 1, self.replay)

    @property
    def path(self) -> Path:
        """Where its state is."""
        return self.folder / "client.safetensors"

    def ledger(self) -> Ledger:
        """Open the ledger, or begin it."""
        return ledger_of(self.agreed, self.folder, self.path, self.number)


def client_of(config: Mapping[str, Any], app: Path, load: Callable[[], Site]) -> Client:
    """Return the site that a node's own configuration describes, in the folder of its app.

    deployment is the SHA-256 of what this site agreed to. It is compared before anything of the app
    is read, since the app is whatever the server's side sends.
    """
    missing = [name for name in ("client", "folder", "deployment") if name not in config]
    if missing:
        raise DeploymentError(
            f"node-config: must name client, folder and deployment, found no {missing[0]}. See the "
            "app's README for how a site is started."
        )
    key = config.get("key")
    return Client(
        read_agreed(app, str(config["deployment"])),
        config["client"],
        Path(str(config["folder"])).expanduser(),
        load,
        key=None if key is None else Path(str(key)).expanduser(),
    )


def ledger_of(agreed: Deployment, folder: Path, state: Path, client: int | None = None) -> Ledger:
    """Open the ledger of a party, the server where client is None; begin it with its state."""
    path = folder / "ledger.jsonl"
    if path.exists():
        # at a site, whoever was asked before may be at work still: its answer is this one's too
        return ledgers.open(path, agreed.hash, 0.0 if client is None else agreed.patience)
    if state.exists():
        raise DeploymentError(
            f"{path}: must be beside {state.name}, found none: what was spent so far would be "
            "forgotten. Put it back, or begin anew in another folder."
        )
    folder.mkdir(0o700, parents=True, exist_ok=True)  # what is not protected yet is kept there
    side = "server" if client is None else "client"
    return ledgers.begin(path, header_of(agreed, side, client))


def check_remembered(ledger: Ledger, t: int) -> None:
    """Refuse a round that this site has answered, where it has lost what it answered."""
    last = max(ledger.history.done, default=-1)
    if t <= last:
        raise DeploymentError(
            f"round: must come after round {last + 1}, which this site has answered by its ledger, "
            f"found round {t + 1}, and what was sent is lost. To train for it again would spend "
            "privacy twice."
        )


def check_follows(
    ledger: Ledger, state: Path, rounds: Iterable[int], known: frozenset[int]
) -> None:
    """Refuse a ledger that does not know of rounds that the state beside it does."""
    missing = sorted(set(rounds) - known)
    if missing:
        raise DeploymentError(
            f"{ledger.path}: must know of every round that {state.name} beside it does, found "
            f"nothing of round {missing[0] + 1}: an older copy, which forgets what was spent since."
            " Put the newest one back, or begin anew in another folder."
        )


def header_of(agreed: Deployment, side: str, client: int | None = None) -> Mapping[str, Any]:
    """Return the header of a ledger of this deployment."""
    from fedpareto.deploy.pricing import terms_of  # takes a while, once

    columns = agreed.columns
    terms = terms_of(
        agreed.terms, agreed.problem.privacy, agreed.rounds, float(columns["delta"][0])
    )
    return ledgers.header(side, agreed.hash, terms, agreed.planned, client)


def judged(client: Client, model: Tensor) -> Message:
    """Return how many test records there are, how many a model gets wrong, and its summed loss."""
    block = client.block
    records = len(block.judge.images.y)
    if not client.agreed.tells or not records:
        return {"records": 0, "wrong": 0.0, "loss": 0.0}
    with threads_for(block.stack.size * records), precision(block.setup.training.tf32):
        params = unflatten(model[None].to(block.device), block.stack.initial)
        found = block.judge(block.stack, [p.contiguous() for p in params], own=False)
    error, loss = float(found["error"][0]), float(found["loss"][0])
    wrong = round(error * records) if np.isfinite(error) else -1.0
    return {"records": records, "wrong": float(wrong), "loss": loss * records}


def asked_for(agreed: Deployment, message: Mapping[str, Any]) -> tuple[int, int]:
    """Return the round and how many clients come, as the server says; refuse more than agreed."""
    t = whole(message, "round", 0, agreed.rounds - 1)
    fixed = agreed.terms.sampling == "fixed"
    least, most = (int(agreed.cohort),) * 2 if fixed else (1, agreed.clients)
    return t, whole(message, "came", least, most)


def check_share(agreed: Deployment, ledger: Ledger, t: int) -> None:
    """Refuse to be asked far more often than the share of clients that was agreed."""
    times, rounds = len(ledger.history.done) + 1, t + 1
    share = agreed.cohort / agreed.clients
    if share < 1 and times <= rounds and scipy.special.bdtrc(times - 1, rounds, share) < UNLIKELY:
        raise DeploymentError(
            f"cohort: must be a share of {share:.3g} of all clients in each round, found this site "
            f"asked in {times} of {rounds} rounds. Ask who runs the server why."
        )


def entered(client: Client, ledger: Ledger, t: int, attempt: int, came: int) -> None:
    """Enter into the ledger what noise an upload was given."""
    terms = client.agreed.terms
    noise = spread_of(client.agreed, came)
    records = None if terms.records is None else [float(np.max(terms.records.noise))]
    ledger.ended(
        t,
        attempt,
        [client.number],
        None if noise is None else [noise],
        norm_of(client.agreed),
        None,
        record_noise=records,
    )


def spread_of(agreed: Deployment, came: int) -> float | None:
    """Return the noise that each client adds where so many come; None for none."""
    terms = agreed.terms
    if terms.noise is None:
        return None
    share = 1.0 if terms.sampling == "fixed" else share_of_noise(agreed.cohort, max(came, 1))
    return float(terms.noise[0]) * share


def norm_of(agreed: Deployment) -> float | None:
    """Return the longest that an update may be before noise; None where nothing bounds it."""
    return None if agreed.terms.norm is None else float(agreed.terms.norm[0])


def trained(
    client: Client, model: Tensor, before: Kept | None, t: int, came: int
) -> tuple[Tensor, dict[str, Tensor], Noise]:
    """Return what is sent of a round's training, [P], and what the site keeps for the next.

    Beside them comes what goes on drawing for this round.
    """
    block, number = client.block, np.array([client.number])
    state = State(model[None, None].to(block.device), (), _private(client, before))
    work = 3 * block.stack.size * block.batch
    with threads_for(work), precision(block.setup.training.tf32):
        cohort = Cohort(number, np.array([1]))
        (updates,) = Clients(block).trained(state, [cohort], t)
        values = finite(updates.values[0])
        noise = block.setup.noise(t, number, block.device)
        upload = protect(block, state, 0, t, number, values, torch.tensor([came]), noise)
    there = torch.ones(1, 1, dtype=torch.bool, device=block.device)
    private = keep(state, 0, number, upload, values, there).kept.get((0, client.number))
    rest = {} if private is None else {"where": private.where[0], "own": private.values[0]}
    return upload.values[0, 0], rest, noise


def _private(client: Client, before: Kept | None) -> dict[tuple[int, int], Private]:
    """Return the values that the site kept private when it last took part."""
    if before is None or "where" not in before.tensors:
        return {}
    where, own = (before.tensors[name][None].to(client.block.device) for name in ("where", "own"))
    return {(0, client.number): Private(where, own)}

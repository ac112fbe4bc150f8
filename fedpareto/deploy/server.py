"""The server's side: who is asked, what is made of the answers, and what is kept of it on disk.

Its state is written after every round. A server that was killed goes on from the last whole round
and asks the same sites for the same: they answer with the same bytes, so no privacy is spent twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract import on_the_sum
from fedpareto.deploy import kept as keeping
from fedpareto.deploy.accepted import Refused, accepted
from fedpareto.deploy.deployment import Deployment
from fedpareto.deploy.kept import Kept
from fedpareto.deploy.ledger import Ledger
from fedpareto.deploy.messages import Message, packed, request
from fedpareto.deploy.model import write_model
from fedpareto.deploy.parts import block_of, check_replay
from fedpareto.deploy.party import check_follows, ledger_of, norm_of, spread_of
from fedpareto.deploy.progress import Progress
from fedpareto.deploy.rows import Id
from fedpareto.deploy.site import nothing
from fedpareto.errors import DeploymentError, FedparetoError
from fedpareto.federation.block import Block
from fedpareto.federation.cohorts import Cohort
from fedpareto.federation.protection import aggregate, missing_noise, step
from fedpareto.federation.run import who
from fedpareto.federation.state import State, start


class Sites(Protocol):
    """Whatever carries messages to sites and back: Flower, or a loop in one process."""

    def ask(
        self, requests: Mapping[int, Message], patience: float
    ) -> Iterable[tuple[int, Mapping[str, Any]]]:
        """Send each client its request; return who answered what within so many seconds."""


@dataclass(frozen=True)
class Server:
    """A server's own: what was agreed, and where it keeps its state."""

    agreed: Deployment
    folder: Path
    replay: int | None = None  # a study's seed, in tests alone
    key: Path | None = None  # the public key, where sums are encrypted

    def __post_init__(self) -> None:
        check_replay(self.replay)

    @property
    def path(self) -> Path:
        """Where its state is."""
        return self.folder / "server.safetensors"

    def ledger(self) -> Ledger:
        """Open the ledger, or begin it."""
        return ledger_of(self.agreed, self.folder, self.path)


def serve_plain(
    server: Server, sites: Sites, say: Callable[[Progress], None] | None = None
) -> Progress:
    """Run a deployment to its end, from wherever it stands; return what it came to."""
    block = block_of(server.agreed, nothing(server.agreed), 0, server.agreed.clients, server.replay)
    state, progress = _restored(server, block)
    with server.ledger() as ledger:
        try:
            check_state(server, ledger, progress.rounds)
            while progress.rounds < server.agreed.rounds:
                state, progress = _round(server, block, state, progress, ledger, sites)
                _write(server, state, progress)
                if say:
                    say(progress)
        except FedparetoError as error:
            progress.stopped(str(error)).write(server.folder)
            raise
    if server.agreed.tells and not progress.judged:
        requests = {k: _judge_request(server, state) for k in range(server.agreed.clients)}
        answers = list(sites.ask(requests, server.agreed.patience))
        progress = progress.measured(answers, server.agreed)
    _write(server, state, progress)
    write_model(server.agreed, block, state, server.folder)
    return progress


def _round(
    server: Server, block: Block, state: State, progress: Progress, ledger: Ledger, sites: Sites
) -> tuple[State, Progress]:
    """Run one round: ask, check, enter into the ledger, move the model."""
    agreed, t = server.agreed, progress.rounds
    asked = asked_in(server, block, ledger, t)
    attempt = ledger.began(t, asked, norm_of(agreed))
    judging = agreed.tells and t > 0 and not progress.judged
    requests = _requests(server, state, t, asked, judging)
    answers = list(sites.ask(requests, agreed.patience))
    known = _times_asked(ledger)
    times = {k: known[k] for k in asked}
    uploads, refused = accepted(agreed, block, state, t, times, answers)
    if judging:
        progress = progress.measured(answers, agreed)
    check_dropouts(agreed, t, asked, list(uploads), refused)
    came = sorted(uploads)
    cohort = _cohort(came, agreed.clients)
    sums = sum((uploads[k].values for k in came), torch.zeros(block.stack.size))
    sums = sums.to(block.device)[None, None]
    noise = missing_noise(block, 0, t, cohort)
    if noise is not None:
        sums = sums + noise
    count = torch.tensor([[len(came)]], device=block.device)
    mean = aggregate(block, sums, [cohort], count)
    _enter(server, ledger, t, attempt, asked, uploads, noise is not None)
    return step(block, state, mean), progress.after(t, asked, came, refused)


def asked_in(server: Server, block: Block, ledger: Ledger, t: int) -> list[int]:
    """Return who is asked in a round: whom it asked before, where it was begun and not finished."""
    begun = ledger.history.attempts_of(t)
    if begun:
        return [int(k) for k in begun[-1].asked]
    if server.replay is not None:
        cohort = who(block, 0, t)
        return [int(k) for k in cohort.order[: cohort.count[0]]]
    return drawn_by_system(server.agreed)


def drawn_by_system(agreed: Deployment) -> list[int]:
    """Draw who takes part in a round from the system's secure randomness."""
    draw = random.SystemRandom()
    everyone = range(agreed.clients)
    if agreed.terms.sampling == "fixed":
        return sorted(draw.sample(everyone, int(agreed.cohort)))
    return [k for k in everyone if draw.random() < agreed.ratio]


def _requests(
    server: Server, state: State, t: int, asked: Sequence[int], judging: bool
) -> dict[int, Message]:
    """Return what every site is asked: to train, or, where others judge the model, that alone."""
    model = packed(state.models[0, 0])
    train = request(server.agreed, "train", round=t, came=len(asked), model=model, judge=judging)
    found = dict.fromkeys(asked, train)
    if judging:
        rest = _judge_request(server, state)
        found |= {k: rest for k in range(server.agreed.clients) if k not in found}
    return found


def _judge_request(server: Server, state: State) -> Message:
    return request(server.agreed, "judge", model=packed(state.models[0, 0]))


def check_dropouts(
    agreed: Deployment,
    t: int,
    asked: Sequence[int],
    answered: Sequence[int],
    refused: Sequence[Refused],
) -> None:
    """Stop where more sites failed to answer than was planned, unless ε may rise instead."""
    missing = sorted(set(asked) - set(answered))
    if len(missing) <= agreed.dropouts:
        return
    nobody = not answered and agreed.terms.sampling == "fixed"
    if agreed.beyond == "raise" and not nobody:
        return
    why = {one.client: one.why for one in refused}
    named = "; ".join(f"site {k}: {why.get(k, 'no answer')}" for k in missing[:5])
    raise DeploymentError(
        f"round {t + 1}: must be answered by all but {agreed.dropouts} of the {len(asked)} sites "
        f"asked, found {len(missing)} missing. {named}. Everything up to here is kept: start the "
        "run again once they are back."
    )


def _cohort(came: Sequence[int], clients: int) -> Cohort:
    """Return the cohort of those who came."""
    absent = [k for k in range(clients) if k not in set(came)]
    return Cohort(np.array([*came, *absent], dtype=np.int64), np.array([len(came)]))


def _enter(
    server: Server,
    ledger: Ledger,
    t: int,
    attempt: int,
    asked: Sequence[int],
    uploads: Mapping[int, Any],
    topped_up: bool,
) -> None:
    """Enter into the ledger who answered with how much noise, before their sum is used."""
    agreed, terms = server.agreed, server.agreed.terms
    came = sorted(uploads)
    noise = spread_of(agreed, len(asked))
    records = None if terms.records is None else float(np.max(terms.records.noise))
    added = 0.0
    if topped_up:
        added = float(on_the_sum(terms.noise, terms.cohort, terms.sampling)[0])
    known = _answered_other(ledger, t)
    ledger.ended(
        t,
        attempt,
        came,
        None if noise is None else [noise] * len(came),
        norm_of(agreed),
        float(terms.divisor(len(came), agreed.cohort)),
        again=[k for k in came if attempt > 1 and uploads[k].rounds > known.get(k, 0)],
        record_noise=None if records is None else [records] * len(came),
        server_noise=added,
    )


def _answered_other(ledger: Ledger, t: int) -> dict[int, int]:
    """Return in how many other rounds each site answered: if it knows of fewer, it lost its state.

    Then nobody knows whether it sends the same as before.
    """
    others = (one for one in ledger.history.attempts if one.round != t)
    return _rounds_of_each((one.round, one.answered) for one in others)


def _times_asked(ledger: Ledger) -> dict[int, int]:
    """Return in how many rounds each site was asked: if it answered in more, the ledger is old."""
    return _rounds_of_each((one.round, one.asked) for one in ledger.history.attempts)


def _rounds_of_each(rounds: Iterable[tuple[int, Sequence[Id]]]) -> dict[int, int]:
    """Return in how many rounds each site was, of rounds with their sites."""
    found: dict[int, set[int]] = {}
    for t, sites in rounds:
        for k in sites:
            found.setdefault(int(k), set()).add(t)
    return {k: len(among) for k, among in found.items()}


def _restored(server: Server, block: Block) -> tuple[State, Progress]:
    """Return where the deployment stands."""
    found = keeping.read(server.path, ("deployment", "progress"))
    if found is None:
        return start(block), Progress(of=server.agreed.rounds)
    check_of(server, found)
    names = sorted(n for n in found.tensors if n.startswith("memory"))
    memory = tuple(found.tensors[n].to(block.device) for n in names)
    state = State(found.tensors["models"].to(block.device), memory)
    return state, Progress.read(found.words["progress"])


def check_of(server: Server, found: Kept) -> None:
    """Refuse the state of another deployment."""
    if found.words["deployment"] != server.agreed.hash:
        raise DeploymentError(
            f"{server.path}: must be of this deployment, found the state of another. Give each its "
            "own folder."
        )


def check_state(server: Server, ledger: Ledger, rounds: int) -> None:
    """Refuse a state and a ledger of which one is an older copy: one round ends in both."""
    check_follows(ledger, server.path, range(rounds), ledger.history.done)
    last = max(ledger.history.done, default=0)
    if last > rounds:  # killed between the two, they differ by one
        raise DeploymentError(
            f"{server.path}: must be of round {last} at least, as its ledger is, found it of round "
            f"{rounds}: an older copy, or lost. Sites do not train for a round again: put the "
            "newest one back, or begin anew at all parties."
        )


def _write(server: Server, state: State, progress: Progress) -> None:
    """Keep the state in one step."""
    tensors: dict[str, Tensor] = {"models": state.models}
    tensors |= {f"memory{i:03d}": part for i, part in enumerate(state.server)}
    words = {"deployment": server.agreed.hash, "progress": progress.plain()}
    keeping.write(server.path, Kept(tensors, words))
    progress.write(server.folder)

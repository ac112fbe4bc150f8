"""The server's side of encrypted sums: it adds what it cannot read, and hands out the sums.

It has the public key alone. It keeps the sum of every round, so that a site which missed some, or
lost its model, can catch up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpareto.crypto.keyfile import read_bfv_public_key, read_public_key
from fedpareto.crypto.lattice import BfvServer
from fedpareto.crypto.paillier import PaillierServer
from fedpareto.crypto.scheme import Server as Adder
from fedpareto.deploy import kept as keeping
from fedpareto.deploy.accepted import Refused, check_answer
from fedpareto.deploy.encrypted import (
    MOST_SUMS,
    Summed,
    batchcrypt,
    check_bits,
    clip_of,
    codec_of,
    length_of,
    spread_of,
)
from fedpareto.deploy.kept import Kept
from fedpareto.deploy.ledger import Ledger
from fedpareto.deploy.messages import Message, request, whole
from fedpareto.deploy.parts import block_of
from fedpareto.deploy.progress import Progress
from fedpareto.deploy.server import (
    Server,
    Sites,
    asked_in,
    check_dropouts,
    check_of,
    check_state,
)
from fedpareto.deploy.site import nothing
from fedpareto.errors import BadCiphertext, DeploymentError, FedparetoError
from fedpareto.federation.block import Block
from fedpareto.files import write_whole

Answer = tuple[int, Mapping[str, Any]]


@dataclass(frozen=True)
class Sums:
    """What an encrypted server keeps: how far it is, and what every site has."""

    progress: Progress
    counts: tuple[int, ...] = ()  # of each round
    clips: tuple[float, ...] = ()
    knows: Mapping[int, int] = field(default_factory=dict)  # site → rounds that its model has
    told: tuple[int, ...] | None = None  # who told its spread for the round under way
    clip: float = 0.0  # of the round under way


def serve_encrypted(
    server: Server, sites: Sites, say: Callable[[Progress], None] | None = None
) -> Progress:
    """Run a deployment with encrypted sums to its end, from wherever it stands."""
    agreed = server.agreed
    block = block_of(agreed, nothing(agreed), 0, agreed.clients, server.replay)
    held = _restored(server)
    with server.ledger() as ledger:
        try:
            adder = adder_of(server)
            check_state(server, ledger, held.progress.rounds)
            while held.progress.rounds < agreed.rounds:
                held = _round(server, block, adder, held, ledger, sites)
                _write(server, held)
                if say:
                    say(held.progress)
        except FedparetoError as error:
            held.progress.stopped(str(error)).write(server.folder)
            raise
    held = _handed_out(server, held, sites)
    _write(server, held)
    return held.progress


def adder_of(server: Server) -> Adder:
    """Return what adds ciphertexts, with the public key."""
    if server.key is None:
        raise DeploymentError(
            "public key: must be the .pub file of the key that sites share, found none. "
            "fedpareto keys make writes it beside the key."
        )
    codec = codec_of(server.agreed)
    if batchcrypt(server.agreed).scheme == "bfv":
        return BfvServer(read_bfv_public_key(server.key), codec)
    key = read_public_key(server.key)
    check_bits(server.agreed, key.bits)
    return PaillierServer(key, codec)


def _round(
    server: Server, block: Block, adder: Adder, held: Sums, ledger: Ledger, sites: Sites
) -> Sums:
    """Run one round: spreads, then ciphertexts, then their sum."""
    agreed, t = server.agreed, held.progress.rounds
    asked = asked_in(server, block, ledger, t)
    attempt = ledger.began(t, asked)
    if held.told is None:
        held = _spread(server, block, adder, held, asked, sites)
        _write(server, held)
    told = held.told or ()
    ask = request(agreed, "encrypt", round=t, came=len(asked), clip=held.clip)
    answers = sites.ask(dict.fromkeys(told, ask), agreed.patience) if told else ()
    found = _Added(adder, length_of(block))
    for client, answer in answers:
        found.take(client, answer, t)
    check_dropouts(agreed, t, asked, found.came, found.refused)
    divisor = float(agreed.terms.divisor(len(found.came), agreed.cohort))
    ledger.ended(t, attempt, found.came, None, None, divisor, again=found.again)
    write_whole(_path(server, t), found.data)
    return replace(
        held,
        progress=held.progress.after(t, asked, found.came, found.refused),
        counts=(*held.counts, len(found.came)),
        clips=(*held.clips, held.clip),
        told=None,
    )


def _spread(
    server: Server, block: Block, adder: Adder, held: Sums, asked: Sequence[int], sites: Sites
) -> Sums:
    """Ask sites to train, and how far their updates spread; return the clip that follows."""
    agreed, t = server.agreed, held.progress.rounds
    judging = agreed.tells and t > 0 and not held.progress.judged
    ask = request(agreed, "spread", round=t, came=len(asked), judge=judging)
    asks = dict.fromkeys(asked, ask)
    if judging:
        look = request(agreed, "judge", upto=t)
        asks |= {k: look for k in range(agreed.clients) if k not in asks}
    held, answers = _asked_with_sums(server, held, asks, t, sites)
    progress = held.progress.measured(answers, agreed) if judging else held.progress
    spreads: dict[int, tuple[float, float]] = {}
    refused = []
    for client, answer in answers:
        if client not in asked:
            continue
        try:
            check_answer(client, answer, client in spreads)
            whole(answer, "round", t, t)
            spreads[client] = spread_of(answer, length_of(block))
        except DeploymentError as error:
            refused.append(Refused(client, str(error)))
    check_dropouts(agreed, t, asked, list(spreads), refused)
    told = tuple(sorted(spreads))
    codec: Any = codec_of(agreed)
    clip = clip_of([spreads[k] for k in told], length_of(block), codec.magnitude)
    return replace(held, progress=progress, told=told, clip=clip)


class _Added:
    """Ciphertexts of a round as they come in, and what is refused of them by name."""

    def __init__(self, adder: Adder, length: int) -> None:
        self._adder = adder
        self._length = length
        self._total: Any = None
        self.refused: list[Refused] = []
        self._again: dict[int, bool] = {}  # who was counted, and whether it had sent this before

    def take(self, client: int, answer: Mapping[str, Any], t: int) -> None:
        """Add an answer, or refuse it by name."""
        try:
            check_answer(client, answer, client in self._again)
            whole(answer, "round", t, t)
            self._total = self._with(answer.get("ciphertext"))
            self._again[client] = answer.get("again") is True
        except (DeploymentError, BadCiphertext) as error:
            self.refused.append(Refused(client, str(error)))

    def _with(self, data: Any) -> Any:
        """Return the sum with one upload more."""
        one = self._adder.read(data)
        if (one.terms, one.length) != (1, self._length):
            raise DeploymentError(
                f"ciphertext: must be one upload of {self._length} numbers, found {one.terms} of "
                f"{one.length}."
            )
        return one if self._total is None else self._adder.add(self._total, one)

    @property
    def came(self) -> list[int]:
        return sorted(self._again)

    @property
    def again(self) -> list[int]:
        return [client for client in self.came if self._again[client]]

    @property
    def data(self) -> bytes:
        return b"" if self._total is None else self._total.to_bytes()


def _handed_out(server: Server, held: Sums, sites: Sites) -> Sums:
    """Hand the last sums to every site; each writes the model, and tells how good it is."""
    agreed = server.agreed
    look = request(agreed, "judge", upto=agreed.rounds)
    asks = dict.fromkeys(range(agreed.clients), look)
    held, answers = _asked_with_sums(server, held, asks, agreed.rounds, sites)
    if agreed.tells and not held.progress.judged:
        held = replace(held, progress=held.progress.measured(answers, agreed))
    return held


def _asked_with_sums(
    server: Server, held: Sums, asks: Mapping[int, Message], upto: int, sites: Sites
) -> tuple[Sums, list[Answer]]:
    """Ask sites, each with the sums that it lacks; return what is known since, and the answers.

    A site that lacks more than was thought says so, and is asked again.
    """
    knows, found = dict(held.knows), []
    waiting = dict(asks)
    tries = 2 + upto // MOST_SUMS
    while waiting and tries:
        lacking = {k: range(min(knows.get(k, 0), upto), upto)[:MOST_SUMS] for k in waiting}
        sent = {k: {**ask, **_sums(server, held, lacking[k])} for k, ask in waiting.items()}
        waiting, tries = {}, tries - 1
        for client, answer in sites.ask(sent, server.agreed.patience):
            behind = answer.get("behind", answer.get("knows"))
            if isinstance(behind, int) and not isinstance(behind, bool) and 0 <= behind <= upto:
                knows[client] = behind
            if "behind" in answer and tries:
                waiting[client] = asks[client]
            else:
                found.append((client, answer))
    return replace(held, knows=knows), found


def _sums(server: Server, held: Sums, rounds: Sequence[int]) -> dict[str, Any]:
    """Return the sums of rounds as the fields of a message."""
    fields: dict[str, Any] = {}
    for t in rounds:
        data = _path(server, t).read_bytes()
        fields |= Summed(held.counts[t], held.clips[t], data).put(t)
    return fields


def _path(server: Server, t: int) -> Path:
    """Return where the sum of a round is."""
    folder = server.folder / "sums"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{t}.sum"


def _restored(server: Server) -> Sums:
    """Return where the deployment stands."""
    found = keeping.read(server.path, ("deployment", "progress", "knows", "told"))
    if found is None:
        return Sums(Progress(of=server.agreed.rounds))
    check_of(server, found)
    words = found.words
    told = words["told"]
    return Sums(
        Progress.read(words["progress"]),
        tuple(words["counts"]),
        tuple(words["clips"]),
        {int(k): n for k, n in words["knows"].items()},
        None if told is None else tuple(told),
        words["clip"],
    )


def _write(server: Server, held: Sums) -> None:
    """Keep the state in one step."""
    words = {name: getattr(held, name) for name in ("counts", "clips", "knows", "told", "clip")}
    words |= {"deployment": server.agreed.hash, "progress": held.progress.plain()}
    keeping.write(server.path, Kept({}, words))
    held.progress.write(server.folder)

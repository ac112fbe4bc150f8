"""A site's side of a round: what it is asked, checked against what was agreed, and its answer.

It never sends two unlike uploads for one round: an upload is on disk before it is sent, and whoever
asks again is sent the same bytes. So a message that was lost, or a party that was killed, costs no
privacy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fedpareto import __version__
from fedpareto.deploy import encrypted_client
from fedpareto.deploy import kept as keeping
from fedpareto.deploy.deployment import Deployment
from fedpareto.deploy.kept import Kept
from fedpareto.deploy.messages import Message, digest, packed, same_terms, unpacked
from fedpareto.deploy.parts import encryption_of
from fedpareto.deploy.party import (
    Client,
    asked_for,
    check_follows,
    check_remembered,
    check_share,
    entered,
    judged,
    norm_of,
    trained,
)
from fedpareto.errors import DeploymentError, FedparetoError, shown


def answer(client: Client, message: Mapping[str, Any]) -> Message:
    """Return the answer to a message of the server; a refusal says why, and changes nothing."""
    try:
        same_terms(client.agreed, message, "the server")
        do = str(message.get("do"))
        answers = answers_of(client.agreed)
        if do not in answers:
            known = ", ".join(answers)
            raise DeploymentError(f"do: must be one of {known}, found {shown(do)}.")
        return {"client": client.number, **answers[do](client, message)}
    except FedparetoError as error:
        return {"client": client.number, "refused": str(error)}


def _hello(client: Client, message: Mapping[str, Any]) -> Message:
    """Say who this is, once its records are seen to fit."""
    assert client.block
    return {"deployment": client.agreed.hash, "time": time.time(), "version": __version__}


def _judge(client: Client, message: Mapping[str, Any]) -> Message:
    """Say how many of this site's test records a model gets wrong."""
    model = unpacked(message.get("model"), client.block.stack.size, "model")
    return judged(client, model)


def _train(client: Client, message: Mapping[str, Any]) -> Message:
    """Train on a model and send what is protected of it; or again what was sent before."""
    agreed, block = client.agreed, client.block
    t, came = asked_for(agreed, message)
    model = unpacked(message.get("model"), block.stack.size, "model")
    with client.ledger() as ledger:
        before = keeping.read(client.path, ("round", "asked"))
        if before is not None:
            check_follows(ledger, client.path, [before.words["round"]], ledger.history.begun)
        sent = sent_before(before, t, message)
        if sent is None:
            check_remembered(ledger, t)
            check_share(agreed, ledger, t)
            values, rest, _ = trained(client, model, before, t, came)
            sent = Kept(
                {"values": values, **rest}, {"round": t, "asked": digest(message), "came": came}
            )
            attempt = ledger.began(t, [client.number], norm_of(agreed))
            keeping.write(client.path, sent)
            entered(client, ledger, t, attempt, came)
        elif t not in ledger.history.done:  # killed between its state and its ledger
            entered(client, ledger, t, len(ledger.history.attempts_of(t)), came)
        rounds = len(ledger.history.done)
    answer = {"round": t, "values": packed(sent.tensors["values"]), "rounds": rounds}
    return answer | (judged(client, model) if message.get("judge") else {})


def sent_before(before: Kept | None, t: int, message: Mapping[str, Any]) -> Kept | None:
    """Return what was sent for this round; None for a new one. Refuse anything else."""
    if before is None or before.words["round"] < t:
        return None
    if before.words["round"] > t:
        raise DeploymentError(
            f"round: must come after round {before.words['round'] + 1}, which this site has "
            f"answered, found round {t + 1}. The server may have lost its state."
        )
    if before.words["asked"] != digest(message):
        raise DeploymentError(
            f"round: must be asked for once, found another model or cohort for round {t + 1}, "
            "which this site has answered. To answer it again would spend privacy twice."
        )
    return before


Answers = Mapping[str, Callable[[Client, Mapping[str, Any]], Message]]
ANSWERS: Answers = {
    "hello": _hello,
    "judge": _judge,
    "train": _train,
}


def answers_of(agreed: Deployment) -> Answers:
    """Return what a site may be asked to do."""
    if encryption_of(agreed) is None:
        return ANSWERS
    return {"hello": _hello, **encrypted_client.ANSWERS}

"""A site's side of a round with encrypted sums: the model lives here, and the key.

As with plain uploads nothing is sent twice: what was encrypted for a round is on disk before it is
sent, and whoever asks again is sent the same bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.crypto import SCHEMES, BfvKey, PrivateKey, dequantise, quantise
from fedpareto.crypto.keyfile import read_bfv_key, read_private_key
from fedpareto.deploy import kept as keeping
from fedpareto.deploy.encrypted import (
    batchcrypt,
    check_bits,
    codec_of,
    label_of,
    least_summed,
    length_of,
    taken,
)
from fedpareto.deploy.kept import Kept
from fedpareto.deploy.messages import Message, digest, whole
from fedpareto.deploy.model import write_model
from fedpareto.deploy.party import (
    Client,
    asked_for,
    check_follows,
    check_remembered,
    check_share,
    entered,
    judged,
    trained,
)
from fedpareto.errors import DeploymentError, shown
from fedpareto.federation.protection import step
from fedpareto.federation.state import State, start

FEW = 30  # ciphertexts below which tables cost more than they save


def spread(client: Client, message: Mapping[str, Any]) -> Message:
    """Catch up, train, and tell how far the update spreads."""
    t, came = asked_for(client.agreed, message)
    held = caught_up(client, message, t)
    if isinstance(held, int):
        return {"behind": held}
    with client.ledger() as ledger:
        if held.words.get("round") != t:
            if "asked" in held.words:  # it was sent
                sent = held.words["round"]
                check_follows(ledger, client.path, [sent], ledger.history.begun)
            check_remembered(ledger, t)
            check_share(client.agreed, ledger, t)
            held = _trained(client, held, t, came)
            keeping.write(client.path, held)
    values = held.tensors["values"][_places(client)].double()
    told = {"squares": float(values.square().sum()), "largest": _largest(values)}
    return {"round": t, "knows": t, **told, **_judged(client, held, message)}


def encrypt(client: Client, message: Mapping[str, Any]) -> Message:
    """Quantise and encrypt what was trained; or send again what was sent before."""
    agreed = client.agreed
    t, came = asked_for(agreed, message)
    clip = message.get("clip")
    if not isinstance(clip, float) or not 0 <= clip < 1e150:
        raise DeploymentError(
            f"clip: must be a finite number that is at least 0, found {shown(clip)}."
        )
    with client.ledger() as ledger:
        held = keeping.read(client.path, ("model",))
        if held is None or held.words.get("round") != t:
            raise DeploymentError(
                f"round: must be one that this site has trained for, found round {t + 1}. Ask for "
                "its spread first."
            )
        again = _sent_before(held, t, message)
        if again:
            check_follows(ledger, client.path, [t], ledger.history.begun)
        if not again:
            attempt = ledger.began(t, [client.number])
            held = _encrypted(client, held, t, clip, digest(message))
            keeping.write(client.path, held)
            entered(client, ledger, t, attempt, came)
        elif t not in ledger.history.done:  # killed between its state and its ledger
            entered(client, ledger, t, len(ledger.history.attempts_of(t)), came)
        rounds = len(ledger.history.done)
    data = held.tensors["sent"].numpy().tobytes()
    return {"round": t, "ciphertext": data, "rounds": rounds, "again": again}


def judge(client: Client, message: Mapping[str, Any]) -> Message:
    """Catch up, keep the model if it is the last, and tell how good it is where that was agreed."""
    upto = whole(message, "upto", 0, client.agreed.rounds)
    held = caught_up(client, message, upto)
    if isinstance(held, int):
        return {"behind": held}
    if upto == client.agreed.rounds:
        write_model(client.agreed, client.block, _state(client, held), client.folder)
    return {"knows": upto, **_judged(client, held, {**message, "judge": True})}


def caught_up(client: Client, message: Mapping[str, Any], upto: int) -> Kept | int:
    """Return the site's state with the model of so many rounds; of how many it is, if it cannot."""
    held = keeping.read(client.path, ("model",)) or _at_first(client)
    held_before = have = int(held.words["model"])
    if have > upto:
        raise DeploymentError(
            f"round: must come after round {have}, whose sum this site has, found round "
            f"{upto + 1}. The server may have lost its state."
        )
    while have < upto and f"sum{have}" in message:
        held = _stepped(client, held, message, have)
        have += 1
    if have > held_before:
        client.ledger().close()  # begun before any state is kept
        keeping.write(client.path, held)
    return held if have == upto else have


@functools.lru_cache(maxsize=2)
def _crypto(client_key: Any, codec: Any, scheme: str) -> Any:
    """Return what encrypts and decrypts. Nothing is forked: a fork may not use open channels."""
    if scheme == "bfv":
        return SCHEMES[scheme](client_key, codec)  # type: ignore[call-arg]
    from fedpareto.crypto import PaillierClient

    return PaillierClient(client_key, codec, workers=1)


def crypto_of(client: Client) -> Any:
    """Return what the site encrypts and decrypts with, from the key file that sites share."""
    if client.key is None:
        raise DeploymentError(
            "key: must be the file of the key that all sites share, found none. Make one with "
            "fedpareto keys make, hand it to the sites by a way that the server cannot read, and "
            "name it where the site is started."
        )
    scheme = batchcrypt(client.agreed).scheme
    key = _key_of(client)
    found = _crypto(key, codec_of(client.agreed), scheme)
    if scheme != "bfv" and found.codec.count(length_of(client.block)) < FEW:
        return replace(found, construction="textbook")
    return found


def _key_of(client: Client) -> PrivateKey | BfvKey:
    """Return the key that sites share, of the scheme and the bits that were agreed."""
    assert client.key is not None
    if batchcrypt(client.agreed).scheme == "bfv":
        return read_bfv_key(client.key)
    key = read_private_key(client.key)
    check_bits(client.agreed, key.public.bits)
    return key


def _at_first(client: Client) -> Kept:
    """Return the state of a site before the first round."""
    return _with_state(Kept({}, {"model": 0}), start(client.block))


def _state(client: Client, held: Kept) -> State:
    """Return models and what the server would remember, as this site has them."""
    names = sorted(name for name in held.tensors if name.startswith("memory"))
    device = client.block.device
    memory = tuple(held.tensors[name].to(device) for name in names)
    return State(held.tensors["models"].to(device), memory)


def _with_state(held: Kept, state: State) -> Kept:
    tensors = {**held.tensors, "models": state.models}
    tensors |= {f"memory{i:03d}": part for i, part in enumerate(state.server)}
    return Kept(tensors, held.words)


def _stepped(client: Client, held: Kept, message: Mapping[str, Any], t: int) -> Kept:
    """Return the site's state after the step of a round."""
    block = client.block
    state = _state(client, held)
    mean = _mean(client, message, t).to(block.device)[None, None]
    state = step(block, state, mean if block.exists is None else mean * block.exists)
    return _with_state(Kept(held.tensors, {**held.words, "model": t + 1}), state)


def _mean(client: Client, message: Mapping[str, Any], t: int) -> Tensor:
    """Return what the model moves by after a round, [P]: its sum over the contract's divisor."""
    agreed, block = client.agreed, client.block
    summed = taken(message, t)
    out = torch.zeros(block.stack.size)
    if not summed.count:
        return out
    least = least_summed(agreed)
    if summed.count < least:  # of fewer, single uploads could be told
        raise DeploymentError(
            f"sum of round {t + 1}: must be of at least {least} uploads, as was agreed, found "
            f"{summed.count}."
        )
    crypto = crypto_of(client)
    total = crypto.server.read(summed.data)
    length = length_of(block)
    if (total.terms, total.length) != (summed.count, length):
        raise DeploymentError(
            f"sum of round {t + 1}: must be {summed.count} uploads of {length} numbers, as the "
            f"server says, found {total.terms} of {total.length}."
        )
    sums = crypto.decrypt(total, label_of(agreed, t, summed.clip))
    mean = dequantise(sums, summed.clip, crypto.codec.magnitude, summed.count)
    out[_places(client)] = torch.from_numpy(mean).float()
    divisor = float(agreed.terms.divisor(float(summed.count), agreed.cohort))
    return out * (summed.count / divisor)


def _places(client: Client) -> Any:
    """Return which parameters there are."""
    exists = client.block.exists
    return slice(None) if exists is None else exists[0, 0].cpu().nonzero()[:, 0]


def _trained(client: Client, held: Kept, t: int, came: int) -> Kept:
    """Return the state with what was trained for a round, and the draws that will round it."""
    model = held.tensors["models"][0, 0]
    values, rest, noise = trained(client, model, held, t, came)
    kept = {name: tensor for name, tensor in held.tensors.items() if name != "sent"}
    draws = noise.uniform(client.block.stack.size)[0]
    words = {"model": held.words["model"], "round": t}
    return Kept({**kept, **rest, "values": values, "draws": draws}, words)


def _encrypted(client: Client, held: Kept, t: int, clip: float, asked: str) -> Kept:
    """Return the state with the bytes that are sent for a round."""
    crypto = crypto_of(client)
    values, draws = (held.tensors[name][_places(client)] for name in ("values", "draws"))
    numbers = quantise(values.double().numpy(), clip, crypto.codec.magnitude, draws.numpy())
    data = crypto.encrypt(numbers, label_of(client.agreed, t, clip)).to_bytes()
    sent = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
    return Kept({**held.tensors, "sent": sent}, {**held.words, "asked": asked})


def _sent_before(held: Kept, t: int, message: Mapping[str, Any]) -> bool:
    """Say whether this was sent for the round before; refuse to send something else for it."""
    if "asked" not in held.words:
        return False
    if held.words["asked"] != digest(message):
        raise DeploymentError(
            f"round: must be asked for once, found another clip or cohort for round {t + 1}, which "
            "this site has answered. Two unlike uploads of one round tell more than one."
        )
    return True


def _judged(client: Client, held: Kept, message: Mapping[str, Any]) -> Message:
    """Return how good the site's model is, where that is asked for."""
    return judged(client, held.tensors["models"][0, 0]) if message.get("judge") else {}


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


ANSWERS = {"spread": spread, "encrypt": encrypt, "judge": judge}

"""Encrypted sums in a deployment: the same model as without encryption, and a server that cannot read."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from replayed import REPLAY, World, study_of

from fedpareto.crypto import (
    BfvClient,
    BfvCodec,
    BfvKey,
    PrivateKey,
    write_private_key,
    write_public_key,
)
from fedpareto.deploy import encrypted_client, encrypted_server
from fedpareto.deploy.encrypted import Summed, clip_of, spread_of, taken
from fedpareto.deploy.progress import there
from fedpareto.errors import DeploymentError

KEYS = {"bfv": BfvKey.generate(), "paillier": PrivateKey.generate(2048)}
BATCHCRYPT = {"name": "batchcrypt", "encryption_batch": 100}
CASES = {
    "bfv": {"mechanism": {**BATCHCRYPT, "scheme": "bfv"}},
    "paillier": {"mechanism": BATCHCRYPT, "model": {"name": "mlp", "hidden": [4]}, "training": {"rounds": 2}},
    "damgard-jurik": {"mechanism": {**BATCHCRYPT, "degree": 2}, "model": {"name": "mlp", "hidden": [2]}, "training": {"rounds": 2}},
    "poisson": {"mechanism": {**BATCHCRYPT, "scheme": "bfv"}, "training": {"sampling": "poisson", "sample_ratio": 0.3, "rounds": 5},
                "server": {"name": "momentum"}},
    "chain": {"mechanism": {"name": "chain", "links": [{"name": "sparsification", "private_fraction": 0.3, "connection_probability": 0.7},
                                                       {**BATCHCRYPT, "scheme": "bfv"}]}, "server": {"name": "adam"}},
}


@pytest.fixture
def in_a_test(monkeypatch):
    monkeypatch.setenv(REPLAY, "in a test")


def keys_of(folder, scheme):
    key = folder / "key"
    if not key.exists():
        write_private_key(KEYS[scheme], key)
        write_public_key(KEYS[scheme].public, folder / "key.pub")
    return key


def world_of(folder, case="bfv", replay=True, **options):
    scheme = "paillier" if case in ("paillier", "damgard-jurik") else "bfv"
    folder.mkdir(exist_ok=True)
    return World(study_of(folder, **CASES[case]), folder, replay=replay, key=keys_of(folder, scheme), options=options)


class Clear:
    """Sums without encryption, in the words of a scheme: what is sent are the whole numbers themselves."""

    def __init__(self, codec):
        self.codec, self.server = codec, self

    def encrypt(self, values, label=""):
        return ClearSum(1, values, label)

    def read(self, data):
        count, label = data[:8], data[8:300].rstrip(b" ").decode()
        return ClearSum(int.from_bytes(count, "big"), np.frombuffer(data[300:], np.int64), label)

    def add(self, a, b):
        assert a.label == b.label
        return ClearSum(a.terms + b.terms, a.values + b.values, a.label)

    def decrypt(self, total, label=""):
        assert total.label == label
        return total.values


class ClearSum:
    def __init__(self, terms, values, label):
        self.terms, self.values, self.label, self.length = terms, values, label, len(values)

    def to_bytes(self):
        return self.terms.to_bytes(8, "big") + self.label.encode().ljust(292) + self.values.astype(np.int64).tobytes()


def same(a, b):
    return a.keys() == b.keys() and all((a[name] == b[name]).all() for name in a)


@pytest.mark.parametrize("case", CASES)
def test_the_encrypted_model_is_that_of_plain_sums_bit_for_bit_and_the_simulations(case, tmp_path, in_a_test, monkeypatch):
    world = world_of(tmp_path / "encrypted", case)
    progress = world.serve()
    weights, errors = world.simulated()
    assert [of["test_error"] for of in progress.measures] == errors
    models = [world.weights(f"client{k}") for k in range(5)]
    assert all(same(models[0], other) for other in models[1:])
    for name, expected in weights.items():
        assert (models[0][name] - expected).abs().max() < 1e-5, name
    assert not (tmp_path / "encrypted" / "server" / "model.safetensors").exists()
    plain = world_of(tmp_path / "plain", case)
    clear = Clear(encrypted_client.codec_of(plain.agreed))
    monkeypatch.setattr(encrypted_client, "crypto_of", lambda client: clear)
    monkeypatch.setattr(encrypted_server, "adder_of", lambda server: clear)
    plain.serve()
    assert same(plain.weights("client3"), models[0])


def test_without_replay_every_site_has_one_model(tmp_path):
    world = world_of(tmp_path / "a", replay=False)
    assert world.serve().done
    assert all(same(world.weights("client0"), world.weights(f"client{k}")) for k in range(1, 5))


def test_the_server_is_sent_no_model_and_keeps_none(tmp_path):
    """What it has on disk and is sent: bytes of ciphertexts, and two numbers of each site."""
    world = world_of(tmp_path / "a", replay=False)
    sent = []
    world.here.spoil = lambda k, message, answer: sent.append(answer) or answer
    world.serve()
    names = {name for answer in sent for name in answer}
    assert names == {"client", "round", "knows", "squares", "largest", "records", "wrong", "loss", "ciphertext", "rounds", "again", "behind"} - (
        set() if any("behind" in a for a in sent) else {"behind"})
    on_disk = {p.relative_to(tmp_path / "a" / "server").as_posix() for p in (tmp_path / "a" / "server").rglob("*") if p.is_file()}
    assert on_disk == {"ledger.jsonl", "model.md", "progress.json", "server.safetensors", "sums/0.sum", "sums/1.sum", "sums/2.sum"}


def test_sites_that_missed_rounds_catch_up(tmp_path, in_a_test, monkeypatch):
    """Also over more sums than one message carries, and after a site has lost its state."""
    monkeypatch.setattr(encrypted_server, "MOST_SUMS", 1)
    whole = world_of(tmp_path / "whole")
    whole.serve()
    world = world_of(tmp_path / "lost")
    lost = []

    def forgets(k, message, answer):
        if message["do"] == "encrypt" and message["round"] == 1 and k not in lost:
            lost.append(k)
            (tmp_path / "lost" / f"client{k}" / "client.safetensors").unlink()
        return answer

    world.here.spoil = forgets
    world.serve()
    assert lost
    assert all(same(world.weights(f"client{k}"), whole.weights("client0")) for k in range(5))


@pytest.mark.parametrize("moment", ["spread", "encrypt", "after"])
def test_a_killed_server_goes_on_and_ends_with_the_same_model(tmp_path, in_a_test, moment):
    whole = world_of(tmp_path / "whole")
    whole.serve()
    world = world_of(tmp_path / "killed")
    count = []

    class Killed(Exception):
        pass

    def kill(k, message, answer):
        count.append((message["do"], message.get("round")))
        if count.count((moment, 1)) == 2:
            raise Killed
        return answer

    def after(progress):
        if moment == "after" and progress.rounds == 2:
            raise Killed

    world.here.spoil = kill
    with pytest.raises(Killed):
        world.serve(after)
    world.here.spoil = None
    assert world.serve().done
    assert same(world.weights("client1"), whole.weights("client1"))
    from fedpareto.deploy.ledger import read

    history = read(tmp_path / "killed" / "server" / "ledger.jsonl")
    assert history.done == {0, 1, 2}
    for k in range(5):
        mine = read(tmp_path / "killed" / f"client{k}" / "ledger.jsonl") if (tmp_path / "killed" / f"client{k}" / "ledger.jsonl").exists() else None
        assert mine is None or all(len(mine.attempts_of(t)) <= 1 for t in range(3))  # nothing was sent twice anew


def spoiled(folder, spoil, **options):
    world = world_of(folder, **options)
    world.here.spoil = spoil
    return world


OTHER = BfvKey.generate()


def foreign(k, message, answer):
    if "ciphertext" not in answer:
        return answer
    client = BfvClient(OTHER, BfvCodec(3))
    return {**answer, "ciphertext": client.encrypt(np.zeros(1210, np.int64)).to_bytes()}


@pytest.mark.parametrize(("spoil", "message"), [
    (foreign, r"must be of the key \w{8}, found one of the key"),
    (lambda k, m, a: {**a, "ciphertext": a["ciphertext"][:-7]} if "ciphertext" in a else a, "the checksum must fit"),
    (lambda k, m, a: {**a, "ciphertext": "text"} if "ciphertext" in a else a, "must be bytes, found str"),
    (lambda k, m, a: {**a, "squares": math.nan} if "squares" in a else a, "must be two finite numbers that are at least 0, found nan"),
    (lambda k, m, a: {**a, "squares": 1e30} if "squares" in a else a, "must add up to between one and all times"),
    (lambda k, m, a: {**a, "round": 2} if "ciphertext" in a else a, "round: must be a whole number from 0 to 0, found 2"),
    (lambda k, m, a: {"client": k, "refused": "no"}, "the site refused: 'no'"),
], ids=range(7))
def test_a_malicious_upload_is_refused_by_name_and_nothing_is_lost(tmp_path, spoil, message):
    from safetensors.torch import load_file  # noqa: F401

    bad = []

    def one(k, m, a):
        if not bad:
            bad.append(k)
        return spoil(k, m, a) if k == bad[0] else a

    world = spoiled(tmp_path / "w", one, replay=False)
    with pytest.raises(DeploymentError, match=rf"round 1: must be answered by all but 0 of the 3 sites asked, found 1 missing. site \d: .*{message}"):
        world.serve()
    world.here.spoil = None
    assert world.serve().done


def test_with_dropouts_agreed_a_bad_upload_is_left_out_and_the_run_goes_on(tmp_path):
    bad = []

    def one(k, m, a):
        bad.append(k) if not bad and "ciphertext" in a else None
        return foreign(k, m, a) if bad and k == bad[0] else a

    world = spoiled(tmp_path / "w", one, replay=False, dropouts=1)
    progress = world.serve()
    assert progress.done
    assert any("found one of the key" in why for why in progress.refused)
    others = [k for k in range(5) if k != bad[0]]
    assert all(same(world.weights(f"client{k}"), world.weights(f"client{others[0]}")) for k in others)


def test_an_upload_that_is_sent_again_or_copied_counts_once(tmp_path):
    """A site that answers twice, and one that sends another's bytes as its own."""
    seen = {}

    def twice(k, m, a):
        if "ciphertext" not in a or m["round"]:
            return a
        seen[k] = a["ciphertext"]
        first = next(iter(seen.values()))
        return [a, a] if len(seen) < 3 else {**a, "ciphertext": first}

    world = spoiled(tmp_path / "w", twice, replay=False, dropouts=1)
    assert world.serve().done
    why = " ".join(encrypted_refusals(world))
    assert "answer: must come once, found a second one" in why
    assert "every upload must be in a sum once, found 1 more than once" in why


def encrypted_refusals(world):
    from fedpareto.deploy.progress import there

    return there(world.folder / "server").refused


def lies(folder, change, **options):
    """Run a deployment whose server lies, by changing what it asks; return what sites said to it."""
    world = world_of(folder, replay=False, **options)
    said = []
    ask = world.here.ask

    def lying(requests, patience):
        for k, answer in ask({k: change(k, dict(m)) for k, m in requests.items()}, patience):
            said.append(answer.get("refused"))
            yield k, answer

    world.here.ask = lying
    with pytest.raises(DeploymentError):
        world.serve()
    return next(text for text in said if text)


def with_sum(change):
    def changed(k, message):
        for name in list(message):
            if name.startswith("sum0"):
                message |= change(message)
        return message
    return changed


@pytest.mark.parametrize(("change", "message"), [
    (with_sum(lambda m: {"count0": 2}), "must be of at least 3 uploads, as was agreed, found 2"),
    (with_sum(lambda m: {"count0": 4}), "must be 4 uploads of 1210 numbers, as the server says, found 3"),
    (with_sum(lambda m: {"clip0": m["clip0"] * 2}), "the stamp must fit the sum of 3 uploads with the label"),
    (with_sum(lambda m: {"clip0": math.inf}), "must be bytes, with a count and a finite clip"),
    (with_sum(lambda m: {"sum0": m["sum0"][:-1]}), "the checksum must fit"),
    (lambda k, m: {**m, "clip": m["clip"] * (1 + k)} if "clip" in m else m, "the stamp must fit the sum"),
    (lambda k, m: {**m, "clip": math.nan} if "clip" in m else m, "clip: must be a finite number"),
    (lambda k, m: {**m, "came": 2} if "came" in m else m, "came: must be a whole number from 3 to 3, found 2"),
    (lambda k, m: {**m, "round": m["round"] + 5} if "round" in m else m, "round: must be a whole number from 0 to 2, found 5"),
    (lambda k, m: {**m, "do": "train"}, "do: must be one of hello, spread, encrypt, judge, found 'train'"),
], ids=range(10))
def test_a_lying_server_is_found_out(tmp_path, change, message):
    assert message in lies(tmp_path / "w", change)


def test_a_server_that_asks_for_a_second_upload_of_a_round_is_refused(tmp_path):
    from fedpareto.deploy.client import answer
    from fedpareto.deploy.messages import request

    world = world_of(tmp_path / "w", replay=False)
    site = world.here.clients[0]

    def ask(do, **rest):
        return answer(site, request(world.agreed, do, round=0, came=3, **rest))

    assert "Ask for its spread first" in ask("encrypt", clip=0.1)["refused"]
    first = ask("spread")
    assert ask("spread") == first
    sent = ask("encrypt", clip=0.1)
    assert ask("encrypt", clip=0.1) == {**sent, "again": True}
    assert "must be asked for once, found another clip or cohort for round 1" in ask("encrypt", clip=0.2)["refused"]


def test_keys_are_asked_for_by_name(tmp_path):
    world = world_of(tmp_path / "w", replay=False)
    public = tmp_path / "w" / "key.pub"
    for key, message in ((None, "key: must be the file of the key that all sites share, found none"), (public, "a private key must be readable by its owner alone, found mode 644")):
        world.key = key
        client = world.client(0)
        world.key = tmp_path / "w" / "key"
        world.here.clients[0] = client
        said = lies_not(world)
        assert message in said
    world.key = tmp_path / "w" / "none"
    with pytest.raises(Exception, match=r"found: No such file"):
        world.serve()
    world.key = None
    with pytest.raises(DeploymentError, match=r"public key: must be the .pub file of the key that sites share, found none"):
        world.serve()


def test_a_key_of_other_bits_than_agreed_is_refused_at_both_sides_with_the_command_that_makes_one(tmp_path):
    world = world_of(tmp_path / "w", "paillier", replay=False)
    other = PrivateKey.generate(2112)
    for path, write, key in ((world.key, write_private_key, other), (world.key.with_name("key.pub"), write_public_key, other.public)):
        path.rename(path.with_name("kept"))
        write(key, path)
        with pytest.raises(DeploymentError, match=r"key: must have 2048 bits, as was agreed, found 2112. Make one with fedpareto keys make sums.key --bits 2048"):
            world.serve()
        assert "must have 2048 bits" in there(world.server.folder).why
        path.unlink()
        path.with_name("kept").rename(path)
    assert world.serve().done


def lies_not(world):
    from fedpareto.deploy.client import answer
    from fedpareto.deploy.messages import request

    site = world.here.clients[0]
    answer(site, request(world.agreed, "spread", round=0, came=3))
    return answer(site, request(world.agreed, "encrypt", round=0, came=3, clip=0.1))["refused"]


def test_a_server_that_is_given_the_private_key_refuses_it(tmp_path):
    world = world_of(tmp_path / "w", replay=False)
    os.replace(tmp_path / "w" / "key", tmp_path / "w" / "other.pub")
    world.key = tmp_path / "w" / "other"
    with pytest.raises(Exception, match="must hold a BFV public key, found a BFV secret key"):
        world.serve()


def test_the_clip_is_that_of_the_simulation():
    rng = np.random.default_rng(0)
    updates = rng.normal(size=(3, 500))
    spreads = [(float((x**2).sum()), float(abs(x).max())) for x in updates]
    from fedpareto.crypto import clip_ratio

    assert clip_of(spreads, 500, 100) == pytest.approx(clip_ratio(100.0) * np.sqrt((updates**2).mean()))
    assert clip_of([(0.0, 0.0)], 500, 100) == 0.0
    assert clip_of([], 500, 100) == 0.0


@pytest.mark.parametrize("change", [{"count3": True}, {"count3": 0}, {"clip3": -1.0}, {"sum3": b""}, {"sum3": None}, {"count3": None}])
def test_a_sum_that_is_none_is_refused(change):
    message = {**Summed(2, 0.5, b"x").put(3), **change}
    with pytest.raises(DeploymentError, match="sum of round 4: must be bytes, with a count and a finite clip"):
        taken(message, 3)
    assert taken(Summed(2, 0.5, b"x").put(3), 3) == Summed(2, 0.5, b"x")


def test_a_spread_must_be_possible():
    for squares, largest in ((1.0, 2.0), (100.0, 1.0), (-1.0, 1.0), (1e300, 1e150)):
        with pytest.raises(DeploymentError, match="spread: "):
            spread_of({"squares": squares, "largest": largest}, 50)
    assert spread_of({"squares": 2.0, "largest": 1.0}, 50) == (2.0, 1.0)

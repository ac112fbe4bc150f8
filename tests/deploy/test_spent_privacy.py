"""What a deployment enters into its ledgers is what was really done, and nothing of it can be forgotten."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from replayed import World, study_of
from test_ledger_prices import POISSON, history_of

from fedpareto.crypto import BfvKey, write_private_key, write_public_key
from fedpareto.deploy import server as servers
from fedpareto.deploy.client import answer
from fedpareto.deploy.ledger import read
from fedpareto.deploy.messages import packed, request
from fedpareto.deploy.pricing import price, terms_of
from fedpareto.errors import DeploymentError
from fedpareto.privacy import Privacy

WIDE = {"name": "mlp", "hidden": [64]}  # parameters enough to measure a spread


def world_of(folder, **changed):
    folder.mkdir(exist_ok=True)
    return World(study_of(folder, **changed), folder, replay=False)


def ask(world, k, t, came, do="train"):
    model = packed(world.here.clients[k].block.initial[0, 0])
    return answer(world.here.clients[k], request(world.agreed, do, round=t, came=came, model=model))


@pytest.mark.parametrize(("sampling", "came"), [("fixed", 3), ("poisson", 1), ("poisson", 5)])
def test_the_noise_in_the_ledger_is_the_noise_in_the_upload(tmp_path, sampling, came):
    """An upload of almost no training is noise alone; its spread is measured."""
    world = world_of(tmp_path / "w", model=WIDE, training={"sampling": sampling, "learning_rate": 1e-9})
    sent = ask(world, 0, 0, came)
    values = np.frombuffer(sent["values"], "<f4")
    (entered,) = read(tmp_path / "w" / "client0" / "ledger.jsonl").attempts[-1].noise
    assert values.std() == pytest.approx(entered, rel=5 / np.sqrt(2 * len(values)))


def test_the_servers_ledger_has_the_noise_of_the_sites(tmp_path):
    world = world_of(tmp_path / "w", training={"sampling": "poisson", "sample_ratio": 0.5, "rounds": 6})
    world.serve()
    sites = {k: read(p).attempts for k in range(5) if (p := tmp_path / "w" / f"client{k}" / "ledger.jsonl").exists()}
    for one in read(tmp_path / "w" / "server" / "ledger.jsonl").attempts:
        mine = {k: next(a.noise[0] for a in sites[k] if a.round == one.round) for k in one.answered}
        assert list(mine.values()) == list(one.noise)


def test_a_site_that_lost_what_it_sent_sends_nothing_else_for_that_round(tmp_path):
    world = world_of(tmp_path / "w")
    assert "refused" not in ask(world, 0, 0, 3)
    (tmp_path / "w" / "client0" / "client.safetensors").unlink()
    for t in (0, 0):
        assert "which this site has answered by its ledger, found round 1, and what was sent is lost" in ask(world, 0, t, 3)["refused"]
    assert "refused" not in ask(world, 0, 1, 3)


@pytest.mark.parametrize("party", ["server", "client1"])
def test_a_party_that_lost_its_ledger_does_not_begin_another(tmp_path, party):
    world = world_of(tmp_path / "w", training={"sample_ratio": 1.0, "rounds": 3})

    class Killed(Exception):
        pass

    def kill(progress):
        raise Killed

    with pytest.raises(Killed):
        world.serve(kill)
    (tmp_path / "w" / party / "ledger.jsonl").unlink()
    with pytest.raises(DeploymentError, match=r"must be beside \w+.safetensors, found none: what was spent so far would be forgotten"):
        world.serve()


class Killed(Exception):
    pass


def two_rounds(world, keep=None):
    """Run two rounds; keep a copy of all parties' folders after the first."""

    def say(progress):
        if progress.rounds == 1:
            shutil.copytree(world.folder, keep)
        else:
            raise Killed

    with pytest.raises(Killed):
        world.serve(say)
    world.here.clients = [world.client(k) for k in range(world.agreed.clients)]  # other processes


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("party", ["server", "client1"])
def test_an_older_copy_of_a_ledger_is_refused_beside_a_newer_state(tmp_path, party, encrypted):
    """It would state a smaller ε than was spent."""
    changed, key = {}, None
    if encrypted:
        key = tmp_path / "key"
        made = BfvKey.generate()
        write_private_key(made, key)
        write_public_key(made.public, tmp_path / "key.pub")
        changed = {"mechanism": {"name": "batchcrypt", "scheme": "bfv"}, "model": {"name": "mlp", "hidden": [4]}}
    (tmp_path / "w").mkdir()
    study = study_of(tmp_path / "w", training={"sample_ratio": 1.0, "rounds": 4}, data={"clients": 3}, **changed)
    world = World(study, tmp_path / "w", replay=False, key=key)
    two_rounds(world, tmp_path / "kept")
    ledger = f"{party}/ledger.jsonl"
    newest = (tmp_path / "w" / ledger).read_bytes()
    (tmp_path / "w" / ledger).write_bytes((tmp_path / "kept" / ledger).read_bytes())
    with pytest.raises(DeploymentError, match="beside it does, found nothing of round 2: an older copy, which forgets what was spent"):
        world.serve()
    (tmp_path / "w" / ledger).write_bytes(newest)
    assert world.serve().done
    for of in price(tmp_path / "w" / "server" / "ledger.jsonl").values():
        assert of["epsilon"] == of["planned"]


def test_a_server_that_lost_its_state_asks_nobody_again(tmp_path):
    """Nobody would answer, and its ledger would count what was never sent."""
    world = world_of(tmp_path / "w", training={"sample_ratio": 1.0, "rounds": 4})
    two_rounds(world, tmp_path / "kept")
    spent = price(tmp_path / "w" / "server" / "ledger.jsonl")
    (tmp_path / "w" / "server" / "server.safetensors").rename(tmp_path / "newest")
    with pytest.raises(DeploymentError, match=r"server\.safetensors: must be of round 1 at least, as its ledger is, found it of round 0: an older copy, or lost"):
        world.serve()
    assert price(tmp_path / "w" / "server" / "ledger.jsonl") == spent
    (tmp_path / "newest").rename(tmp_path / "w" / "server" / "server.safetensors")
    assert world.serve().done


def test_a_server_whose_folder_is_an_older_copy_is_found_out_by_the_sites(tmp_path, monkeypatch):
    """Its ledger does not know whom it asked since; the sites know how often they have answered."""
    drawn = iter([[0, 1, 2], [0, 1, 2], [2, 3, 4], [0, 1, 3]])
    monkeypatch.setattr(servers, "drawn_by_system", lambda agreed: next(drawn))
    world = world_of(tmp_path / "w", training={"rounds": 4})
    two_rounds(world, tmp_path / "kept")
    shutil.rmtree(tmp_path / "w" / "server")
    shutil.copytree(tmp_path / "kept" / "server", tmp_path / "w" / "server")
    with pytest.raises(DeploymentError, match=r"round 3: .* site 0: rounds: must be at most 2, in which this server's ledger has asked the site, found that it has answered in 3"):
        world.serve()


def test_a_clients_limit_is_its_own_ledger(tmp_path):
    """A server that asks for one round after another, and from the start again: a site answers each once."""
    world = world_of(tmp_path / "w")
    taken = [t for t in (0, 1, 2, 0, 1, 2, 3, 7, -1) if "refused" not in ask(world, 0, t, 3)]
    assert taken == [0, 1, 2, 2]  # the last again, the same bytes
    assert price(tmp_path / "w" / "client0" / "ledger.jsonl")["server"]["epsilon"] == world.agreed.planned["server"]


def test_a_round_summed_twice_with_noise_of_the_server_is_not_taken_for_one():
    held = terms_of(POISSON, Privacy(), 4, 1e-5)
    first = (0, [1, 2], [1, 2], [1.3, 1.3], {})
    second = (0, [1, 2], [1, 2], [1.3, 1.3], {"again": [1, 2], "server_noise": 0.9})
    once = price(history_of(held, [first]), ["secagg"])["secagg"]["epsilon"]
    assert price(history_of(held, [first, second]), ["secagg"])["secagg"]["epsilon"] > once


def test_what_a_site_keeps_is_its_owners_alone(tmp_path):
    """Its state holds updates before they are protected."""
    world = world_of(tmp_path / "w")
    ask(world, 0, 0, 3)
    assert (tmp_path / "w" / "client0").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("odd", [{"wrong": float("nan")}, {"wrong": -5.0}, {"wrong": 1e9}, {"loss": float("inf")}, {"records": -3}, {"records": 10**13}, {"loss": "low"}])
def test_counts_that_cannot_be_are_left_out_of_the_measures(tmp_path, odd):
    world = world_of(tmp_path / "w", training={"rounds": 1})
    world.here.spoil = lambda k, m, a: {**a, **odd} if k == 1 and "records" in a else a
    assert [of["sites"] for of in world.serve().measures] == [4]

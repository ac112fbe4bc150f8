"""Whoever is killed goes on where it was: the model is that of an undisturbed run, privacy is spent once."""

from __future__ import annotations

import pytest
from replayed import REPLAY, World, study_of

from fedpareto.deploy import kept as keeping
from fedpareto.deploy import ledger, server
from fedpareto.deploy.client import answer
from fedpareto.deploy.pricing import price
from fedpareto.errors import DeploymentError


class Killed(Exception):
    pass


CASES = {
    "fixed": {"training": {"sample_ratio": 1.0}},
    "poisson": {"training": {"sampling": "poisson", "sample_ratio": 0.9}},
    "private values": {"mechanism": {"name": "sparsification", "private_fraction": 0.3}, "server": {"name": "momentum"}},
}


@pytest.fixture
def world(tmp_path, monkeypatch, request):
    monkeypatch.setenv(REPLAY, "in a test")
    case = CASES[getattr(request, "param", "fixed")]
    return World(study_of(tmp_path, data={"clients": 4}, **case), tmp_path)


def same_as_simulated(world):
    weights, _ = world.simulated()
    found = world.weights()
    assert all((found[name] - expected).abs().max() < 1e-5 for name, expected in weights.items())


def price_is_the_plan(world):
    prices = price(world.folder / "server" / "ledger.jsonl")
    assert all(of["epsilon"] == of["planned"] for of in prices.values()), prices


@pytest.mark.parametrize("world", CASES, indirect=True)
@pytest.mark.parametrize("place", ["before anybody answers", "while sites answer", "before the ledger", "before the state"])
def test_a_killed_server_goes_on_and_spends_nothing_twice(world, place, monkeypatch):
    """Killed in the second round at each step of it, started again: same model, same ledger."""

    def kill(*args, **rest):
        raise Killed

    with monkeypatch.context() as patch:
        if place in ("before anybody answers", "while sites answer"):
            count = 0 if place == "before anybody answers" else 1
            seen = []

            def spoil(k, message, said):
                seen.append(message.get("round"))
                if message.get("round") == 1 and seen.count(1) > count:
                    raise Killed
                return said

            world.here.spoil = spoil
        elif place == "before the ledger":
            enter = server._enter
            patch.setattr(server, "_enter", lambda s, book, t, *rest: kill() if t == 1 else enter(s, book, t, *rest))
        else:
            write = server._write
            patch.setattr(server, "_write", lambda s, state, p: kill() if p.rounds == 2 else write(s, state, p))
        with pytest.raises(Killed):
            world.serve()
    world.here.spoil = None
    world.here.clients = [world.client(k) for k in range(4)]  # new processes
    assert world.serve().done
    same_as_simulated(world)
    price_is_the_plan(world)


@pytest.mark.parametrize("step", ["before it keeps its state", "before its ledger", "after its ledger"])
def test_a_killed_site_goes_on_and_spends_nothing_twice(world, step, monkeypatch):
    killed = []

    def once(t):
        if t == 1 and not killed:
            killed.append(t)
            raise Killed

    write, ended = keeping.write, ledger.Ledger.ended

    def ask(requests, patience):  # as Flower's sites do: ask again where there was no answer
        for k, message in requests.items():
            for _ in range(2):
                try:
                    said = answer(world.client(k), message)
                except Killed:
                    continue
                if step == "after its ledger" and message.get("round") == 1 and not killed:
                    killed.append(1)
                    continue
                yield k, said
                break

    if step == "before it keeps its state":
        monkeypatch.setattr(keeping, "write", lambda path, kept: (path.name == "client.safetensors" and once(kept.words["round"]), write(path, kept)))
    if step == "before its ledger":
        monkeypatch.setattr(ledger.Ledger, "ended", lambda self, t, *a, **r: (self.history.header["side"] == "client" and once(t), ended(self, t, *a, **r)))
    monkeypatch.setattr(world.here, "ask", ask)
    assert world.serve().done
    assert killed
    same_as_simulated(world)
    price_is_the_plan(world)
    for k in range(4):
        found = price(world.folder / f"client{k}" / "ledger.jsonl")["server"]
        if step != "before it keeps its state":
            assert found["epsilon"] == found["planned"]
        else:  # what it drew before it was killed never left; its own ledger counts it all the same
            assert found["epsilon"] >= found["planned"]


def test_dropouts_beyond_the_plan_stop_the_run_and_it_goes_on_when_they_are_back(world):
    world.here.down = {2}
    with pytest.raises(DeploymentError, match=r"round 1: must be answered by all but 0 of the 4 sites asked, found 1 missing. site 2: no answer"):
        world.serve()
    world.here.down = set()
    assert world.serve().done
    same_as_simulated(world)
    price_is_the_plan(world)


def test_dropouts_beyond_the_plan_raise_epsilon_where_that_was_chosen(tmp_path):
    study = study_of(tmp_path, training={"sample_ratio": 1.0}, data={"clients": 4})
    world = World(study, tmp_path, replay=False, options={"beyond": "raise"})
    world.here.down = {2}
    progress = world.serve()
    assert progress.done
    assert progress.answered == (3, 3, 3)
    prices = price(tmp_path / "server" / "ledger.jsonl")
    assert prices["secagg"]["epsilon"] > prices["secagg"]["planned"]
    assert prices["server"]["epsilon"] == prices["server"]["planned"]


def test_dropouts_that_were_planned_cost_nothing_more(tmp_path):
    study = study_of(tmp_path, training={"sample_ratio": 1.0}, data={"clients": 4}, privacy={"view": "secagg", "dropouts": 1})
    world = World(study, tmp_path, replay=False)
    world.here.down = {2}
    assert world.serve().done
    assert world.agreed.dropouts == 1
    price_is_the_plan(world)


def test_nobody_in_a_round_of_a_fixed_cohort_stops_it_always(tmp_path):
    world = World(study_of(tmp_path), tmp_path, replay=False, options={"beyond": "raise"})
    world.here.down = set(range(5))
    with pytest.raises(DeploymentError, match="must be answered by all but 0 of the 3 sites asked, found 3 missing"):
        world.serve()

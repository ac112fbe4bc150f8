"""Whoever goes by other terms is refused by name, on either side, and nothing is lost."""

from __future__ import annotations

import dataclasses
import json
import time

import numpy as np
import pytest
from replayed import World, study_of

from fedpareto.deploy import deployment, met
from fedpareto.deploy.client import answer
from fedpareto.deploy.deployment import Deployment
from fedpareto.deploy.messages import packed, request
from fedpareto.deploy.party import Client
from fedpareto.deploy.progress import there
from fedpareto.deploy.site import Site, site_of_file
from fedpareto.errors import DataError, DeploymentError


@pytest.fixture
def world(tmp_path):
    return World(study_of(tmp_path, training={"rounds": 2, "sample_ratio": 1.0}, data={"clients": 3}), tmp_path, replay=False)


def asking(world, **changed):
    model = packed(world.here.clients[0].block.initial[0, 0])
    return {**request(world.agreed, "train", round=0, came=3, model=model, judge=False), **changed}


REFUSED = {
    "other settings": ({"deployment": "0" * 64}, "deployment: must be the one agreed, .*found that the server goes by '00000"),
    "an old message": ({"time": 0.0}, "clock: must differ by at most 300 seconds, found that the clock of the server differs by -"),
    "no time": ({"time": "now"}, "clock: must differ by at most 300 seconds"),
    "an unknown wish": ({"do": "tell"}, "do: must be one of .*train.*, found 'tell'"),
    "more rounds": ({"round": 2}, "round: must be a whole number from 0 to 1, found 2"),
    "a larger cohort": ({"came": 4}, "came: must be a whole number from 3 to 3, found 4"),
    "a smaller cohort": ({"came": 2}, "came: must be a whole number from 3 to 3, found 2"),
    "a wrong model": ({"model": b"\0" * 8}, r"model: must be \d+ numbers of 32 bits, \d+ bytes, found 8 bytes"),
    "no model": ({"model": None}, "model: must be .* found None"),
    "a model of nan": ({"model": None, "nan": True}, "model: must be finite numbers, found nan or infinity"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_site_refuses_what_was_not_agreed(case, world):
    changed, why = REFUSED[case]
    message = asking(world, **changed)
    if message.pop("nan", False):
        message["model"] = packed(world.here.clients[0].block.initial[0, 0] * float("nan"))
    said = answer(world.client(0), message)
    assert set(said) == {"client", "refused"}
    with pytest.raises(DeploymentError, match=why):
        raise DeploymentError(said["refused"])
    assert not (world.folder / "client0" / "client.safetensors").exists()
    assert answer(world.client(0), asking(world))["values"]  # it takes part as if nothing had been


def test_a_site_answers_once_for_a_round_and_sends_the_same_bytes_again(world):
    client = world.client(0)
    message = asking(world)
    first = answer(client, message)
    assert answer(client, {**message, "time": time.time()})["values"] == first["values"]
    other = packed(client.block.initial[0, 0] + 1)
    assert "round: must be asked for once, found another model or cohort for round 1" in answer(client, asking(world, model=other))["refused"]
    assert answer(client, asking(world, round=1))["values"] != first["values"]
    assert "round: must come after round 2, which this site has answered, found round 1" in answer(client, message)["refused"]


def test_a_site_refuses_to_be_asked_far_more_often_than_was_agreed(tmp_path):
    study = study_of(tmp_path, training={"rounds": 40, "sample_ratio": 0.02}, data={"clients": 50})
    world = World(study, tmp_path, replay=False)
    client = world.client(7)
    for t in range(40):
        said = answer(client, asking(world, round=t, came=1))
        if "refused" in said:
            break
    assert t == 5  # six of six rounds at a share of 1/50 happen once in 10^10
    assert "cohort: must be a share of 0.02 of all clients in each round, found this site asked in 6 of 6" in said["refused"]


def test_a_damaged_state_is_not_begun_anew(world):
    client = world.client(0)
    answer(client, asking(world))
    client.path.write_bytes(client.path.read_bytes()[:100])
    assert "must hold the state that was written, found damage" in answer(client, asking(world))["refused"]


def test_a_client_has_a_number_of_its_own(world):
    with pytest.raises(DeploymentError, match="client: must be a number from 0 to 2, found 3"):
        world.client(3)


def values_of(world, scale):
    return packed(world.here.clients[0].block.initial[0, 0] * 0 + scale)


SPOILT = {
    "nan": (lambda w, a: {**a, "values": values_of(w, float("nan"))}, "values: must be finite numbers, found nan"),
    "too long": (lambda w, a: {**a, "values": values_of(w, 1e4)}, "values: must be at most .* long, which clipping and noise allow, found"),
    "wrong shape": (lambda w, a: {**a, "values": a["values"][:-4]}, "values: must be .* numbers of 32 bits, .* found"),
    "another round": (lambda w, a: {**a, "round": 1}, "round: must be a whole number from 0 to 0, found 1"),
    "another client": (lambda w, a: {**a, "client": 2}, "client: must be 1, who was asked, found 2"),
    "a refusal": (lambda w, a: {"client": 1, "refused": "no more"}, "the site refused: 'no more'"),
    "nothing": (lambda w, a: {}, "client: must be 1, who was asked, found None"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_the_server_refuses_a_bad_upload_by_name_and_loses_nothing(case, world):
    spoil, why = SPOILT[case]
    world.here.spoil = lambda k, m, a: spoil(world, a) if k == 1 and m["do"] == "train" else a
    with pytest.raises(DeploymentError, match=f"round 1: must be answered by all but 0 of the 3 sites asked, found 1 missing. site 1: {why}"):
        world.serve()
    stopped = there(world.folder / "server")
    assert stopped.rounds == 0
    assert "site 1" in stopped.why
    world.here.spoil = None
    assert world.serve().done


def test_a_second_answer_is_refused_and_the_first_one_counts(world):
    world.here.spoil = lambda k, m, a: [a, {**a, "values": values_of(world, 0.0)}] if m["do"] == "train" and k == 1 else a
    progress = world.serve()
    assert progress.done
    assert "round 1, site 1: answer: must come once, found a second one" in progress.refused[0]


def test_two_nodes_cannot_be_one_client(world):
    hello = answer(world.here.clients[0], request(world.agreed, "hello"))
    assert met.met(world.agreed, [(10, hello)], {}) == {0: 10}
    for answers, known in (([(10, hello), (11, hello)], {}), ([(11, hello)], {0: 10})):
        with pytest.raises(DeploymentError, match="site 0: must be one node, found two that say they are it"):
            met.met(world.agreed, answers, known)
    with pytest.raises(DeploymentError, match=r"site 0: must run fedpareto .*, found '0\.0\.1'"):
        met.met(world.agreed, [(10, {**hello, "version": "0.0.1"})], {})
    with pytest.raises(DeploymentError, match="deployment: must be the one agreed"):
        met.met(world.agreed, [(10, {**hello, "deployment": "other"})], {})
    with pytest.raises(DeploymentError, match=r"clock: must differ .* the clock of site 0 differs by \+"):
        met.met(world.agreed, [(10, {**hello, "time": time.time() + 1000})], {})
    with pytest.raises(DeploymentError, match="site 0: must take part, found that it refused: 'no data'"):
        met.met(world.agreed, [(10, {"client": 0, "refused": "no data"})], {})


def test_a_state_of_another_deployment_is_refused(world, tmp_path):
    world.serve()
    other = dataclasses.replace(world.agreed, patience=1.0)
    (tmp_path / "server" / "ledger.jsonl").unlink()
    world.agreed = other
    with pytest.raises(DeploymentError, match="must be of this deployment, found the state of another"):
        world.serve()


FILES = {
    "no file": (None, "must be there, found none. Export a study"),
    "no JSON": (lambda text: text[:-9], "must be JSON, found"),
    "other keys": (lambda text: text.replace('"seed"', '"sead"'), "must have the keys of a deployment, found other ones: sead, seed"),
    "a list": (lambda text: "[]", "must have the keys of a deployment"),
    "another version": (lambda text: text.replace('"version": 1', '"version": 9'), "must be of version 1, found 9"),
    "an unknown way": (lambda text: text.replace('"stop"', '"wait"'), "beyond must be stop or raise, found 'wait'"),
    "no study": (lambda text: text.replace('"mlp"', '"nlp"'), "must describe a study, found"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_deployment_that_is_not_one_is_refused(case, world, tmp_path):
    change, why = FILES[case]
    path = tmp_path / deployment.FILE
    text = path.read_text()
    if change is None:
        path.unlink()
    else:
        assert change(text) != text
        path.write_text(change(text))
    with pytest.raises(DeploymentError, match=why):
        deployment.read(tmp_path)


def test_code_that_was_changed_is_refused_before_it_runs(tmp_path):
    (tmp_path / "nets.py").write_text("from fedpareto.federation.models import Lr as Net\n")
    text = World(study_of(tmp_path), tmp_path, replay=False).agreed.text()
    table = json.loads(text) | {"code": {"nets.py": "0" * 64}}
    (tmp_path / deployment.FILE).write_text(json.dumps(table))
    (tmp_path / "nets.py").write_text("raise SystemExit")
    with pytest.raises(DeploymentError, match=r"nets.py: must be the code that was agreed, of SHA-256 0{12}…, found"):
        deployment.read(tmp_path)


def test_any_changed_setting_is_another_deployment(world):
    found = {world.agreed.hash}
    for field in dataclasses.fields(Deployment):
        if field.name == "folder":
            continue
        value = getattr(world.agreed, field.name)
        other = {"text": "x"} if isinstance(value, dict) else ("x",) if isinstance(value, tuple) else f"{value}x"
        found.add(dataclasses.replace(world.agreed, **{field.name: other}).hash)
    assert len(found) == len(dataclasses.fields(Deployment))


SITES = {
    "another shape": (lambda x, y: Site(x[:, :, :4], y), r"load_site: x_train must be of shape .*1, 8, 8.*, found .*1, 4, 8"),
    "another kind": (lambda x, y: Site(x.astype(np.float32), y), "load_site: x_train must be uint8 as was agreed, found float32"),
    "texts": (lambda x, y: Site(x.astype(str), y), "load_site: x_train must be"),
    "a class too many": (lambda x, y: Site(x, y + 5), "load_site: y_train must be classes from 0 to 9, found 5 to 14"),
    "no records": (lambda x, y: Site(x[:0], y[:0]), "load_site: must return at least one training record, found none"),
    "labels too few": (lambda x, y: Site(x, y[1:]), "load_site: x_train must be of shape"),
    "bad tests": (lambda x, y: Site(x, y, x[:, :, :4], y), "load_site: x_test must be of shape"),
}


@pytest.mark.parametrize("case", SITES)
def test_records_that_do_not_fit_are_refused(case, world):
    change, why = SITES[case]
    mine = world.site(0)
    client = Client(world.agreed, 0, world.folder / "c", lambda: change(mine.x_train, mine.y_train))
    with pytest.raises(DeploymentError, match=why):
        raise DeploymentError(answer(client, request(world.agreed, "hello"))["refused"])


RECORDS = {"mechanism": {"name": "none"}, "local": {"name": "dp_sgd", "record_noise_multiplier": 0.8}, "privacy": {"unit": "record"}}
COUNTS = {  # of records that a site returns, and why not
    "as studied": ("epochs", 480, None),
    "fewer": ("epochs", 300, "load_site: must return 479 to 480 training records, for which ε was priced, found 300: each would be used more"),
    "more, in more steps": ("epochs", 481, "must return 479 to 480 training records, .* found 481"),
    "as few": ("steps", 479, None),
    "one too few": ("steps", 478, "load_site: must return at least 479 training records, for which ε was priced, found 478: each would be"),
    "more, in as many steps": ("steps", 700, None),
}


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("case", COUNTS)
def test_a_site_with_whose_records_epsilon_would_be_another_is_refused(case, encrypted, tmp_path):
    times, count, why = COUNTS[case]
    training = {"local_epochs": int(times == "epochs"), "local_steps": 4 * (times == "steps"), "rounds": 1, "sample_ratio": 1.0}
    last = {"mechanism": {"name": "batchcrypt"}} if encrypted else {}
    world = World(study_of(tmp_path, training=training, data={"clients": 3}, **RECORDS | last), tmp_path, replay=False)
    mine = world.site(0)
    rows = np.arange(count) % len(mine.y_train)
    client = dataclasses.replace(world.client(0), load=lambda: Site(mine.x_train[rows], mine.y_train[rows]))
    said = answer(client, request(world.agreed, "hello"))
    if why is None:
        assert said["deployment"] == world.agreed.hash
        return
    with pytest.raises(DeploymentError, match=why):
        raise DeploymentError(said["refused"])
    with pytest.raises(DeploymentError, match=f"site 0: must take part, found that it refused: .*{why}"):
        met.met(world.agreed, [(10, said)], {})
    if not encrypted:  # nor does it train for a server that never said hello
        assert answer(client, asking(world)) == said
        assert not client.folder.exists()


COUNTED = "sizes must be 3 whole numbers above 0, the records of each client where ε is one of records, found"


@pytest.mark.parametrize(("sizes", "why"), [([], COUNTED), ([479, 480], COUNTED), ([479, 480, 0], COUNTED),
                                            ([479, 480, "x"], r"sizes must be a list of whole numbers, found \[479, 480, 'x'\]")], ids=str)
def test_a_promise_to_records_says_how_many_sites_may_hold(sizes, why, tmp_path):
    World(study_of(tmp_path, data={"clients": 3}, **RECORDS), tmp_path, replay=False)
    path = tmp_path / deployment.FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sizes": sizes}))
    with pytest.raises(DeploymentError, match=why):
        deployment.read(tmp_path)


def test_floats_that_are_not_finite_are_refused(tmp_path):
    world = World(study_of(tmp_path), tmp_path, replay=False)
    agreed = dataclasses.replace(world.agreed, dtype="float32")
    mine = world.site(0)
    client = Client(agreed, 0, tmp_path / "c", lambda: Site(mine.x_train * np.nan, mine.y_train))
    assert "load_site: x_train must be finite numbers, found others" in answer(client, request(agreed, "hello"))["refused"]


def test_a_site_reads_arrays_and_tables(tmp_path):
    x, y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1])
    np.savez(tmp_path / "s.npz", x_train=x, y_train=y)
    found = site_of_file(tmp_path / "s.npz")
    assert (found.x_train == x).all()
    assert found.x_test is None
    rows = "\n".join(f"{a},{b},{c}" for (a, b), c in zip(x, y, strict=True))
    (tmp_path / "s.csv").write_text(f"age,dose,ill\n{rows}\n")
    found = site_of_file(tmp_path / "s.csv", "ill", 0.2)
    assert len(found.x_train) == 5
    assert len(found.x_test) == 1
    with pytest.raises(DataError, match="must be a file with this site's records, found none"):
        site_of_file(tmp_path / "nothing.npz")

"""Real deployments on this machine: a SuperLink and three SuperNodes, with TLS; `make flower` sets up what they need."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from memory import pieces_of
from replayed import REPLAY, study_of

import fedpareto
from fedpareto.crypto.keyfile import read_bfv_key, read_private_key
from fedpareto.deploy.drawn_up import draw_up
from fedpareto.deploy.export import APP, write_app
from fedpareto.deploy.machine import demo_of
from fedpareto.deploy.pricing import price
from fedpareto.federation import blocks
from fedpareto.noise import derive

PYTHON = Path(fedpareto.__file__).parents[1] / ".venv-flower" / "bin" / "python"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON.exists(), reason="`make flower` sets up an environment with Flower")]
NOISE = {"name": "randomization", "noise_multiplier": 0.5, "clipping_norm": 1.0}
BATCHCRYPT = {"name": "batchcrypt", "encryption_batch": 100}
THREE = {"data": {"clients": 3}}
CASES = {
    "randomization": {"training": {"sample_ratio": 1.0}},
    "poisson": {"training": {"sampling": "poisson", "sample_ratio": 0.7}},
    "private values": {"mechanism": {"name": "sparsification", "private_fraction": 0.3, "connection_probability": 0.7}},
    "chain": {"mechanism": {"name": "chain", "links": [NOISE, {"name": "quantization", "bits": 8}]}},
    "own module": {"model": {"name": "nets:Net", "width": 12}},
    "batchcrypt, bfv": {"mechanism": {**BATCHCRYPT, "scheme": "bfv"}, "training": {"sample_ratio": 1.0}},
    "batchcrypt, paillier": {"mechanism": BATCHCRYPT, "model": {"name": "mlp", "hidden": [4]}, "training": {"sample_ratio": 1.0}},
}
NET = """
from torch import nn


class Net(nn.Sequential):
    def __init__(self, width=8):
        super().__init__(nn.Flatten(), nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 10))
"""


def deployed(folder, case, how=""):
    """Deploy a study with its own random numbers on real SuperNodes; return the study, its seed and what was printed."""
    (folder / "nets.py").write_text(NET)
    study = study_of(folder, **{**THREE, **case})
    seed = derive(study.seed, "repeat", 0)
    app = folder / "app"
    write_app(draw_up(study, {}), folder, demo_of(blocks.setup_of(study.problem, seed)), app)
    replaying(app / APP / "client_app.py", "        told = answer(client,",
              f"        client = __import__('dataclasses').replace(client, replay={seed})\n        told = answer(client,")
    replaying(app / APP / "server_app.py", "folder, key=key", f"folder, replay={seed}, key=key")
    if how == "scan":  # a site's process ends soon after it has read the key: it waits, so that it can be searched
        replaying(app / APP / "client_app.py", "        told = answer(client, message_of(message))\n",
                  "        told = answer(client, message_of(message))\n        __import__('time').sleep(5)\n")
    command = [PYTHON, Path(__file__).with_name("on_flower.py"), app, how]
    environment = {**os.environ, REPLAY: "in a test", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return study, seed, json.loads(done.stdout), done.stderr


def replaying(path, old, new):
    """Change the exported code, as no export does: only so can a real node replay a study."""
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


def is_the_simulation(study, seed, found):
    from safetensors.torch import load_file

    module, _ = study.problem.train({}, seed)
    weights = load_file(found["model"])
    for name, expected in module.state_dict().items():
        assert (weights[name] - expected).abs().max() < 1e-5, name
    way = study.problem.every_round({}, [seed], ["test_error"])["test_error"][0]
    assert [of["test_error"] for of in found["measures"]] == way.tolist()
    for of in found["ledger"].values():
        assert of["epsilon"] == of["planned"]


@pytest.mark.parametrize("case", CASES)
def test_three_real_nodes_replay_the_simulation_round_by_round(case, tmp_path):
    study, seed, found, _ = deployed(tmp_path, CASES[case])
    assert found["rounds"] == 3
    is_the_simulation(study, seed, found)
    print(f"{case}: {found['seconds']:.0f} s")


def test_a_killed_node_client_and_server_change_neither_model_nor_ledger(tmp_path):
    study, seed, found, said = deployed(tmp_path, CASES["randomization"], "kill")
    for words in ("killed node 1", "killed the client's process", "killed the server's process"):
        assert words in said
    is_the_simulation(study, seed, found)
    ledgers = [price(tmp_path / "app-local" / f"client{k}" / "ledger.jsonl")["server"] for k in range(3)]
    for of in ledgers:  # what a killed site may have drawn and never sent is counted in its own ledger
        assert of["epsilon"] >= of["planned"]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="memory is looked at by way of /proc")
@pytest.mark.parametrize("scheme", ["bfv", "paillier"])
def test_a_superlink_and_its_serverapp_hold_no_secret_key_and_the_same_search_finds_it_at_a_site(scheme, tmp_path):
    study, seed, found, _ = deployed(tmp_path, CASES[f"batchcrypt, {scheme}"], "scan")
    is_the_simulation(study, seed, found)
    scans = found["scans"]
    print(scheme, scans)
    for party in ("SuperLink", "ServerApp"):
        assert scans[party]["knows"] >= 1  # a whole search, and what went through its memory was found in it
        assert scans[party]["secret"] == 0
    assert scans["ClientApp"]["secret"] >= 2
    home = tmp_path / "app-local"
    key = (read_bfv_key if scheme == "bfv" else read_private_key)(home / "sums.key")
    assert any(piece in (home / "sums.key").read_bytes() for piece in pieces_of(key))
    sites = {f"client{k}" for k in range(3)}
    files = [path for path in home.rglob("*") if path.is_file() and path.name != "sums.key" and not sites & set(path.parts)]
    assert len(files) > 20
    assert [path for path in files if any(piece in path.read_bytes() for piece in pieces_of(key))] == []

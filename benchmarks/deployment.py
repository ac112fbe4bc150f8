"""A deployment beside a plain Flower FedAvg app on the same machine: seconds a round and bytes a client, in one run.

    .venv-flower/bin/python benchmarks/deployment.py [--rounds N] [--json] [--save]

`make flower` sets up the environment. Both apps train the same model (lr on digits, 3 sites, TLS, a key for each node) in a SuperLink and
three SuperNodes on loopback; neither judges its model. Seconds are of the clock from the end of the first round to the end of the last,
over the rounds between; whole_seconds is a deployment of three rounds from the command to its result; what else runs on the machine adds to
both. Bytes are those of the records that Flower packs, up and down. With encryption, bytes up are held against the cost model's, and so are
the seconds of the processor that a site takes to encrypt an update of 266,890 parameters (Paillier) and to decrypt the sum, keys and tables
made anew for each message, as in a process of its own; the cost model has what `fedpareto calibrate` measures in the same run. Bars: at
most 10 % over plain Flower in seconds and bytes; within 15 % of the cost model; a whole deployment under 120 s on two cores.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_to_proto

from fedpareto import load_study
from fedpareto.deploy import deployment, encrypted_client, local, machine
from fedpareto.deploy.client import answer
from fedpareto.deploy.drawn_up import draw_up
from fedpareto.deploy.export import APP, write_app
from fedpareto.deploy.party import Client
from fedpareto.deploy.server import Server
from fedpareto.deploy.serving import serve
from fedpareto.deploy.site import site_of_file
from fedpareto.federation import Federation, blocks
from fedpareto.federation.calibrate import encryption_seconds
from fedpareto.noise import derive

RESULTS = Path(__file__).parent / "results" / "deployment.json"
STUDY = """
name = "benchmark"
budget = 1
[data]
name = "digits"
clients = 3
[model]
{model}
[training]
rounds = {rounds}
local_epochs = 1
batch_size = 32
learning_rate = 0.3
[mechanism]
{mechanism}
[objectives.test_error]
[optimizer]
name = "random"
"""
LR = 'name = "lr"'
MLP = 'name = "mlp"\nhidden = [480, 480]'
PAILLIER = 'name = "batchcrypt"\nscheme = "paillier"'
NOISE = 'name = "randomization"\nnoise_multiplier = 0.5'
PLAIN_CLIENT = """
import numpy as np
import torch
from flwr.app import ArrayRecord, MetricRecord, RecordDict, Message
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    held = np.load(context.node_config["data"])
    x, y = torch.from_numpy(held["x_train"]).float() / 16, torch.from_numpy(held["y_train"])
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    descent = torch.optim.SGD(model.parameters(), lr=0.3)
    for rows in torch.randperm(len(y)).split(32):
        descent.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        descent.step()
    told = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})})
    return Message(told, reply_to=message)
"""
PLAIN_SERVER = """
from pathlib import Path

import torch
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

from fedpareto.deploy.progress import Progress

app = ServerApp()


@app.main()
def main(grid, context):
    folder, rounds = Path(context.run_config["folder"]), ROUNDS

    def ended(number, arrays):  # said in the same words as ours, so that one watch times both
        if number:
            Progress(of=rounds, rounds=number, asked=(3,) * number, answered=(3,) * number, done=number == rounds).write(folder)
        return MetricRecord({"round": number})

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=3)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=rounds, evaluate_fn=ended)
"""


def exported(folder: Path, mechanism: str, rounds: int, model: str = LR) -> Path:
    """Export the study of the benchmark; return its app."""
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY.format(mechanism=mechanism, rounds=rounds, model=model))
    study = load_study(folder / "study.toml")
    demo = machine.demo_of(blocks.setup_of(study.problem, derive(study.seed, "repeat", 0)))
    write_app(draw_up(study, {}, tells=False), None, demo, folder / "app")
    return folder / "app"


def plain(folder: Path, rounds: int) -> Path:
    """Return an app of plain Flower in the same surroundings."""
    app = exported(folder, NOISE, rounds)
    (app / APP / "client_app.py").write_text(PLAIN_CLIENT)
    (app / APP / "server_app.py").write_text(PLAIN_SERVER.replace("ROUNDS", str(rounds)))
    return app


def seconds_a_round(app: Path) -> float:
    """Deploy an app; return the seconds of a round, the first left out."""
    ends: dict[int, float] = {}
    with local.running(local.prepared(app)) as there:
        there.call("flwr", "run", str(app), local.NAME, "--run-config", f'folder="{there.server}"')
        local.watched(there, lambda found: ends.setdefault(found.rounds, time.monotonic()))
    first, last = min(k for k in ends if k), max(ends)
    return (ends[last] - ends[first]) / (last - first)


def whole_seconds(app: Path) -> float:
    """Deploy an app as the command does, what it starts stopped again; return the seconds."""
    began = time.monotonic()
    local.deploy(app)
    return time.monotonic() - began


def packed(records: RecordDict) -> int:
    """Return the bytes of records as Flower packs them."""
    return int(recorddict_to_proto(records).ByteSize())


def plain_bytes() -> int:
    arrays = ArrayRecord({"1.weight": Array(np.zeros((10, 64), np.float32)), "1.bias": Array(np.zeros(10, np.float32))})
    return packed(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 479})}))


class Counting:
    """Sites in this process; keeps the size of the largest message each way, and the seconds that site 0 took."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self.up = self.down = 0
        self.seconds: dict[str, float] = {}

    def ask(self, requests, patience):
        for k, message in requests.items():
            encrypted_client._crypto.cache_clear()  # as in a process of its own
            began = time.process_time()
            said = answer(self.clients[k], message)
            if k == 0:
                self.seconds[message["do"]] = time.process_time() - began
            self.down = max(self.down, packed(RecordDict({"fedpareto": ConfigRecord(dict(message))})))
            self.up = max(self.up, packed(RecordDict({"fedpareto": ConfigRecord(said)})))
            yield k, said


def counted(folder: Path, mechanism: str, model: str = LR) -> tuple[Counting, Federation]:
    """Run a round of a deployment in this process; return what was counted, and the federation of its study."""
    app = exported(folder, mechanism, 1, model)
    agreed = deployment.read(app / APP)
    machine.write_sites(app / "demo.json", folder)
    key = folder / "sums.key"
    encryption = local.encryption_of(agreed)
    if encryption is not None:
        machine.write_sum_key(encryption, key)
    clients = [Client(agreed, k, folder / f"client{k}", lambda k=k: site_of_file(folder / f"site{k}.npz"), key=key) for k in range(3)]
    counting = Counting(clients)
    serve(Server(agreed, folder / "server", key=machine.public_of(key)), counting)
    return counting, load_study(folder / "study.toml").problem


def bytes_of_cost_model(problem: Federation) -> float:
    return float(problem.measure({}, [0])["upload_bytes"][0]) / 3


def encryption_over_cost_model(folder: Path) -> tuple[float, float]:
    """Return the seconds that a site takes to encrypt and to decrypt, and what the cost model says."""
    counting, problem = counted(folder, PAILLIER, MLP)
    parameters = sum(p.numel() for p in problem.model.build((1, 8, 8), 10).parameters())
    cost = encryption_seconds(problem.mechanism, problem, seconds=4.0)
    ciphertexts = -(-parameters // problem.mechanism.encryption_batch)
    modelled = ciphertexts * (cost["encrypt_seconds"] + cost["decrypt_seconds"]) + parameters * cost["pack_seconds"]
    return counting.seconds["encrypt"] + counting.seconds["judge"], modelled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fedpareto-deployment-"))
    try:
        found: dict[str, float] = {"rounds": asked.rounds}
        ours, _ = counted(folder / "bytes", NOISE)
        found |= {"bytes_up": ours.up, "bytes_down": ours.down, "plain_bytes": plain_bytes()}
        found["bytes_over_plain"] = ours.up / found["plain_bytes"]
        for scheme in ("paillier", "bfv"):
            ours, problem = counted(folder / scheme, PAILLIER.replace("paillier", scheme))
            found |= {f"{scheme}_bytes_up": ours.up, f"{scheme}_bytes_over_cost_model": ours.up / bytes_of_cost_model(problem)}
        took, modelled = encryption_over_cost_model(folder / "encryption")
        found |= {"encryption_seconds": took, "encryption_seconds_over_cost_model": took / modelled}
        found["plain_seconds"] = seconds_a_round(plain(folder / "plain", asked.rounds))
        found["seconds"] = seconds_a_round(exported(folder / "ours", NOISE, asked.rounds))
        found["seconds_over_plain"] = found["seconds"] / found["plain_seconds"]
        found["whole_seconds"] = whole_seconds(exported(folder / "whole", NOISE, 3))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if asked.save:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found) if asked.json else "\n".join(f"{name:28s} {value:.5g}" for name, value in found.items()))


if __name__ == "__main__":
    sys.exit(main())

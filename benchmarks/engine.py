"""The engine beside a plain PyTorch loop, Flower's simulation and pfl-research: the same jobs, on one machine, in one run.

    FEDPARETO_DATA=... python benchmarks/engine.py [--jobs J1,J2,J3] [--peers plain,flower,pfl] [--json]

J1  MLP 784-256-256-10, 5 clients × 12,000 MNIST images, one local epoch, batch 64, 3 rounds.
J2  Logistic regression, 40 clients, q = 0.5, 20 local steps of 64, 20 rounds, clipping and noise.
J3  J2 for 60 different settings, per setting: what a search needs. The peers have nothing to share between settings, so theirs
    is J2's figure.

Each runs in a process of its own. "round" is the median round after the first, "whole" the process from start to end.
Bars: J1 no slower than the plain loop; J2 at least 2× faster per round than each, and 3× Flower's whole time; J3 at least 12×.
Peers: pip install 'flwr[simulation]' pfl (`make bench` does it, in an environment of its own).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from itertools import pairwise

JOBS = {
    "J1": {"clients": 5, "cohort": 5, "rounds": 3, "model": "mlp", "epochs": 1, "steps": 0, "settings": 1},
    "J2": {"clients": 40, "cohort": 20, "rounds": 20, "model": "lr", "epochs": 0, "steps": 20, "settings": 1},
    "J3": {"clients": 40, "cohort": 20, "rounds": 20, "model": "lr", "epochs": 0, "steps": 20, "settings": 60},
}
RATE, CLIP, SIGMA, BATCH = 0.1, 1.0, 0.001, 64


def mnist():
    """Return the training images as floats, their labels, and the test set, as tensors."""
    import torch

    from fedpareto.federation.data import Data, load

    data = load(Data("mnist"))
    images = lambda x: torch.from_numpy(x).float().div_(255)  # noqa: E731
    return images(data.x_train), torch.from_numpy(data.y_train), images(data.x_test), torch.from_numpy(data.y_test)


def network(name: str):
    from fedpareto.federation.models import Lr, Mlp

    return (Mlp((256, 256)) if name == "mlp" else Lr()).build((1, 28, 28), 10)


def accuracy(model, x, y) -> float:
    import torch

    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def ours(job) -> dict[str, object]:
    """Train with fedpareto; a round's time is per setting."""
    import numpy as np

    from fedpareto import Data, Federation, Float, Objective, Randomization, Training
    from fedpareto.federation.models import Lr, Mlp
    from fedpareto.problem import listening

    n = job["settings"]
    local = {"local_epochs": job["epochs"]} if job["epochs"] else {"local_steps": job["steps"]}
    make = lambda rounds: Federation(  # noqa: E731
        Data("mnist", job["clients"]), Mlp((256, 256)) if job["model"] == "mlp" else Lr(),
        Training(Float("learning_rate", 0.01, 1.0), rounds=rounds, batch_size=BATCH, sample_ratio=job["cohort"] / job["clients"],
                 evaluate_every=rounds, device="cpu", **local),
        Randomization(Float("sigma", 0.0, 1.0), CLIP if job["model"] == "lr" else 1e9), (Objective("test_error"),), n)
    sigmas = np.linspace(SIGMA, 10 * SIGMA, n) if job["model"] == "lr" else np.zeros(n)
    values = {"learning_rate": list(np.linspace(RATE, RATE / 2, n)), "sigma": list(sigmas)}
    times: list[float] = []
    with listening(lambda share: times.append(time.perf_counter())):
        out = make(job["rounds"]).measure(values, [0] * n)
    gaps = [b - a for a, b in pairwise(times)][: -1 if len(times) > 2 else None]  # the last round is judged too
    return {"round": statistics.median(gaps) / n, "accuracy": 1 - float(out["test_error"][0])}


def plain(job) -> dict[str, object]:
    """Train client after client with an ordinary module and optimizer."""
    import copy

    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    x, y, x_test, y_test = mnist()
    model, draw = network(job["model"]), torch.Generator().manual_seed(0)
    shares = torch.randperm(len(y), generator=draw).chunk(job["clients"])
    times = []
    for _ in range(job["rounds"]):
        start = time.perf_counter()
        origin, total = parameters_to_vector(model.parameters()).detach(), 0
        for client in torch.randperm(job["clients"], generator=draw)[: job["cohort"]].tolist():
            local = copy.deepcopy(model)
            optimizer = torch.optim.SGD(local.parameters(), lr=RATE)
            mine = shares[client][torch.randperm(len(shares[client]), generator=draw)]
            for pick in mine.split(BATCH)[: job["steps"] or None]:
                optimizer.zero_grad()
                cross_entropy(local(x[pick]), y[pick]).backward()
                optimizer.step()
            update = parameters_to_vector(local.parameters()).detach() - origin
            if job["model"] == "lr":
                update = update * min(1.0, CLIP / float(update.norm())) + SIGMA * torch.randn(len(update), generator=draw)
            total = total + update
        vector_to_parameters(origin + total / job["cohort"], model.parameters())
        times.append(time.perf_counter() - start)
    return {"round": statistics.median(times[1:]), "accuracy": accuracy(model, x_test, y_test)}


def flower(job) -> dict[str, object]:
    """Train with Flower's simulation, one actor per core, as its documentation shows."""
    import torch
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation
    from torch.nn.functional import cross_entropy

    found, times, cache = {}, [], {}
    client_app, server_app = ClientApp(), ServerApp()

    @client_app.train()
    def train(message, context):
        torch.set_num_threads(1)
        if "data" not in cache:
            cache["data"] = mnist()
        x, y, _, _ = cache["data"]
        shares = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).chunk(job["clients"])
        mine = shares[int(context.node_config["partition-id"])]
        mine = mine[torch.randperm(len(mine))]
        model = network(job["model"])
        start = {k: v.clone() for k, v in message.content["arrays"].to_torch_state_dict().items()}
        model.load_state_dict(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        for pick in mine.split(BATCH)[: job["steps"] or None]:
            optimizer.zero_grad()
            cross_entropy(model(x[pick]), y[pick]).backward()
            optimizer.step()
        state = model.state_dict()
        if job["model"] == "lr":
            update = {k: state[k] - start[k] for k in state}
            norm = float(torch.cat([u.flatten() for u in update.values()]).norm())
            state = {k: start[k] + u * min(1.0, CLIP / norm) + SIGMA * torch.randn_like(u) for k, u in update.items()}
        content = RecordDict({"arrays": ArrayRecord(state), "metrics": MetricRecord({"num-examples": len(mine)})})
        return Message(content=content, reply_to=message)

    @server_app.main()
    def main(grid, context):
        strategy = FedAvg(fraction_train=job["cohort"] / job["clients"], fraction_evaluate=0.0, min_available_nodes=job["clients"])
        def tick(round, arrays):
            times.append(time.perf_counter())
        result = strategy.start(grid=grid, initial_arrays=ArrayRecord(network(job["model"]).state_dict()), num_rounds=job["rounds"],
                                evaluate_fn=tick)
        model = network(job["model"])
        model.load_state_dict(result.arrays.to_torch_state_dict())
        _, _, x_test, y_test = mnist()
        found["accuracy"] = accuracy(model, x_test, y_test)

    run_simulation(server_app=server_app, client_app=client_app, num_supernodes=job["clients"],
                   backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
    gaps = [b - a for a, b in pairwise(times[1:])]
    return {"round": statistics.median(gaps), "accuracy": found["accuracy"]}


def pfl(job) -> dict[str, object]:
    """Train with pfl-research's simulated backend, as its documentation shows."""
    import numpy as np
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel
    from pfl.privacy.gaussian_mechanism import GaussianMechanism
    from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
    from torch.nn.functional import cross_entropy

    x, y, x_test, y_test = mnist()
    shares = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)).chunk(job["clients"])
    data = {str(k): [x[s], y[s]] for k, s in enumerate(shares)}
    draw, queue = np.random.default_rng(0), []

    def next_user():  # pfl's own random sampler draws with replacement
        if len(queue) <= job["clients"] - job["cohort"]:
            queue[:] = list(draw.permutation(job["clients"]))
        return str(queue.pop())

    module = network(job["model"])
    module.loss = lambda inputs, labels, is_eval=False: cross_entropy(module(inputs), labels)
    module.metrics = lambda inputs, labels: {}
    users = FederatedDataset(lambda user: Dataset(data[user], user_id=user), next_user)
    noise = GaussianMechanism(clipping_bound=CLIP, relative_noise_stddev=SIGMA * job["cohort"] ** 0.5 / CLIP)
    extra = [CentrallyAppliedPrivacyMechanism(noise)] if job["model"] == "lr" else []
    model = PyTorchModel(module, local_optimizer_create=torch.optim.SGD,
                         central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0))
    times = []

    class Tick(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            times.append(time.perf_counter())
            return False, Metrics()

    local = {"local_num_epochs": 1} if job["epochs"] else {"local_num_epochs": None, "local_num_steps": job["steps"]}
    backend = SimulatedBackend(training_data=users, val_data=users, postprocessors=extra)
    FederatedAveraging().run(
        NNAlgorithmParams(central_num_iterations=job["rounds"], evaluation_frequency=10**6, train_cohort_size=job["cohort"],
                          val_cohort_size=0),
        backend, model, NNTrainHyperParams(local_learning_rate=RATE, local_batch_size=BATCH, **local), callbacks=[Tick()])
    gaps = [b - a for a, b in pairwise(times)]
    return {"round": statistics.median(gaps), "accuracy": accuracy(module, x_test, y_test)}


PEERS = {"ours": (ours, "torch"), "plain": (plain, "torch"), "flower": (flower, "flwr"), "pfl": (pfl, "pfl")}


def measured(peer: str, name: str) -> dict[str, object] | None:
    """Run one peer on one job in a process of its own."""
    if importlib.util.find_spec(PEERS[peer][1]) is None:
        return None
    start = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, "--worker", peer, "--jobs", name], capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHONWARNINGS": "ignore"})
    if done.returncode:
        print(f"{peer} {name} failed:\n{done.stderr[-1500:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1]) | {"whole": time.perf_counter() - start}


def table(name: str, peers: list[str], keep: dict[tuple[str, str], dict[str, object] | None]) -> dict[str, object]:
    """Measure a job and return its ratios."""
    rows = {}
    for peer in ["ours", *peers]:
        job = "J2" if name == "J3" and peer != "ours" else name
        if (peer, job) not in keep:
            keep[peer, job] = measured(peer, job)
        rows[peer] = keep[peer, job]
    mine = rows["ours"]
    line: dict[str, object] = {"rows": rows}
    for peer in peers:
        theirs = rows[peer]
        line[f"ratio_to_{peer}"] = None if theirs is None or mine is None else theirs["round"] / mine["round"]
        line[f"whole_ratio_to_{peer}"] = None if theirs is None or mine is None else theirs["whole"] / mine["whole"]
    return line


def show(name: str, line: dict[str, object]) -> None:
    print(f"\n{name}   {'round s':>10} {'whole s':>9} {'peak MiB':>9} {'accuracy':>9} {'round ratio':>12}")
    for peer, row in line["rows"].items():
        if row is None:
            print(f"{peer:8s} not installed or failed")
            continue
        ratio = 1.0 if peer == "ours" else line[f"ratio_to_{peer}"]
        print(f"{peer:8s} {row['round']:10.4f} {row['whole']:9.1f} {row['peak_mib']:9.0f} {row['accuracy']:9.3f} {ratio:11.1f}×")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="J1,J2,J3")
    parser.add_argument("--peers", default="plain,flower,pfl")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        found = PEERS[given.worker][0](JOBS[given.jobs])
        peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
        print(json.dumps(found | {"peak_mib": peak}))
        return
    keep: dict[tuple[str, str], dict[str, object] | None] = {}
    lines = {}
    for name in given.jobs.split(","):
        lines[name] = table(name, given.peers.split(","), keep)
        if not given.json:
            show(name, lines[name])
    if given.json:
        print(json.dumps(lines))


if __name__ == "__main__":
    main()

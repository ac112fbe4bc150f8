"""How the cost of a search grows: with clients, parameters, mini-batches, trials together, by measurement and by model past it.

    python benchmarks/growth.py [--save] [--json]

Without --save it measures nothing, and prints the tables of docs/scale.md from what is kept in results/.

Rounds are timed on one thread of a CPU, in its own seconds, one series for each thing that grows, and a model of four terms
is fitted to them:

    seconds of a round = steps · (a + models · (b + parameters · (c + d · batch)))

where steps are those of a client in a round, and models are clients of a round × trials together. The largest of each series
is left out of the fit, so that the model is held against what it has not seen. The H200's terms are of the two measured sizes
of one MLP (results/gpu.json), and a convolution's of operations a second at LeNet's measured pace: that is a model, not a
measurement. What a search takes past this machine is then said by these, and the share of their time that workers train
(results/scale_out.json).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from fedpareto import Data, Federation, Mlp, Objective, Randomization, Training
from fedpareto.federation.models import Lenet, Resnet18
from fedpareto.federation.sizes import size_of
from fedpareto.space import Float

RESULTS = Path(__file__).parent / "results"
SERIES = {  # clients, hidden neurons, batch size, trials together
    "clients": [(k, 32, 4, 1) for k in (10, 40, 160, 320)],
    "parameters": [(10, h, 32, 1) for h in (16, 64, 256, 1024, 4096)],
    "batch": [(10, 256, b, 1) for b in (8, 32, 128)],
    "trials": [(10, 32, 32, r) for r in (1, 4, 16, 64)],
}
STEPS = 10  # of a client in a round
ROUNDS = 4
GPUS = (1, 8, 64, 512)
TOGETHER = (72, 288)  # trials together of the H200's figures, 5 clients each, batches of 64


def measured() -> list[dict[str, Any]]:
    """Time a round of each setting; the largest of each series is not to be fitted to."""
    torch.set_num_threads(1)
    rows = []
    for series, settings in SERIES.items():
        for setting in settings:
            clients, hidden, batch, trials = setting
            size = size_of(Mlp((hidden,)), (1, 8, 8), 10)[0]
            row = {"series": series, "clients": clients, "parameters": size, "batch": batch, "trials": trials}
            rows.append(row | {"seconds_a_round": timed(*setting), "fitted": setting is not settings[-1]})
            print(rows[-1], flush=True)
    return rows


def timed(clients: int, hidden: int, batch: int, trials: int) -> float:
    """Return the seconds of a round: those of some rounds more, over how many more."""
    took = []
    for rounds in (1, 1 + ROUNDS):
        training = Training(Float("learning_rate", 0.01, 0.3), rounds=rounds, local_steps=STEPS, batch_size=batch, evaluate_every=rounds)
        federation = Federation(Data("digits", clients), Mlp((hidden,)), training, Randomization(0.0, 1e9), (Objective("test_error"),), trials)
        values = {"learning_rate": [0.05] * trials}
        took.append(min(once(federation, values, trials) for _ in range(5)))
    return (took[1] - took[0]) / ROUNDS


def once(federation: Federation, values: Any, trials: int) -> float:
    began = time.process_time()
    federation.measure(values, [0] * trials)
    return time.process_time() - began


def terms(row: dict[str, Any]) -> list[float]:
    models = STEPS * row["clients"] * row["trials"]
    moved = models * row["parameters"]
    return [STEPS, models, moved, moved * row["batch"]]


def fitted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Fit the terms by relative errors, and hold the model against every round."""
    known = [r for r in rows if r["fitted"]]
    took = np.array([r["seconds_a_round"] for r in known])
    found, _ = nnls(np.array([terms(r) for r in known]) / took[:, None], np.ones(len(known)))
    for row in rows:
        row["by_model"] = float(np.dot(found, terms(row)))
        row["ratio"] = row["by_model"] / row["seconds_a_round"]
    return {"terms": dict(zip("abcd", map(float, found), strict=True)), "rounds": rows}


def h200() -> dict[str, float]:
    """Return what a step takes on the H200: of an MLP, a start and so much a parameter; of a convolution, so much an operation."""
    jobs = json.loads((RESULTS / "gpu.json").read_text())["jobs"]
    few, many = (next(j["step_ms"] for j in jobs if j["job"] == "mlp" and j["tf32"] and j["together"] == n) for n in TOGETHER)
    lenet = next(j for j in jobs if j["job"] == "lenet" and j["tf32"])
    size = size_of(Mlp((256, 256)), (1, 28, 28), 10)[0]
    each = (many - few) / 1000 / (5 * (TOGETHER[1] - TOGETHER[0]))
    operations = 6 * 64 * products(Lenet(), (3, 32, 32))
    return {
        "start": few / 1000 - 5 * TOGETHER[0] * each, "a_parameter": each / size,
        "lenet_operations_a_second": 5 * lenet["together"] * operations / (lenet["step_ms"] / 1000),
    }


def products(model: Any, shape: tuple[int, ...]) -> int:
    """Return how many multiplications one input takes forward."""
    counted = 0

    def count(layer: Any, inputs: Any, output: Any) -> None:
        nonlocal counted
        counted += output.numel() * layer.weight[0].numel()

    module = model.build(shape, 10).eval()
    for layer in module.modules():
        if isinstance(layer, torch.nn.Linear | torch.nn.Conv2d):
            layer.register_forward_hook(count)
    with torch.no_grad():
        module(torch.zeros(1, *shape))
    return counted


def searches(card: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Yield what searches take on H200s: steps of clients × trials, batches of 64, by the card's terms."""
    mlp = size_of(Mlp((256, 256)), (1, 28, 28), 10)[0]
    resnet, share = Resnet18(), 6 * 64 * products(Resnet18(), (3, 32, 32)) / card["lenet_operations_a_second"]
    for name, size, cohort, rounds, steps, trials, together, conv in (
        ("MLP, Kang 2023 as measured", mlp, 5, 10, 940, 60, 60, None),
        ("MLP, cohorts of 100", mlp, 100, 100, 10, 1000, 20, None),
        ("MLP, cohorts of 1,000", mlp, 1000, 100, 10, 1000, 2, None),
        ("ResNet-18, cohorts of 10", size_of(resnet, (3, 32, 32), 10)[0], 10, 100, 10, 1000, 4, share),
        ("ResNet-18, cohorts of 100", size_of(resnet, (3, 32, 32), 10)[0], 100, 100, 10, 1000, 1, share),
    ):
        each = card["a_parameter"] * size if conv is None else conv
        block = rounds * steps * (card["start"] + cohort * together * each)
        yield {"search": name, "parameters": size, "cohort": cohort, "client_steps": cohort * rounds * steps, "trials": trials,
               "block": together, "seconds_a_block": block, "gpu_hours": trials / together * block / 3600,
               "gb_a_trial": 16 * size * cohort / 1e9}


def on_gpus(search: dict[str, Any], gpus: int, busy: float) -> float:
    """Return the hours of a search on so many GPUs, as busy as workers were; one block is the least."""
    blocks = search["trials"] / search["block"]
    return max(blocks / gpus / busy, 1.0) * search["seconds_a_block"] / 3600


def rows_of_rounds(found: dict[str, Any]) -> Iterator[str]:
    yield "| grows | clients | parameters | batch | trials together | a round, measured | by the model | of what was measured |"
    yield "|---|---|---|---|---|---|---|---|"
    for r in found["rounds"]:
        unseen = "" if r["fitted"] else ", not fitted to"
        yield (f"| {r['series']} | {r['clients']} | {r['parameters']:,} | {r['batch']} | {r['trials']} | {1000 * r['seconds_a_round']:.1f} ms "
               f"| {1000 * r['by_model']:.1f} ms | {r['ratio']:.2f}{unseen} |")


def rows_of_trials() -> Iterator[str]:
    """Yield what a study takes beside training, by results/rows.json."""
    work = json.loads((RESULTS / "rows.json").read_text())["work"]
    yield "| optimizer | trials | run | memory | go on | propose | front | report | verify |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for optimizer, trials in dict.fromkeys((w["optimizer"], w["rows"]) for w in work):
        cpu = {w["work"]: w["cpu"] for w in work if (w["optimizer"], w["rows"]) == (optimizer, trials)}
        of_run = next(w for w in work if (w["optimizer"], w["rows"], w["work"]) == (optimizer, trials, "run"))
        rest = " | ".join(f"{cpu[name]:.1f} s" for name in ("go on", "propose", "front", "report", "verify"))
        yield f"| {optimizer} | {trials:,} | {cpu['run']:.1f} s | {of_run['peak_mb']:.0f} MB | {rest} |"


def rows_of_workers(scale: dict[str, Any]) -> Iterator[str]:
    """Yield which share of their time workers train, by results/scale_out.json."""
    levels = sorted({r["in_flight"] for r in scale["busy"]})
    yield "| spread of a trial's time | workers | " + " | ".join(f"in_flight {L}" for L in levels) + " |"
    yield "|---|---|" + "---|" * len(levels)
    for spread, workers in dict.fromkeys((r["spread"], r["workers"]) for r in sorted(scale["busy"], key=lambda r: r["spread"])):
        shares = {r["in_flight"]: r["busy"] for r in scale["busy"] if (r["spread"], r["workers"]) == (spread, workers)}
        yield f"| {spread} | {workers} | " + " | ".join(f"{shares[L]:.2f}" for L in levels) + " |"


def rows_of_long_studies(scale: dict[str, Any]) -> Iterator[str]:
    """Yield the same of long studies, for batches of several sizes."""
    yield "| workers | trials | a batch | in_flight | busy | at most |"
    yield "|---|---|---|---|---|---|"
    for r in scale["long"]:
        yield f"| {r['workers']} | {r['trials']:,} | {r['batch']} | {r['in_flight']} | {r['busy']:.2f} | {r['ideal']:.2f} |"


def rows_of_cost(flying: dict[str, Any]) -> Iterator[str]:
    """Yield the hypervolume that is left with batches in flight, after equal trials, by results/in_flight.json."""
    levels = sorted({r["in_flight"] for r in flying["summary"]})
    yield "| optimizer | problem | seeds | " + " | ".join(f"in_flight {L}" for L in levels) + " |"
    yield "|---|---|---|" + "---|" * len(levels)
    for name, problem in dict.fromkeys((r["optimizer"], r["problem"]) for r in flying["summary"]):
        rows = {r["in_flight"]: r for r in flying["summary"] if (r["optimizer"], r["problem"]) == (name, problem)}
        shown = " | ".join(f"{rows[L]['hypervolume']:.4f} ± {rows[L]['error']:.4f}" for L in levels)
        yield f"| {name} | {problem} | {rows[0]['seeds']} | {shown} |"


def rows_of_gain(flying: dict[str, Any], scale: dict[str, Any]) -> Iterator[str]:
    """Yield how many trials more each L takes, and how much sooner workers that are as many as a batch are there."""
    levels = sorted({r["in_flight"] for r in flying["costs"]} - {0})
    yield "| optimizer | | " + " | ".join(f"in_flight {L}" for L in levels) + " |"
    yield "|---|---|" + "---|" * len(levels)
    busy = {(r["spread"], r["in_flight"]): r["busy"] for r in scale["busy"] if r["workers"] == flying["batch"]}
    for name in dict.fromkeys(r["optimizer"] for r in flying["costs"]):
        times = {r["in_flight"]: r["times"] for r in flying["costs"] if r["optimizer"] == name}
        yield f"| {name} | trials | " + " | ".join(f"{times[L]:.2f}" for L in levels) + " |"
        for spread in sorted({spread for spread, _ in busy}):
            sooner = " | ".join(f"{busy[spread, L] / busy[spread, 0] / times[L]:.2f}" for L in levels)
            yield f"| {name} | speed, spread {spread} | {sooner} |"


def rows_of_searches(found: dict[str, Any]) -> Iterator[str]:
    yield "| search | client-steps a trial | trials | memory a trial | GPU hours | " + " | ".join(f"on {n}" for n in GPUS) + " |"
    yield "|---|---|---|---|---|" + "---|" * len(GPUS)
    for s in found["searches"]:
        hours = " | ".join(f"{s['hours'][str(n)]:.3g} h" for n in GPUS)
        yield f"| {s['search']} | {s['client_steps']:,} | {s['trials']:,} | {s['gb_a_trial']:.3g} GB | {s['gpu_hours']:.3g} | {hours} |"


def tables(found: dict[str, Any], scale: dict[str, Any]) -> dict[str, list[str]]:
    """Return the tables of docs/scale.md, by what they are of; none of what was not measured yet."""
    out = {"one round": [*rows_of_rounds(found)], "busy workers": [*rows_of_workers(scale)], "searches": [*rows_of_searches(found)]}
    if "long" in scale:
        out["busy workers in long studies"] = [*rows_of_long_studies(scale)]
    if (RESULTS / "in_flight.json").exists():
        flying = json.loads((RESULTS / "in_flight.json").read_text())
        out["hypervolume at equal trials"] = [*rows_of_cost(flying)]
        out["trials and speed to the same hypervolume"] = [*rows_of_gain(flying, scale)]
    if (RESULTS / "rows.json").exists():
        out["very many trials"] = [*rows_of_trials()]
    return out


def kept() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what was measured of growth and of workers."""
    return json.loads((RESULTS / "growth.json").read_text()), json.loads((RESULTS / "scale_out.json").read_text())


def modelled(found: dict[str, Any], scale: dict[str, Any]) -> dict[str, Any]:
    """Return what searches take, by all that was measured."""
    busy = min(r["busy"] for r in scale["busy"] if r["in_flight"] == 4 and r["spread"] == 0.3)
    card = h200()
    rows = [s | {"hours": {str(n): on_gpus(s, n, busy) for n in GPUS}} for s in searches(card)]
    return found | {"h200": card, "searches": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", action="store_true", help="measure rounds anew, and write results/growth.json")
    given = parser.parse_args()
    if given.save:
        found = {"command": "python benchmarks/growth.py --save", "torch": torch.__version__} | fitted(measured())
        (RESULTS / "growth.json").write_text(json.dumps(found, indent=1) + "\n")
    found, scale = kept()
    found = modelled(found, scale)
    if given.json:
        print(json.dumps(found))
        return
    for name, lines in tables(found, scale).items():
        print(f"{name}\n", *lines, "", sep="\n")


if __name__ == "__main__":
    main()

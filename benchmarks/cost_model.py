"""How well the cost model predicts: calibrate encryption, then encrypt and decrypt the paper's MLP at every batch that fits.

    python benchmarks/cost_model.py [--json] [--save]

Then how many times as long a ciphertext of degree 2 takes as one of degree 1, which the cost model charges.
One core, CPU time, 269,322 parameters (Kang 2023: MLP 784-256-256-10), 5 clients, keys of 2048 bits.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from fedpareto.crypto import clip_of, quantise
from fedpareto.federation import Data, Federation, Mlp, Training
from fedpareto.federation.calibrate import encryption_seconds
from fedpareto.federation.cost import DEGREE_2
from fedpareto.mechanisms import BatchCrypt
from fedpareto.mechanisms.batchcrypt import client_of
from fedpareto.problem import Objective

PARAMETERS = 269_322
CASES = [(1, 100), (1, 200), (1, 400), (2, 400), (2, 800)]  # degree, batch


def study(mechanism: BatchCrypt) -> Federation:
    return Federation(Data("digits", 5), Mlp((8,)), Training(0.1, local_steps=1), mechanism, (Objective("test_error"),))


def measured(mechanism: BatchCrypt, batch: int) -> float:
    """Return the CPU seconds of protecting one update and reading one sum, on one core, after the tables are built."""
    from dataclasses import replace

    codec = mechanism.codec(batch, 5)
    client = replace(client_of("paillier", 2048, codec), workers=1)
    draw = np.random.default_rng(1)
    update, uniform = draw.normal(size=PARAMETERS), draw.random(PARAMETERS)
    client.decrypt(client.encrypt(np.zeros(batch, dtype=np.int64)))
    began = time.process_time()
    numbers = quantise(update, float(clip_of(update, codec.magnitude)), codec.magnitude, uniform)
    client.decrypt(client.encrypt(numbers))
    return time.process_time() - began


def rows() -> list[dict[str, float]]:
    out = []
    for degree, batch in CASES:
        mechanism = BatchCrypt(batch, degree=degree)
        cost = encryption_seconds(mechanism, study(mechanism), seconds=4.0)
        ciphertexts = -(-PARAMETERS // batch)
        predicted = ciphertexts * (cost["encrypt_seconds"] + cost["decrypt_seconds"]) + PARAMETERS * cost["pack_seconds"]
        took = measured(mechanism, batch)
        out.append({"degree": degree, "batch": batch, "predicted_seconds": predicted, "measured_seconds": took, "ratio": predicted / took})
    return out


def degree_2() -> dict[str, float]:
    """Return how many times as long a ciphertext of degree 2 takes, name → factor."""
    one, two = (encryption_seconds(m, study(m), seconds=4.0) for m in (BatchCrypt(100), BatchCrypt(100, degree=2)))
    return {name: two[name] / one[name] for name in DEGREE_2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    found = rows()
    whole = {"largest_error": max(abs(r["ratio"] - 1) for r in found), "cases": found, "degree_2": degree_2()}
    if asked.save:
        Path(__file__).with_name("results").joinpath("cost_model.json").write_text(json.dumps(whole, indent=1) + "\n")
    if asked.json:
        print(json.dumps(whole))
        return
    print("degree  batch  predicted s  measured s  ratio")
    for r in found:
        print(f"{r['degree']:6d}  {r['batch']:5d}  {r['predicted_seconds']:11.2f}  {r['measured_seconds']:10.2f}  {r['ratio']:5.3f}")
    for name, factor in whole["degree_2"].items():
        print(f"degree 2: {factor:.2f} times the {name.replace('_', ' ')}, charged {DEGREE_2[name]:g}")


if __name__ == "__main__":
    main()

"""Encrypted sums beside phe, one core, in one run: Paillier by each construction, BFV and CKKS by TenSEAL, and the modexp floor.

    python benchmarks/encryption.py [--repeats N] [--json] [--save]

Paillier has n of 2048 bits and 100 values of 20 bits a ciphertext. Peers are timed in turns with ours, repeat by repeat, in seconds of
the processor; a ratio is the median over repeats of theirs to ours, so that a busy machine slows both. The MLP's round is in seconds of
the clock, with all cores, the fastest repeat: what else runs can only add. Bars: encryption at least 15× and decryption at least 1× as
fast as phe; one round of one client of the MLP 784-256-256-10 (269,322 parameters: clip, quantise, pack, encrypt) under 2 s on two cores.
Peers: pip install phe tenseal. --json prints one line; --save writes it to benchmarks/results/encryption.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import gmpy2
import numpy as np

from fedpareto.crypto import (
    BfvClient,
    BfvCodec,
    BfvKey,
    Codec,
    PaillierClient,
    PrivateKey,
    clip_of,
    quantise,
)
from fedpareto.crypto.parallel import cores
from fedpareto.crypto.powers import _openssl, secret_power

BITS, BATCH, CLIENTS, PARAMETERS = 2048, 100, 5, 269_322
RESULTS = Path(__file__).parent / "results" / "encryption.json"


def seconds(call: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    call()
    return clock() - start


def in_turns(calls: dict[str, tuple[Callable[[], object], int]], repeats: int) -> dict[str, list[float]]:
    """Return seconds per operation of each call, once per repeat; each call does so many operations."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, (call, operations) in calls.items():
            found[name].append(seconds(call) / operations)
    return found


def ratio(theirs: list[float], ours: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))


def paillier(repeats: int) -> dict[str, object]:
    """Time phe and every construction in turns, on the same key and the same packed plaintexts."""
    import phe

    key, codec = PrivateKey.generate(BITS), Codec(BITS, BATCH, CLIENTS)
    public = phe.PaillierPublicKey(key.public.n)
    private = phe.PaillierPrivateKey(public, key.p, key.q)
    values = np.random.default_rng(0).integers(-codec.magnitude, codec.magnitude + 1, 512 * BATCH)
    plain = [m % key.public.n for m in codec.pack(values[: 8 * BATCH])]
    clients = {name: PaillierClient(key, codec, name, workers=1) for name in ("fixed-base", "half-length", "textbook")}
    tables = {name: seconds(lambda c=c: c._encrypt) for name, c in clients.items()}
    fixed = clients["fixed-base"]
    five = [fixed.encrypt(values[: 16 * BATCH]) for _ in range(5)]
    sent = five[0]
    assert (fixed.decrypt(fixed.server.add(*five[:2])) == 2 * values[: 16 * BATCH]).all()
    numbers = [int(x) for x in sent.numbers]
    encrypted = phe.EncryptedNumber(public, numbers[0])
    times = in_turns({
        "phe encrypt": (lambda: [public.raw_encrypt(m) for m in plain], len(plain)),
        "fixed-base encrypt": (lambda: fixed.encrypt(values), 512),
        "half-length encrypt": (lambda: clients["half-length"].encrypt(values[: 64 * BATCH]), 64),
        "textbook encrypt": (lambda: clients["textbook"].encrypt(values[: 8 * BATCH]), 8),
        "phe decrypt": (lambda: [private.raw_decrypt(c) for c in numbers], 16),
        "our decrypt": (lambda: fixed.decrypt(sent), 16),
        "phe add": (lambda: [encrypted._raw_add(a, b) for a in numbers for b in numbers], 256),
        "our add": (lambda: fixed.server.add(*five), 64),
        "pack": (lambda: codec.pack(values), len(values)),
    } | floor(key), repeats)
    size = len(fixed.encrypt(values).to_bytes()) / len(values)
    return {
        "encrypt_ratio_to_phe": ratio(times["phe encrypt"], times["fixed-base encrypt"]),
        "decrypt_ratio_to_phe": ratio(times["phe decrypt"], times["our decrypt"]),
        "add_ratio_to_phe": ratio(times["phe add"], times["our add"]),
        "half_length_ratio_to_phe": ratio(times["phe encrypt"], times["half-length encrypt"]),
        "textbook_ratio_to_phe": ratio(times["phe encrypt"], times["textbook encrypt"]),
        "decrypt_by": "OpenSSL, constant time" if _openssl() else "gmpy2",
        "table_seconds": tables, "bytes_per_value": size, "ms": {name: 1e3 * statistics.median(t) for name, t in times.items()},
    }


def floor(key: PrivateKey) -> dict[str, tuple[Callable[[], object], int]]:
    """The powers that cost the time: half of a decryption, and a textbook encryption."""
    p2, n, n2 = gmpy2.mpz(key.p) ** 2, gmpy2.mpz(key.public.n), gmpy2.mpz(key.public.n) ** 2
    base, ours = gmpy2.mpz(3) ** 1200 % p2, secret_power(key.p - 1, key.p**2)
    return {"powmod 2048, 1024-bit exponent": (lambda: gmpy2.powmod(base, key.p - 1, p2), 1),
            "ours 2048, 1024-bit exponent": (lambda: ours(base), 1),
            "powmod 4096, 2048-bit exponent": (lambda: gmpy2.powmod(base, n, n2), 1)}


def lattice(repeats: int) -> dict[str, object]:
    """Time BFV (ours) and CKKS, both by TenSEAL, on the sum of five clients' updates."""
    import tenseal as ts

    rng = np.random.default_rng(0)
    codec = BfvCodec(CLIENTS)
    bfv = BfvClient(BfvKey.generate(), codec)
    whole = [rng.integers(-codec.magnitude, codec.magnitude + 1, 4096) for _ in range(CLIENTS)]
    ckks = ts.context(ts.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 40, 60])
    ckks.global_scale = 2.0**40
    real = [rng.normal(0, 0.01, 4096) for _ in range(CLIENTS)]
    sent, vectors = [bfv.encrypt(w) for w in whole], [ts.ckks_vector(ckks, r) for r in real]
    added, summed = bfv.server.add(*sent), sum(vectors[1:], vectors[0])
    times = in_turns({
        "bfv encrypt": (lambda: bfv.encrypt(whole[0]), 1), "bfv decrypt": (lambda: bfv.decrypt(added), 1),
        "ckks encrypt": (lambda: ts.ckks_vector(ckks, real[0]), 1), "ckks decrypt": (lambda: summed.decrypt(), 1),
    }, 5 * repeats)
    middle = {name: statistics.median(t) for name, t in times.items()}
    rate = {f"{name.replace(' ', '_')}_values_per_second": 4096 / t for name, t in middle.items()}
    return rate | {"bfv_bytes_per_value": len(sent[0].to_bytes()) / 4096, "ckks_bytes_per_value": len(vectors[0].serialize()) / 4096,
                   "bfv_error": float(np.abs(bfv.decrypt(added) - sum(whole)).max()),
                   "ckks_error": float(np.abs(np.array(summed.decrypt()) - sum(real)).max())}


def mlp(repeats: int) -> dict[str, object]:
    """Time one round of one client of the MLP with all cores; keys and tables are there."""
    codec = Codec(BITS, BATCH, CLIENTS)
    client, rng = PaillierClient(PrivateKey.generate(BITS), codec), np.random.default_rng(0)
    update, draws = rng.normal(0, 0.01, PARAMETERS), rng.random(PARAMETERS)
    q = quantise(update, clip_of(update, codec.magnitude), codec.magnitude, draws)
    others = [client.encrypt(q) for _ in range(CLIENTS - 1)]
    found: dict[str, list[float]] = {"protect": [], "add": [], "decrypt": []}
    for _ in range(repeats):
        kept = {}
        def protect(kept=kept):
            q = quantise(update, clip_of(update, codec.magnitude), codec.magnitude, draws)
            kept["q"], kept["sent"] = q, client.encrypt(q)
        def add(kept=kept):
            kept["sum"] = client.server.add(kept["sent"], *others)
        def decrypt(kept=kept):
            kept["out"] = client.decrypt(kept["sum"])
        for name, call in (("protect", protect), ("add", add), ("decrypt", decrypt)):
            found[name].append(seconds(call, time.perf_counter))
        assert (kept["out"] == CLIENTS * kept["q"]).all()
    return {"mlp_round_seconds": min(found["protect"]), "mlp_add_seconds": min(found["add"]), "mlp_decrypt_seconds": min(found["decrypt"]),
            "mlp_round_seconds_each": found["protect"], "cores": cores(), "load": os.getloadavg()[0]}


def show(line: dict[str, object]) -> None:
    ms = line["ms"]
    print(f"{'Paillier, 2048 bits':22s} {'encrypt ms':>11} {'decrypt ms':>11} {'values/s':>10} {'bytes/value':>12} {'encrypt ÷ phe':>14}")
    for name, key in (("phe", None), ("fixed-base", "encrypt_ratio_to_phe"), ("half-length", "half_length_ratio_to_phe"),
                      ("textbook", "textbook_ratio_to_phe")):
        enc, dec = ms[f"{name} encrypt"], ms["phe decrypt" if key is None else "our decrypt"]
        times = 1.0 if key is None else line[key]
        print(f"{name:22s} {enc:11.3f} {dec:11.3f} {BATCH / enc * 1e3:10,.0f} {line['bytes_per_value']:12.2f} {times:13.1f}×")
    for name in ("bfv", "ckks"):
        enc, dec = (line[f"{name}_{what}_values_per_second"] for what in ("encrypt", "decrypt"))
        print(f"{name:22s} {4096e3 / enc:11.3f} {4096e3 / dec:11.3f} {enc:10,.0f} {line[f'{name}_bytes_per_value']:12.2f}   "
              f"error {line[f'{name}_error']:.1e}")
    print(f"\ndecryption ÷ phe {line['decrypt_ratio_to_phe']:.2f}× ({line['decrypt_by']}), addition ÷ phe {line['add_ratio_to_phe']:.2f}×, "
          f"packing {1e6 * ms['pack']:.0f} ns/value")
    for name in ("powmod 2048, 1024-bit exponent", "ours 2048, 1024-bit exponent", "powmod 4096, 2048-bit exponent"):
        print(f"{name:32s} {ms[name]:.3f} ms")
    print(f"MLP, {line['cores']} cores, load {line['load']:.1f}: protect {line['mlp_round_seconds']:.2f} s, add {CLIENTS} clients "
          f"{line['mlp_add_seconds']:.2f} s, decrypt {line['mlp_decrypt_seconds']:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    line = paillier(given.repeats) | lattice(given.repeats) | mlp(min(given.repeats, 5))
    if given.save:
        RESULTS.write_text(json.dumps(line, indent=1) + "\n")
    if given.json:
        print(json.dumps(line))
    else:
        show(line)


if __name__ == "__main__":
    main()

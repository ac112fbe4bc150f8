"""Three clients add their updates under encryption: the server sums what it cannot read.

Run it: python examples/encrypt_by_hand.py
"""

from __future__ import annotations

import numpy as np

from fedpareto.crypto import Codec, PaillierClient, PrivateKey, clip_of, dequantise, quantise

rng = np.random.default_rng(0)
updates = rng.normal(0, 0.01, (3, 1000))  # [clients, parameters]

# Once: the clients make a key among themselves. The server gets client.server and never the key.
codec = Codec(key_bits=2048, batch=100, clients=3)
client = PaillierClient(PrivateKey.generate(2048), codec)
server = client.server

# Every round: one clip for all, then every client quantises, packs and encrypts.
clip = float(clip_of(updates, codec.magnitude).max())
whole = [quantise(update, clip, codec.magnitude, rng.random(1000)) for update in updates]
sent = [client.encrypt(q, "round 1").to_bytes() for q in whole]

# The server reads, checks and adds.
total = server.add(*map(server.read, sent))

# A client decrypts the sum, which must be that of these uploads, and divides.
sums = client.decrypt(server.read(total.to_bytes()), "round 1")
mean = dequantise(sums, clip, codec.magnitude, total.terms)

exact = bool((sums == sum(whole)).all())
error = np.abs(mean - updates.mean(0)).max()
step = clip / codec.magnitude
size = len(sent[0]) / 1000
largest = codec.magnitude
print(f"the decrypted sum is exact: {exact}")
print(f"largest error of the mean update: {error:.1e}, one step is {step:.1e}")
print(f"{size:.2f} bytes a value, {codec.slot} bits each, values from -{largest} to {largest}")
if not exact:
    raise SystemExit("the sums differ")

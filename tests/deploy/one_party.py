"""One party of a deployment in a process of its own: `python one_party.py server|sites FOLDER KEY`, messages on its pipes.

The server's process is given the public file alone. It waits at its end, so that its memory can be looked at.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np

from fedpareto.deploy import deployment
from fedpareto.deploy.client import answer
from fedpareto.deploy.party import Client
from fedpareto.deploy.server import Server
from fedpareto.deploy.serving import serve
from fedpareto.deploy.site import Site


def tell(found):
    pickle.dump(found, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def hear():
    return pickle.load(sys.stdin.buffer)


class Piped:
    """The sites as the server's process sees them."""

    def ask(self, requests, patience):
        tell(("ask", requests))
        return hear()


def records(k, agreed):
    rng = np.random.default_rng(k)
    return Site(rng.integers(0, 16, (40, *agreed.shape)).astype(agreed.dtype), rng.integers(0, 10, 40))


def run(side, folder, key):
    agreed = deployment.read(folder)
    if side == "server":
        tell(("done", serve(Server(agreed, folder / "server", key=key), Piped()).rounds))
    else:
        sites = {k: Client(agreed, k, folder / f"client{k}", lambda k=k: records(k, agreed), key=key) for k in range(agreed.clients)}
        while (requests := hear()) is not None:
            tell([(k, answer(sites[k], m)) for k, m in requests.items()])
    hear()  # until it may end


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))

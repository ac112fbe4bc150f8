"""Run in the environment with Flower: `python on_flower.py APP [kill|scan]` deploys an app and prints JSON.

With kill, each party is killed in the middle of a round and started again as a person would: a node, a client's process, the server's.
With scan, the memory of every party is searched for the secret key of encrypted sums, as often as can be while the run goes on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from memory import in_memory, pieces_of

from fedpareto.crypto.keyfile import read_bfv_key, read_private_key
from fedpareto.deploy import local, progress
from fedpareto.deploy.local import NAME, check_alive, prepared, result, running, start_node, watched


def run(there):
    there.call("flwr", "run", str(there.app), NAME, "--run-config", local._config(there))


def processes(of, word):
    """Return the processes below one that hold a word in their command line; some are in sessions of their own."""
    found, below = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        below.setdefault(parent, []).append(int(entry.name))
    those = [of.pid]
    for pid in those:
        those += below.get(pid, [])
    return [pid for pid in those if word in found.get(pid, "")]


def wait_for(what, seconds=300):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found = what()
        if found:
            return found
        time.sleep(0.2)
    raise SystemExit("waited in vain")


def began(there, rounds):
    """Say whether a round beyond so many has begun."""
    path = there.server / "ledger.jsonl"
    return path.is_file() and path.read_text().count('"state":"began"') > rounds


def kept_up(there, k):
    """Start a node again where it has ended, as a service manager does: a SuperLink refuses it until it misses the old one."""
    if there.started[f"node{k}"].poll() is not None:
        there.stop(f"node{k}")
        time.sleep(2)
        start_node(there, k)
    return True


def kill_in_turn(there, say):
    run(there)
    wait_for(lambda: began(there, 0))
    os.killpg(there.started["node1"].pid, signal.SIGKILL)
    there.stop("node1")
    say("killed node 1 in round 1")
    start_node(there, 1)
    wait_for(lambda: kept_up(there, 1) and began(there, 1))
    say("node 1 is back, round 2 has begun")
    for pid in wait_for(lambda: processes(there.started["node2"], "flwr-clientapp")):
        os.kill(pid, signal.SIGKILL)
    say("killed the client's process of node 2 in round 2")
    wait_for(lambda: began(there, 2))
    for pid in wait_for(lambda: processes(there.started["superlink"], "flwr-serverapp")):
        os.kill(pid, signal.SIGKILL)
    say("killed the server's process in round 3")
    time.sleep(2)
    check_alive(there, "superlink")
    run(there)


SERVERS = {"SuperLink": ("superlink", "flower-superlink"), "ServerApp": ("superlink", "flwr-serverapp")}
SITES = {"ClientApp": ("node0", "flwr-clientapp")}


def scan(there, parties, ended, found):
    """Search the memory of parties until the run has ended: for pieces of the secret key, and for what each has to know."""
    read = read_bfv_key if there.encryption.scheme == "bfv" else read_private_key
    pieces, agreed = pieces_of(read(there.sum_key)), [there.agreed.hash.encode()]
    pieces = pieces[:: max(1, len(pieces) // 12)]  # a search of some seconds
    while not ended.is_set():
        for party, (started, word) in parties.items():
            for pid in processes(there.started[started], word):
                of = found.setdefault(party, {"scans": 0, "knows": 0, "secret": 0})
                try:
                    of["secret"] = max(of["secret"], in_memory(pid, pieces))
                    of["knows"] += in_memory(pid, agreed)
                    of["scans"] += 1
                except OSError:  # it has ended meanwhile
                    continue
        time.sleep(1)


def scanned(there, say):
    run(there)
    found, ended = {}, threading.Event()
    scanning = [threading.Thread(target=scan, args=(there, parties, ended, found)) for parties in (SERVERS, SITES)]
    for one in scanning:
        one.start()
    try:
        watched(there, say)
        ended.wait(3)  # the server's process ends; its SuperLink holds what it holds
    finally:
        ended.set()
        for one in scanning:
            one.join()
    return found


def main(app, what):
    started = time.monotonic()

    def say(what):
        print(f"{time.monotonic() - started:.1f} s: {what}", file=sys.stderr, flush=True)

    with running(prepared(app)) as there:
        scans = {}
        if what == "kill":
            kill_in_turn(there, say)
            watched(there, say)
        elif what == "scan":
            scans = scanned(there, say)
        else:
            run(there)
            watched(there, say)
        seconds, refused = time.monotonic() - started, progress.there(there.server).refused
        print(json.dumps(result(there) | {"seconds": seconds, "refused": refused, "scans": scans}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:] or [""])

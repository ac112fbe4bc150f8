"""The commands for many machines, as the README of an exported app has them, run on this one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import textwrap
from pathlib import Path

import pytest
from replayed import study_of

import fedpareto
from fedpareto.deploy import machine
from fedpareto.deploy.drawn_up import draw_up
from fedpareto.deploy.export import DEMO, write_app
from fedpareto.deploy.local import STOPPING, free_port
from fedpareto.federation import blocks
from fedpareto.noise import derive

BIN = Path(fedpareto.__file__).parents[1] / ".venv-flower" / "bin"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not BIN.exists(), reason="`make flower` sets up an environment with Flower")]


def block(readme, begins):
    """Return the indented block of a README that begins with these words."""
    (found,) = [text for text in re.findall(r"(?:^    .*\n)+", readme, re.MULTILINE) if text.strip().startswith(begins)]
    return textwrap.dedent(found)


@contextlib.contextmanager
def started(where):
    """Let commands be started in the background; stop them in the end, and what they started."""
    running = []

    def start(command):
        with open(where["cwd"] / f"log{len(running)}", "wb") as log:
            running.append(subprocess.Popen(command, shell=True, stdout=log, stderr=log, start_new_session=True, **where))

    try:
        yield start
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for one in running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, number)
            for one in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    one.wait(STOPPING)


def test_the_readmes_commands_for_many_machines_run_on_this_one(tmp_path):
    study = study_of(tmp_path, data={"clients": 3}, training={"sample_ratio": 1.0, "rounds": 2})
    app, home = tmp_path / "app", tmp_path / "home"
    home.mkdir()
    write_app(draw_up(study, {}), tmp_path, machine.demo_of(blocks.setup_of(study.problem, derive(study.seed, "repeat", 0))), app)
    machine.write_sites(app / DEMO, tmp_path)
    readme = (app / "README.md").read_text()
    for there, here in {"SERVER": "localhost", "0.0.0.0": "127.0.0.1", "8000": str(free_port()), "/path/to/ca.crt": str(tmp_path / "ca.crt")}.items():
        readme = readme.replace(there, here)
    environment = {**os.environ, "HOME": str(home), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    where = {"cwd": tmp_path, "env": environment}

    def call(command, **changed):
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, timeout=400, **where | changed)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    with started(where) as start:
        once = block(readme, "openssl")
        call(once)
        for k in (1, 2):
            call(once.splitlines()[-1].replace("site0", f"site{k}"))
        start(block(readme, "flower-superlink"))
        (home / ".flwr").mkdir()
        (home / ".flwr" / "config.toml").write_text(block(readme, "[superlink.remote]"))
        for k in range(3):
            register = block(readme, "flwr supernode register").replace("site0", f"site{k}")
            call(f"for again in 1 2 3 4 5; do {register.strip()} && exit; sleep 3; done; exit 1")
            node = block(readme, "flower-supernode").replace("site0", f"site{k}").replace("client=0", f"client={k}")
            node = node.replace("/path/to/records.npz", f"{tmp_path}/site{k}.npz").replace("/path/to/state", f"{tmp_path}/state{k}")
            start(f"{node.strip()} --host 127.0.0.1 --port {free_port()}")  # each machine has a port of its own
        said = call(block(readme, "flwr run"), cwd=app)
    progress = json.loads((home / "small-server" / "progress.json").read_text())
    assert progress["done"], said
    assert (progress["rounds"], progress["answered"]) == (2, [3, 3])
    told = call(block(readme, "fedpareto ledger"))
    assert "2 of 2 planned rounds ended." in told

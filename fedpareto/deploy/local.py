"""Run an exported app on this machine: a SuperLink, a SuperNode for each site, TLS between them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpareto.deploy import deployment, export, machine, progress
from fedpareto.deploy.deployment import Deployment
from fedpareto.deploy.parts import encryption_of
from fedpareto.deploy.progress import Progress
from fedpareto.errors import DeploymentError, MissingPackage
from fedpareto.files import log_of, write_whole
from fedpareto.mechanisms import BatchCrypt

HOST = "127.0.0.1"
SUM_KEY = "sums.key"
AGREED = "agreed.sha256"  # of the deployment that a folder belongs to
NAME = "fedpareto-local"  # of the SuperLink in Flower's own configuration
STARTING = 60.0  # seconds that a SuperLink may take to listen
POLL = 0.3
LOOKING = 15.0  # seconds without news after which Flower is asked how the run is
REGISTER = ("flwr", "supernode", "register")
REGISTERING = 4  # of these at once
STOPPING = 10.0  # seconds that a process may take to end


@dataclass
class Local:
    """An app on this machine, and the processes that were started for it."""

    app: Path
    agreed: Deployment
    home: Path  # beside the app: certificates, keys, data, state and logs
    port: int = 0
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def server(self) -> Path:
        """Where the server keeps its state."""
        return self.home / "server"

    @property
    def encryption(self) -> BatchCrypt | None:
        """What encrypts sums; None where nothing does."""
        return encryption_of(self.agreed)

    @property
    def sum_key(self) -> Path:
        """The key that sites share, where sums are encrypted."""
        return self.home / SUM_KEY

    @property
    def model(self) -> Path:
        """The model that a run ends with: at the sites alone, where sums are encrypted."""
        holder = self.server if self.encryption is None else self.home / "client0"
        return holder / "model.safetensors"

    def environment(self) -> dict[str, str]:
        """Return the environment of Flower's programs: nothing is told to anybody else."""
        rest = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return {**os.environ, **rest, "FLWR_HOME": str(self.home / "flwr"), "PATH": places}

    def start(self, name: str, *command: str) -> None:
        """Start one of Flower's programs; what it says goes to a log of its own."""
        with log_of(self.home / "logs" / f"{name}.log") as log:
            self.started[name] = subprocess.Popen(
                [program(command[0]), *command[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment(),
                cwd=self.home,
                start_new_session=True,
            )

    def call(self, *command: str) -> str:
        """Run one of Flower's programs to its end; return what it said."""
        done = subprocess.run(
            [program(command[0]), *command[1:]],
            capture_output=True,
            text=True,
            env=self.environment(),
            cwd=self.home,
            check=False,
        )
        if done.returncode:
            raise DeploymentError(
                f"{' '.join(command[:3])}: must end well, found: "
                f"{(done.stdout + done.stderr).strip()[-500:]}"
            )
        return done.stdout

    def stop(self, *names: str) -> None:
        """Stop what was started under these names, and what that started itself."""
        ending = [self.started.pop(name) for name in names]
        for process in ending:
            _signal(process, signal.SIGTERM)
        for process in ending:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOPPING)
            _signal(process, signal.SIGKILL)  # also what it left behind
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def program(name: str) -> str:
    """Return one of Flower's programs, beside this Python."""
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise MissingPackage("flwr", "flower", "a deployment with Flower")
    return str(path)


def deploy(app: Path, say: Callable[[Progress], None] | None = None) -> dict[str, Any]:
    """Run an app to its end on this machine; return rounds, measures, model and ledger."""
    local = prepared(app)
    before = progress.there(local.server)
    if before is None or not before.done:
        with ended_by_signals(), running(local):
            local.call("flwr", "run", str(local.app), NAME, "--run-config", _config(local))
            watched(local, say)
    return result(local)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a request to end be an exception, as Ctrl-C is: what was started is stopped first."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
        return

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def running(local: Local) -> Iterator[Local]:
    """Start a SuperLink and the SuperNodes of an app; stop them in the end."""
    try:
        start_link(local)
        keys = [str(local.home / f"node{k}.pub") for k in range(local.agreed.clients)]
        with ThreadPoolExecutor(REGISTERING) as several:
            made = [several.submit(local.call, *REGISTER, key, NAME) for key in keys]
            for each in made:
                each.result()
        for k in range(local.agreed.clients):
            start_node(local, k)
        yield local
    finally:
        local.stop(*local.started)


def prepared(app: Path) -> Local:
    """Return an app with certificates, keys and data beside it, made the first time."""
    agreed = deployment.read(app / export.APP)
    program("flower-superlink")
    home = home_of(app)
    check_place(home, agreed)
    if not home.exists():
        _make_home(agreed, app, home)
    local = Local(app.resolve(), agreed, home, free_port())
    told = f"""[superlink]
default = "{NAME}"

[superlink.{NAME}]
address = "{HOST}:{local.port}"
root-certificates = "{home / "ca.crt"}"
"""
    write_whole(home / "flwr" / "config.toml", told.encode())
    return local


def check_place(home: Path, agreed: Deployment) -> None:
    """Refuse a place whose name Flower cannot be told, and a folder of something else."""
    odd = sorted({letter for letter in str(home) if letter in "\"'\\" or not letter.isprintable()})
    if odd:
        raise DeploymentError(
            f"{home}: must be a path without quotes, backslashes and letters that cannot be "
            f"printed, found {odd[0]!r}: Flower could not read it. Move the app."
        )
    whose = home / AGREED
    if home.exists() and not (whose.is_file() and whose.read_bytes() == agreed.hash.encode()):
        found = "that of another" if whose.is_file() else "something else, which would be lost"
        raise DeploymentError(
            f"{home}: must be a new folder or one of this deployment, found {found}. Move it away, "
            "or rename the app."
        )


def _make_home(agreed: Deployment, app: Path, home: Path) -> None:
    """Make certificates, keys and data in a new folder, which appears whole."""
    made = Path(tempfile.mkdtemp(dir=home.parent, prefix=".fedpareto-", suffix=".part"))
    try:
        for name in ("logs", "flwr", "server"):
            (made / name).mkdir()
        write_whole(made / AGREED, agreed.hash.encode())
        machine.write_certificates(made)
        for k in range(agreed.clients):
            machine.write_node_key(made, f"node{k}")
        encryption = encryption_of(agreed)
        if encryption is not None:
            machine.write_sum_key(encryption, made / SUM_KEY)
        machine.write_sites(app / export.DEMO, made)
        made.rename(home)
    except BaseException:
        shutil.rmtree(made)
        raise


def home_of(app: Path) -> Path:
    """Return the folder beside an app that holds all of its run on this machine."""
    return app.resolve().parent / f"{app.resolve().name}-local"


def start_link(local: Local) -> None:
    """Start the SuperLink and wait until it listens."""
    home = local.home
    local.start(
        "superlink",
        "flower-superlink",
        *("--host", HOST, "--port", str(local.port)),
        *("--ssl-ca-certfile", str(home / "ca.crt"), "--ssl-certfile", str(home / "server.pem")),
        *("--ssl-keyfile", str(home / "server.key"), "--enable-supernode-auth"),
        "--disable-runtime-dependency-installation",
    )
    ends = time.monotonic() + STARTING
    while time.monotonic() < ends:
        check_alive(local, "superlink")
        with contextlib.suppress(OSError), socket.create_connection((HOST, local.port), 1):
            return
        time.sleep(POLL)
    raise DeploymentError(f"SuperLink: must listen within {STARTING:g} seconds, found it does not.")


def start_node(local: Local, k: int) -> None:
    """Start the SuperNode of one site."""
    told: list[tuple[str, Any]] = [
        ("client", k),
        ("deployment", f'"{local.agreed.hash}"'),
        ("data", f'"{local.home / f"site{k}.npz"}"'),
        ("folder", f'"{local.home / f"client{k}"}"'),
    ]
    if local.encryption is not None:
        told.append(("key", f'"{local.sum_key}"'))
    local.start(
        f"node{k}",
        "flower-supernode",
        *("--superlink", f"{HOST}:{local.port}", "--root-certificates"),
        *(str(local.home / "ca.crt"), "--host", HOST, "--port", str(free_port())),
        *("--auth-supernode-private-key", str(local.home / f"node{k}")),
        *("--node-config", " ".join(f"{name}={value}" for name, value in told)),
    )


def watched(local: Local, say: Callable[[Progress], None] | None = None) -> None:
    """Wait until the run has ended; refuse one that failed."""
    seen = progress.there(local.server)
    asked = time.monotonic()
    while True:
        found = progress.there(local.server)
        if found is not None and found != seen:
            seen, asked = found, time.monotonic()
            if say:
                say(found)
            if found.done:
                return
            if found.why:
                raise DeploymentError(found.why)
        for name in list(local.started):
            check_alive(local, name)
        if time.monotonic() > asked + LOOKING:
            check_run(local, seen)
            asked = time.monotonic()
        time.sleep(POLL)


def check_alive(local: Local, name: str) -> None:
    """Refuse to go on where a process has ended."""
    process = local.started.get(name)
    if process is not None and process.poll() is not None:
        raise DeploymentError(
            f"{name}: must run to the end, found that it ended with {process.returncode}: "
            f"{last_words(local, name)}"
        )


def last_words(local: Local, name: str) -> str:
    """Return the end of a process's log."""
    return (local.home / "logs" / f"{name}.log").read_text(errors="replace").strip()[-800:]


def result(local: Local) -> dict[str, Any]:
    """Return what a deployment came to."""
    from fedpareto.deploy.pricing import price

    found = progress.there(local.server)
    assert found is not None
    return {
        "rounds": found.rounds,
        "measures": list(found.measures),
        "model": str(local.model),
        "ledger": price(local.server / "ledger.jsonl"),
    }


def free_port() -> int:
    """Return a port on loopback that nobody uses."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def _config(local: Local) -> str:
    told = f'folder="{local.server}"'
    if local.encryption is None:
        return told
    return f'{told} public-key="{machine.public_of(local.sum_key)}"'


def check_run(local: Local, seen: Progress | None) -> None:
    """Refuse to wait for a run that Flower says has ended without a result."""
    told = json.loads(local.call("flwr", "ls", NAME, "--format", "json"))
    states = [str(run.get("status")) for run in told.get("runs", [])]
    ended = states and all(state.startswith("finished") for state in states)
    if ended and progress.there(local.server) == seen:  # it may have ended well since the last look
        raise DeploymentError(
            f"run: must end with a result, found that Flower says {states[0]}: "
            f"{last_words(local, 'superlink')}"
        )

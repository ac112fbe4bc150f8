"""Write a deployment as a Flower app."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fedpareto import __version__
from fedpareto.deploy.deployment import FILE, Deployment
from fedpareto.deploy.parts import encryption_of
from fedpareto.errors import OutputError
from fedpareto.files import write_whole
from fedpareto.privacy.statement import rounded_up

APP = "flower_app"  # the package in the folder
DEMO = "demo.json"  # the study's own data, for a trial on one machine
EXTRAS = {"bfv": "lattice", "paillier": "encryption"}  # what a scheme needs
LONGEST = 60  # letters of a name that becomes one of folders too
SOURCES = Path(__file__).parent / "flower"
FILES = ("__init__.py", "client_app.py", "server_app.py", "site.py", "task.py")


def write_app(agreed: Deployment, code: Path | None, demo: dict[str, Any], folder: Path) -> None:
    """Write the app into a new or empty folder; code is where the user's own modules are."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(
            f"{folder}: must be a new folder or an empty one, found something there. Name another."
        )
    taken = [name for name in agreed.code if name in FILES]
    if taken:
        raise OutputError(
            f"{taken[0]}: must not be called as a file of the app, {', '.join(FILES)}, found code "
            "of your own of that name. Rename the module, and name it so in the study."
        )
    app = folder / APP
    app.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        write_whole(app / name, (SOURCES / name).read_bytes())
    for name in agreed.code:
        assert code is not None
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(app / name, (code / name).read_bytes())
    write_whole(app / FILE, agreed.text().encode())
    write_whole(folder / DEMO, (json.dumps(demo, indent=1, sort_keys=True) + "\n").encode())
    write_whole(folder / "pyproject.toml", _pyproject(agreed).encode())
    write_whole(folder / "README.md", _readme(agreed).encode())


def slug(name: str) -> str:
    """Return a name that a Python project may have."""
    found = re.sub(r"[^a-z0-9]+", "-", name.lower())[:LONGEST].strip("-")
    return found or "federation"


def _package(agreed: Deployment) -> str:
    """Return what every party installs."""
    encryption = encryption_of(agreed)
    extras = "flower" if encryption is None else f"flower,{EXTRAS[encryption.scheme]}"
    return f"fedpareto[{extras}]=={__version__}"


def _pyproject(agreed: Deployment) -> str:
    name = slug(agreed.name)
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "A federation drawn up by fedpareto"
license = "Apache-2.0"
dependencies = ["{_package(agreed)}"]

[tool.hatch.build.targets.wheel]
packages = ["{APP}"]

[tool.flwr.app]
publisher = "fedpareto"
fab-exclude = ["{DEMO}"]

[tool.flwr.app.components]
serverapp = "{APP}.server_app:app"
clientapp = "{APP}.client_app:app"

[tool.flwr.app.config]
folder = "~/{name}-server"  # where the server keeps its state and its ledger
public-key = ""  # the public file of the sites' key, where sums are encrypted
"""


def _readme(agreed: Deployment) -> str:
    planned = ", ".join(
        f"{view} {rounded_up(e) if e is not None else 'none'}" for view, e in agreed.planned.items()
    )
    promised = "\n".join(f"- {line}" for line in agreed.statements)
    return f"""# {slug(agreed.name)}: a federation drawn up by fedpareto

{agreed.clients} sites, {agreed.rounds} rounds. Planned ε by who looks on: {planned}.

{promised}

All parties get this folder. Its settings are `{APP}/{FILE}`, of SHA-256
`{agreed.hash}`; a site refuses a server that goes by other settings, other code,
more rounds or larger cohorts. The code to review is `{APP}`; mechanism, contract and ledger are
fedpareto's own, the same that the study ran.

## On one machine

    pip install '{_package(agreed)}'
    fedpareto deploy . --local {agreed.clients}

The study's data are dealt to {agreed.clients} SuperNodes, with TLS and a key for each.

{_many_machines(agreed)}{_keys(agreed)}## What really happened

    fedpareto ledger ~/{slug(agreed.name)}-server/ledger.jsonl

says which ε was really spent, beside the plan. Every site has a ledger of its own in its folder.
{_told(agreed)}"""


def _many_machines(agreed: Deployment) -> str:
    return f"""## On many machines

Install the same at every party: `pip install '{_package(agreed)}'`.
SERVER stands for the server's name. It needs a certificate that the sites trust: your
organisation's, or one that it signs itself, for 127.0.0.1 too, where the SuperLink's own processes
reach it. Each site needs a key of its own; its public half goes to the server:

    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 90 \\
        -subj /CN=SERVER -addext subjectAltName=DNS:SERVER,IP:127.0.0.1 \\
        -keyout server.key -out server.pem
    cp server.pem ca.crt                          # goes to every site
    ssh-keygen -q -t ecdsa -b 384 -N '' -f site0  # at a site: site0 and site0.pub

At the server:

    flower-superlink --host 0.0.0.0 --port 8000 --enable-supernode-auth \\
        --ssl-ca-certfile ca.crt --ssl-certfile server.pem --ssl-keyfile server.key \\
        --disable-runtime-dependency-installation

Whoever starts the run names the server in Flower's own file, `~/.flwr/config.toml`,

    [superlink.remote]
    address = "SERVER:8000"
    root-certificates = "/path/to/ca.crt"

and registers the public key of each site:

    flwr supernode register site0.pub remote

At each site, with a number of its own from 0 to {agreed.clients - 1}, its key, a folder of its own
that it keeps, and its records as `load_site` in `{APP}/site.py` reads them:

    flower-supernode --superlink SERVER:8000 --root-certificates ca.crt \\
        --auth-supernode-private-key site0 \\
        --node-config '{_node_config(agreed)}'

`deployment` is what this site agreed to: another is refused. Flower lets
whoever starts a run send the app's code, so a site that does not trust the server should accept
signed apps alone (Flower's --trusted-entities), after a look at `{APP}`.

Then start the run, in this folder:

    flwr run . remote --stream

`flwr run` returns 0 even where the run failed: look at progress.json in the server's folder. A
server or a site that was stopped goes on where it was when it is started again with its folder. For
about a minute a SuperLink refuses a SuperNode that was killed, which then ends with code 305: let a
service manager start it until it stays.

"""


def _node_config(agreed: Deployment) -> str:
    """Return how a site is told who it is and what it agreed to."""
    places = 'data="/path/to/records.npz" folder="/path/to/state"'
    return f'client=0 {places} deployment="{agreed.hash}"'


def _keys(agreed: Deployment) -> str:
    encryption = encryption_of(agreed)
    if encryption is None:
        return ""
    bits = "" if encryption.scheme == "bfv" else f" --bits {encryption.key_bits}"
    return f"""## Keys of encrypted sums

The server adds what it cannot read. One site makes the key and hands it to the other sites, by a
way that the server cannot read; the server gets sums.key.pub alone:

    fedpareto keys make sums.key --scheme {encryption.scheme}{bits}

Sites add `key="/path/to/sums.key"` to --node-config, the server starts the run with
`--run-config 'public-key="/path/to/sums.key.pub"'`. The model is at the sites: model.safetensors
in the folder of each.

"""


def _told(agreed: Deployment) -> str:
    if not agreed.tells:
        return ""
    return (
        "\nSites that have records for testing tell how many of them a model gets wrong. No ε\n"
        "counts this: leave x_test out in `load_site` where that must not be told.\n"
    )

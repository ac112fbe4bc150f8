"""No secret key is in the memory or among the files of a deployment's server; the same scan finds it at the sites."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from memory import in_memory, pieces_of
from replayed import study_of

import fedpareto.deploy
from fedpareto.crypto import BfvKey, PrivateKey, write_private_key, write_public_key
from fedpareto.deploy import deployment
from fedpareto.deploy.drawn_up import draw_up

BATCHCRYPT = {"name": "batchcrypt", "encryption_batch": 100}


class Party:
    """A process of `one_party.py`."""

    def __init__(self, side, folder, key):
        script = str(Path(__file__).parent / "one_party.py")
        self.process = subprocess.Popen([sys.executable, script, side, str(folder), str(key)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, found):
        pickle.dump(found, self.process.stdin)
        self.process.stdin.flush()

    def hear(self):
        return pickle.load(self.process.stdout)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="memory is looked at by way of /proc")
@pytest.mark.parametrize(("scheme", "rounds"), [("bfv", 1), pytest.param("bfv", 3, marks=pytest.mark.slow), pytest.param("paillier", 2, marks=pytest.mark.slow)])
def test_no_secret_key_is_in_the_servers_memory_or_files_and_it_is_in_the_sites(tmp_path, scheme, rounds):
    key = BfvKey.generate() if scheme == "bfv" else PrivateKey.generate(2048)
    (tmp_path / "keys").mkdir()
    write_private_key(key, tmp_path / "keys" / "key")
    write_public_key(key.public, tmp_path / "key.pub")
    study = study_of(tmp_path, mechanism={**BATCHCRYPT, "scheme": scheme}, model={"name": "mlp", "hidden": [4]},
                     data={"clients": 3}, training={"sample_ratio": 1.0, "rounds": rounds})
    drawn = draw_up(study, {}, tells=False)
    (tmp_path / deployment.FILE).write_text(drawn.text())
    pieces = pieces_of(key)
    server, sites = Party("server", tmp_path, tmp_path / "key.pub"), Party("sites", tmp_path, tmp_path / "keys" / "key")
    try:
        found, seen, most = server.hear(), 0, 0
        while found[0] == "ask":
            sites.tell(found[1])
            answers = sites.hear()
            most = max(most, in_memory(sites.process.pid, pieces))
            server.tell(answers)
            found = server.hear()
            seen += in_memory(server.process.pid, pieces)
        assert found == ("done", rounds)
        assert most >= 2  # the control: the scan finds what is there
        assert seen == 0
    finally:
        server.end()
        sites.end()
    files = [p.read_bytes() for folder in ("server", ".") for p in (tmp_path / folder).glob("*") if p.is_file()]
    assert len(files) >= 5
    assert not any(piece in data for piece in pieces for data in files)
    assert any(piece in (tmp_path / "keys" / "key").read_bytes() for piece in pieces)


def test_the_servers_code_names_nothing_that_reads_or_holds_a_secret_key():
    """Nothing that its modules import by name could read a private key file or make a key."""
    secret = {"PrivateKey", "BfvKey", "BfvClient", "PaillierClient", "SCHEMES", "read_private_key", "read_bfv_key", "read_any"}
    folder = Path(fedpareto.deploy.__file__).parent
    for name in ("encrypted_server", "encrypted", "server", "serving", "accepted"):
        tree = ast.parse((folder / f"{name}.py").read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert not names & secret, name
    client = ast.parse((folder / "encrypted_client.py").read_text())
    assert {alias.name for node in ast.walk(client) if isinstance(node, ast.ImportFrom) for alias in node.names} & secret

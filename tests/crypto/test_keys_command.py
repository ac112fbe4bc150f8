"""`fedpareto keys`: keys are made, shown and tried, and no secret is ever printed."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from fedpareto.crypto import (
    BfvKey,
    PrivateKey,
    read_bfv_key,
    read_private_key,
    write_private_key,
    write_public_key,
)
from fedpareto.crypto.keycheck import check, look
from fedpareto.errors import BadKey

KEY = PrivateKey.generate(2048)
LATTICE = BfvKey.generate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a key of each scheme and its public half."""
    for name, key in (("p", KEY), ("b", LATTICE)):
        write_private_key(key, tmp_path / name)
        write_public_key(key.public, tmp_path / f"{name}.pub")
    return tmp_path


@pytest.mark.parametrize("scheme", ["paillier", "bfv"])
def test_a_key_is_made_shown_and_tried(tmp_path, fedpareto, scheme):
    path = tmp_path / "key"
    bits = ("--bits", "2048") if scheme == "paillier" else ()
    made = fedpareto("keys", "make", path, "--scheme", scheme, *bits, "--json")
    private, public = json.loads(made.out)["keys"]
    assert (private["scheme"], private["secret"], private["mode"]) == (scheme, True, "600")
    assert (public["path"], public["secret"]) == (f"{path}.pub", False)
    assert private["fingerprint"] == public["fingerprint"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    tried = fedpareto("keys", "check", path, "--public", f"{path}.pub")
    assert (tried.status, tried.out.splitlines()[-1]) == (0, f"It works, and {path}.pub is its public half.")
    read = read_private_key if scheme == "paillier" else read_bfv_key
    secret = f"{read(path).p:x}" if scheme == "paillier" else read(path).secret[150_000:150_016].hex()
    for said in (made, tried, fedpareto("keys", "show", path)):
        assert secret not in said.out + said.err


def test_nothing_is_written_over(folder, fedpareto):
    (folder / "new.pub").write_text("mine")
    for name, found in (("p", "p"), ("new", "new.pub")):
        said = fedpareto("keys", "make", folder / name)
        assert said.status == 2
        assert f"FILE: must be new, found {folder / found}. A key is never written over" in said.err
    assert not (folder / "new").exists()
    assert read_private_key(folder / "p") == KEY


def test_two_keys_are_never_the_same():
    assert len({BfvKey.generate().secret for _ in range(3)} | {PrivateKey.generate(512, allow_insecure=True).p for _ in range(3)}) == 6


def test_a_public_half_of_another_key_or_a_private_one_is_refused(folder):
    with pytest.raises(BadKey, match=r"must be the public half of key \w{8}, found that of key"):
        check(folder / "b", folder / "p.pub")
    with pytest.raises(BadKey, match=r"must be the public half of key \w{8}, found a private key"):
        check(folder / "b", folder / "b")
    with pytest.raises(BadKey, match="must be a private key to be tried, found a public one"):
        check(folder / "p.pub")


def test_a_secret_that_does_not_belong_to_its_public_half_is_found(tmp_path):
    """The parts of two keys in one file, with a checksum that fits."""
    from fedpareto.crypto.lattice import SECRET, _key_bytes, _opened

    other = BfvKey.generate()
    mixed = _key_bytes(SECRET, 20, _opened(SECRET, other.secret)[1][0], _opened(SECRET, LATTICE.secret)[1][1])
    (tmp_path / "key").write_bytes(mixed)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(BadKey, match="a sum must decrypt to what was added, found other numbers: the halves of this key"):
        check(tmp_path / "key")


def test_what_is_shown_names_the_strength(folder):
    assert [look(folder / name).security for name in ("p", "p.pub", "b", "b.pub")] == [112, 112, 128, 128]
    assert look(folder / "p").bits == 2048


def test_a_file_that_others_may_read_is_refused(folder, fedpareto):
    (folder / "b").chmod(0o644)
    said = fedpareto("keys", "check", folder / "b")
    assert said.status == 2
    assert "must be readable by its owner alone, found mode 644" in said.err


@pytest.mark.parametrize(("scheme", "bits", "message"), [("paillier", 1024, "at least 2048 bits, found 1024"), ("bfv", 41, "from 17 to 40, found 41")])
def test_a_weak_or_odd_key_is_not_made(tmp_path, fedpareto, scheme, bits, message):
    said = fedpareto("keys", "make", tmp_path / "key", "--scheme", scheme, "--bits", bits)
    assert said.status == 2
    assert message in said.err
    assert list(tmp_path.iterdir()) == []

"""The card of a deployed model says what was planned and what really happened; an encrypted app says how keys are made."""

from __future__ import annotations

import hashlib
import tomllib

import pytest
from replayed import World, study_of

from fedpareto import __version__
from fedpareto.crypto import BfvKey, write_private_key, write_public_key
from fedpareto.crypto.keycheck import check
from fedpareto.deploy.drawn_up import draw_up
from fedpareto.deploy.export import write_app
from fedpareto.deploy.ledger import read
from fedpareto.deploy.machine import write_sum_key
from fedpareto.deploy.parts import encryption_of
from fedpareto.deploy.said import words

BFV = {"name": "batchcrypt", "scheme": "bfv"}


def test_the_card_carries_the_ledger_and_the_hash_of_the_weights(tmp_path):
    world = World(study_of(tmp_path), tmp_path, replay=False)
    assert world.serve().done
    server = tmp_path / "server"
    card = (server / "model.md").read_text()
    assert card.startswith("# Model card: small, deployed\n")
    plain = card.replace("\\", "")
    for line in (*words(server / "ledger.jsonl"), *world.agreed.statements):
        assert line in plain
    assert hashlib.sha256((server / "model.safetensors").read_bytes()).hexdigest() in card
    assert world.agreed.hash in card
    assert read(server / "ledger.jsonl").last in card
    assert "| mechanism.noise_multiplier | 0.5 |" in plain


def test_the_card_of_encrypted_sums_says_where_the_model_is(tmp_path):
    key = BfvKey.generate()
    write_private_key(key, tmp_path / "key")
    write_public_key(key.public, tmp_path / "key.pub")
    world = World(study_of(tmp_path, mechanism=BFV, training={"rounds": 1}), tmp_path, replay=False, key=tmp_path / "key")
    assert world.serve().done
    card = (tmp_path / "server" / "model.md").read_text()
    assert "The model is at the sites: the server added what it cannot read." in card
    assert "SHA-256 of the weights" not in card
    assert "nothing bounds it" in card


@pytest.mark.parametrize(("scheme", "extra"), [("bfv", "lattice"), ("paillier", "encryption")])
def test_an_app_with_encrypted_sums_says_what_to_install_and_how_keys_are_made(tmp_path, scheme, extra):
    agreed = draw_up(study_of(tmp_path, mechanism={**BFV, "scheme": scheme}), {})
    write_app(agreed, tmp_path, {}, tmp_path / "app")
    assert f"fedpareto keys make sums.key --scheme {scheme}" in (tmp_path / "app" / "README.md").read_text()
    needed = f"fedpareto[flower,{extra}]=={__version__}"
    assert (tmp_path / "app" / "README.md").read_text().count(f"pip install '{needed}'") == 2
    assert tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["project"]["dependencies"] == [needed]
    write_sum_key(encryption_of(agreed), tmp_path / "sums.key")
    assert check(tmp_path / "sums.key", tmp_path / "sums.key.pub").scheme == scheme


def test_an_app_without_encryption_has_no_word_of_keys(tmp_path):
    agreed = draw_up(study_of(tmp_path), {})
    write_app(agreed, tmp_path, {}, tmp_path / "app")
    assert "keys make" not in (tmp_path / "app" / "README.md").read_text()

"""Rows that must not change: twelve small studies, every mechanism, split, sampling and optimizer among them."""

from __future__ import annotations

import json

import pytest
from golden.make import ROWS, STUDIES, fingerprint, rows_of, study

from fedpareto import Store, verify
from fedpareto.federation.split import SPLITS
from fedpareto.mechanisms import MECHANISMS
from fedpareto.optimizers import OPTIMIZERS

KEPT = json.loads(ROWS.read_text())
SAME_MACHINE = KEPT["fingerprint"] == fingerprint()  # another torch or processor rounds differently


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_is_what_it_was(name, tmp_path):
    db = tmp_path / "golden.db"
    found = rows_of(name, db)
    with Store.read(db) as store:
        assert list(verify(study(name), store)) == []
    if SAME_MACHINE:
        assert found == KEPT["studies"][name]
    else:  # proposals may then go other ways after the first batch, which depends on nothing measured
        first, kept = found[0], KEPT["studies"][name][0]
        assert first["settings"] == kept["settings"]
        for measure, value in kept["measures"].items():
            if value is not None:
                assert first["measures"][measure] == pytest.approx(value, rel=0.05, abs=0.02, nan_ok=True), measure


def test_the_studies_cover_every_alternative():
    used = [study(name).description for name in STUDIES]
    links = [link["name"] for d in used for link in d["mechanism"].get("links", [d["mechanism"]])]
    assert {*links, "chain"} == set(MECHANISMS)
    assert {d["optimizer"]["name"] for d in used} == set(OPTIMIZERS)
    assert {d["data"]["split"] for d in used} == set(SPLITS)
    assert {d["training"]["sampling"] for d in used} == {"fixed", "poisson"}
    assert len(STUDIES) == 12

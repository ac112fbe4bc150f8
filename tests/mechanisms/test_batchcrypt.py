"""Encrypted sums: simulation and true encryption agree, and the codec's limits hold in a study."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedpareto.crypto import clip_of, quantise
from fedpareto.errors import SettingError
from fedpareto.federation import Cost, Data, Federation, Mlp, Training
from fedpareto.federation.facts import Facts
from fedpareto.federation.models import Lenet
from fedpareto.mechanisms import BatchCrypt, Chain, Quantization, Randomization, Upload
from fedpareto.mechanisms.batchcrypt import BFV_BYTES, bytes_of
from fedpareto.noise import Noise
from fedpareto.problem import Objective
from fedpareto.settings import fixed
from fedpareto.space import Choice, Float, Integer
from fedpareto.testing import check_mechanism


def upload(R=2, K=3, P=250, seed=0, exists=None):
    draw = torch.Generator().manual_seed(seed)
    one = torch.ones(R, K)
    values = torch.randn(R, K, P, generator=draw)
    return Upload(values if exists is None else values * exists[:, None], one * P, one * 32, one * 0, exists=exists)


def protect(mechanism, given=None, **values):
    given = given or upload()
    columns = {name: torch.tensor(v) for name, v in ({"encryption_batch": [100.0] * len(given.values)} | values).items()}
    return mechanism.protect(given, columns, Noise(4, 1, range(given.values.shape[1])))


@pytest.mark.parametrize("mechanism", [BatchCrypt(), BatchCrypt(400), BatchCrypt(800, degree=2), BatchCrypt(scheme="bfv")])
def test_it_keeps_the_contract(mechanism):
    check_mechanism(mechanism)


@pytest.mark.parametrize("mechanism", [BatchCrypt(), BatchCrypt(degree=2), BatchCrypt(scheme="bfv"), BatchCrypt(key_bits=3072)])
def test_true_encryption_gives_the_same_bits(mechanism):
    from dataclasses import replace
    exists = (torch.arange(250) % 7 > 0).float().expand(2, -1)
    for given in (upload(), upload(exists=exists)):
        plain, true = protect(mechanism, given), protect(replace(mechanism, encrypt=True), given)
        assert torch.equal(plain.values, true.values)
        assert float(plain.values.abs().max()) > 0


def test_every_client_s_numbers_are_those_of_the_codec_by_numpy():
    given = upload(R=1)
    mechanism = BatchCrypt(200)
    codec = mechanism.codec(200, 3)
    updates = given.values[0].double().numpy()
    uniform = Noise(4, 1, range(3)).uniform(250).double().numpy()
    clip = float(clip_of(updates.reshape(1, -1), codec.magnitude)[0])
    numbers = np.stack([quantise(u, clip, codec.magnitude, d) for u, d in zip(updates, uniform, strict=True)])
    expected = numbers.sum(0) * clip / (codec.magnitude * 3)
    out = protect(mechanism, given, encryption_batch=[200.0])
    np.testing.assert_allclose(out.values[0, 0].numpy(), expected, rtol=1e-6, atol=1e-9)


def test_who_does_not_take_part_counts_for_nothing():
    given = upload(R=1)
    alone = Upload(given.values[:, :2], given.count[:, :2], given.bits[:, :2], given.seconds[:, :2])
    together = protect(BatchCrypt(), given, participants=[2.0], summands=[3.0])
    apart = BatchCrypt().protect(alone, {"encryption_batch": torch.tensor([100.0]), "summands": torch.tensor([3.0])}, Noise(4, 1, range(2)))
    assert torch.equal(together.values[:, 0], apart.values[:, 0])


def test_a_larger_batch_is_cheaper_and_coarser():
    given, true = upload(R=3, P=4000), upload(R=3, P=4000).values.mean(1)
    out = protect(BatchCrypt(), given, encryption_batch=[100.0, 200.0, 400.0], encrypt_seconds=[1.0] * 3, decrypt_seconds=[2.0] * 3,
                  add_seconds=[0.5] * 3)
    assert out.seconds[:, 0].tolist() == [40.0, 20.0, 10.0]
    assert out.reading[:, 0].tolist() == [80.0, 40.0, 20.0]
    assert out.adding.tolist() == [40.0, 20.0, 10.0]
    assert out.total_bits[:, 0].tolist() == pytest.approx([40 * 4096, 20 * 4096, 10 * 4096])
    error = (out.values[:, 0] - true).square().mean(1)
    assert float(error[0]) < float(error[1]) < float(error[2])


def test_an_update_of_nothing_stays_nothing():
    given = upload()
    still = Upload(given.values * 0, given.count, given.bits, given.seconds)
    assert float(protect(BatchCrypt(), still).values.abs().max()) == 0


def test_the_bytes_charged_are_the_bytes_sent():
    from fedpareto.crypto import BfvClient, BfvCodec, BfvKey
    sent = BfvClient(BfvKey.generate(), BfvCodec(5)).encrypt(np.random.default_rng(0).integers(-100, 100, 4096 * 4)).to_bytes()
    assert pytest.approx(len(sent), rel=2e-3) == 4 * BFV_BYTES
    assert bytes_of(BatchCrypt().codec(100, 5)) == 512
    assert bytes_of(BatchCrypt(degree=2).codec(100, 5)) == 768


DATA = Data("digits", 4)


def federation(mechanism, rounds=3, cost=None, objectives=("test_error",), **training):
    settings = {"learning_rate": 0.3, "local_epochs": 1, "batch_size": 32, "rounds": rounds} | training
    return Federation(DATA, Mlp((8,)), Training(**settings), mechanism, tuple(map(Objective, objectives)), cost=cost or Cost())


@pytest.mark.parametrize("mechanism", [BatchCrypt(), BatchCrypt(scheme="bfv"), Chain((Randomization(0.01), BatchCrypt(200)))])
def test_a_federation_with_true_encryption_has_the_same_models(mechanism):
    from fedpareto.study import Study, encrypted
    problem = federation(mechanism)
    study = Study("s", problem, None, 1, description={"mechanism": {"name": "batchcrypt"}})
    plain, true = problem.measure({}, [3]), encrypted(study).problem.measure({}, [3])
    assert plain.keys() == true.keys()
    for name, column in plain.items():
        np.testing.assert_array_equal(column, true[name], err_msg=name)


def test_costs_follow_the_model():
    cost = Cost(step_seconds=0.0, parameter_seconds=0.0, encrypt_seconds=1.0, decrypt_seconds=10.0, add_seconds=0.1, pack_seconds=0.0)
    got = federation(BatchCrypt(100), cost=cost).measure({}, [0])
    parameters = 64 * 8 + 8 + 8 * 10 + 10
    ciphertexts = -(-parameters // 100)
    assert got["training_seconds"][0] == pytest.approx(3 * ciphertexts)
    assert got["kang23_eq14"][0] == pytest.approx(3 * ciphertexts * (1 + 0.1 * 3))
    assert got["decryption_seconds"][0] == pytest.approx(30 * ciphertexts)
    assert got["upload_bytes"][0] == pytest.approx(3 * 4 * ciphertexts * 512)
    assert got["download_bytes"][0] == pytest.approx(3 * 4 * ciphertexts * 512)
    phe = federation(BatchCrypt(100), cost=Cost(step_seconds=0.0, parameter_seconds=0.0, encryption="phe", pack_seconds=0.0))
    assert phe.measure({}, [0])["training_seconds"][0] == pytest.approx(3 * ciphertexts * 9.21e-3, rel=1e-6)


@pytest.mark.parametrize("mechanism", [BatchCrypt(scheme="bfv"), Chain((Quantization(8), BatchCrypt(scheme="bfv")))])
def test_lattices_are_not_charged_what_phe_takes_for_paillier(mechanism):
    with pytest.raises(SettingError, match=r'cost.encryption: must be calibrated with scheme = "bfv", found phe'):
        federation(mechanism, cost=Cost(encryption="phe"))
    assert federation(mechanism, cost=Cost(encryption="calibrated")).mechanism == mechanism


def test_a_longer_key_is_charged_in_a_chain_too():
    phe = Cost(step_seconds=0.0, parameter_seconds=0.0, encryption="phe", pack_seconds=0.0)
    alone, chained = (federation(m, cost=phe).measure({}, [0])["training_seconds"][0]
                      for m in (BatchCrypt(100, key_bits=3072), Chain((Randomization(0.1), BatchCrypt(100, key_bits=3072)))))
    assert chained == pytest.approx(alone)
    assert alone > 2 * federation(BatchCrypt(100), cost=phe).measure({}, [0])["training_seconds"][0]


@pytest.mark.parametrize("encryption", ["calibrated", "phe"])
@pytest.mark.parametrize("chained", [False, True])
def test_ciphertexts_of_degree_two_are_charged_what_they_take(encryption, chained):
    cost = Cost(step_seconds=0.0, parameter_seconds=0.0, encryption=encryption, pack_seconds=0.0)

    def spent(mechanism):
        return federation(Chain((Randomization(0.1), mechanism)) if chained else mechanism, cost=cost).measure({}, [0])

    one, two = spent(BatchCrypt(100)), spent(BatchCrypt(100, degree=2))
    for measure, factor in (("training_seconds", 1.3), ("decryption_seconds", 2.2)):
        assert two[measure] == pytest.approx(factor * one[measure])
    adding = [found["kang23_eq14"] - found["training_seconds"] for found in (one, two)]
    assert adding[1] == pytest.approx(1.8 * adding[0], rel=1e-4)
    if encryption == "phe":  # which has no lattices
        return
    lattice = [spent(BatchCrypt(100, scheme="bfv", degree=d))["training_seconds"] for d in (1, 2)]
    assert lattice[0] == lattice[1]


def test_what_is_calibrated_at_degree_two_is_charged_as_it_was_measured(monkeypatch):
    from fedpareto.federation import calibrate
    took = {"encrypt_seconds": 0.4, "decrypt_seconds": 3.0, "add_seconds": 0.01, "pack_seconds": 1e-8}
    monkeypatch.setattr(calibrate, "encryption_seconds", lambda *_: took)
    charged = calibrate.calibrate(federation(BatchCrypt(100, degree=2)), seconds=0.01).charged(2048, 2)
    assert charged == pytest.approx(took, rel=1e-3)


def test_a_database_in_which_degree_two_was_charged_as_one_does_not_go_on(tmp_path):
    from fedpareto import run
    from fedpareto.errors import ChangedStudy
    from fedpareto.optimizers import Random
    from fedpareto.store.identity import check_same
    from fedpareto.study import Study
    rate = Float("learning_rate", 0.1, 0.3)

    def study(mechanism):
        return Study("s", federation(mechanism, learning_rate=rate), Random(batch=1), 1)

    now = study(BatchCrypt(degree=2)).identity
    before = {**now, "problem": {**now["problem"], "mechanism": {**now["problem"]["mechanism"], "degree": 2}}}
    with pytest.raises(ChangedStudy, match=r"mechanism.degree \(.*2, charged as such"):
        check_same(tmp_path / "a.db", before, now)
    chained = study(Chain((Quantization(8), BatchCrypt(degree=2)))).identity["problem"]["mechanism"]["links"]
    assert chained[1]["degree"] == "2, charged as such"
    assert study(BatchCrypt()).identity["problem"]["mechanism"]["degree"] == 1  # these go on
    run(study(BatchCrypt(degree=2)), tmp_path / "b.db").close()
    run(study(BatchCrypt(degree=2)), tmp_path / "b.db").close()


FULL = {"fashion-mnist": (Mlp((256, 256)), (1, 28, 28), 60_000), "cifar10": (Lenet((32, 32), (128, 128)), (3, 32, 32), 50_000)}


@pytest.mark.parametrize(("data", "key", "seconds"), [("fashion-mnist", 2048, 269.8), ("cifar10", 2048, 147.3), ("fashion-mnist", 3072, 794.4),
                                                      ("cifar10", 4096, 963.0)])
def test_where_the_500_seconds_of_kang_bind(data, key, seconds):
    """The largest setting of Table 4, by the figures that the examples name."""
    model, shape, images = FULL[data]
    training = Training(0.3, rounds=10, local_epochs=5, batch_size=64)
    problem = Federation(Data(data, 5), model, training, BatchCrypt(100, key_bits=key), (Objective("kang23_eq14"),),
                         cost=Cost(encryption="phe"), kept=Facts(shape, 10, images))
    assert problem.known({"learning_rate": [0.3]})["kang23_eq14"][0] == pytest.approx(seconds, abs=0.05)
    (example,) = Path("examples/papers").glob("kang23-bc.toml" if data == "fashion-mnist" else "kang23-cifar10-bc.toml")
    assert f"{seconds} s" in example.read_text()


@pytest.mark.parametrize(("mechanism", "says"), [
    (BatchCrypt(800), r"mechanism.encryption_batch: must be at most \d+ for a key of 2048 bits, 4 clients and degree 1, found 800"),
    (BatchCrypt(Choice("encryption_batch", (100, 800))), "found 800"),
    (BatchCrypt(Integer("encryption_batch", 100, 1000)), "found 1000"),
    (Chain((Randomization(0.1), BatchCrypt(800))), "mechanism.encryption_batch: must be at most"),
])
def test_an_impossible_pair_is_refused_naming_the_largest_batch_that_fits(mechanism, says):
    with pytest.raises(SettingError, match=says):
        federation(mechanism)


def test_degree_two_makes_800_values_fit():
    assert federation(BatchCrypt(800, degree=2)).measure({}, [0])["test_error"][0] < 0.9


def test_sums_weighted_by_size_are_refused():
    with pytest.raises(SettingError, match=r"training.weighting: must be uniform for encrypted sums"):
        federation(BatchCrypt(), weighting="size")


def test_clients_that_train_in_chunks_are_summed_as_one(monkeypatch):
    from fedpareto.federation import block as rounds
    whole = federation(BatchCrypt(200)).measure({}, [1])
    monkeypatch.setattr(rounds, "CACHE", 1.0)
    chunked = federation(BatchCrypt(200)).measure({}, [1])
    assert chunked["test_loss"][0] == pytest.approx(whole["test_loss"][0], abs=1e-5)


def test_searched_batches_and_widths_train_beside_one_another_as_alone():
    mechanism = BatchCrypt(Choice("encryption_batch", (100, 200, 400)))
    problem = Federation(DATA, Mlp((Integer("hidden_1", 2, 8),)), Training(Float("learning_rate", 0.1, 1.0), rounds=2, local_epochs=1),
                         mechanism, (Objective("test_error"),))
    values = {"encryption_batch": [100, 200, 400], "hidden_1": [8, 4, 2], "learning_rate": [0.2, 0.4, 0.6]}
    together = problem.measure(values, [0] * 3)
    for i in range(3):
        alone = problem.measure({name: v[i : i + 1] for name, v in values.items()}, [0])
        for name, column in together.items():
            np.testing.assert_array_equal(column[i], alone[name][0], err_msg=name)
    assert fixed(mechanism, lambda v: v.choices[0]).encryption_batch == 100

"""Inversion: without noise the pictures come back, with it they do not, and the line-up still finds some."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from fedpareto import Chain, Data, Federation, Float, Lr, Mlp, Privacy, Randomization, Training
from fedpareto.audit import Inversion, Points
from fedpareto.audit.gradients import gradient_of, matched, replayed
from fedpareto.audit.pictures import BEST, png, psnr, ssim
from fedpareto.audit.uploads import sent
from fedpareto.audit.words import sentence
from fedpareto.federation.models import Cnn, Lenet5
from fedpareto.mechanisms import BatchCrypt, Quantization
from fedpareto.noise import derive
from fedpareto.testing import check_attack

SIGMA = Float("sigma", 0.0, 10.0)


def points(sigmas, model=None, mechanism=None, data="digits", private=False):
    training = Training(0.1, rounds=5, local_epochs=1, batch_size=16, sample_ratio=0.3)
    problem = Federation(Data(data, 10), model or Mlp((32,)), training, mechanism or Randomization(SIGMA, 1.0), (), privacy=Privacy(private_data=private))
    return Points(problem, tuple(range(len(sigmas))), tuple({"sigma": s} for s in sigmas))


def found(asked, **more):
    return Inversion(**{"candidates": 200, **more}).audit(asked, "server", 0)


def test_a_linear_layer_gives_its_input_away_until_noise_hides_it():
    exact, near, little, much = (f.measures for f in found(points((0.0, 1e-3, 0.05, 3.0))))
    assert (exact["psnr"], exact["label"], exact["lineup"], exact["form"]) == (BEST, 1.0, 1.0, "closed form")
    assert exact["ssim"] > 0.999
    assert 25 < near["psnr"] < exact["psnr"]
    assert little["psnr"] < little["psnr_of_mean"]  # no picture is left
    assert little["lineup"] >= 0.3  # but which of 200 it was is still found
    assert much["psnr"] < much["psnr_of_mean"]
    assert much["lineup"] <= 0.2
    assert exact["psnr_of_mean"] == much["psnr_of_mean"]


def test_of_several_images_neurons_show_some():
    (several,) = (f.measures for f in found(points((0.0,), Mlp((200,))), images=4, pictures=5))
    assert len(several["psnr_each"]) == 20
    assert several["psnr"] > 20
    assert several["lineup_chance"] == 4 / 200


def test_sums_of_clients_with_one_image_each_show_images_until_noise_hides_them():
    plain, noisy = (f.measures for f in Inversion(candidates=200, pictures=5).audit(points((0.0, 0.3), Mlp((200,))), "secagg", 0))
    assert plain["psnr"] > 40  # of three clients in a round
    assert noisy["psnr"] < noisy["psnr_of_mean"]
    assert plain["lineup"] > plain["lineup_chance"]


def test_rounded_uploads_are_attacked_as_they_are():
    coarse, fine = (found(points((None,), mechanism=Quantization(bits)))[0].measures["psnr"] for bits in (2, 8))
    assert coarse < fine
    assert fine > 25


def test_logistic_regression_is_a_linear_layer_too():
    assert found(points((0.0,), Lr()))[0].measures["psnr"] > 60


def test_convolutions_are_matched_by_their_gradients():
    (measures,) = (f.measures for f in found(points((0.0,), Cnn()), pictures=2, iterations=60, candidates=20))
    assert measures["form"] == "matched gradients"
    assert (measures["label"], measures["lineup"]) == (1.0, 1.0)
    assert measures["psnr"] > measures["psnr_of_mean"]


def trained(steps, images=1):
    """Return what is seen of clients that take so many steps on few images."""
    training = Training(0.1, rounds=1, local_steps=steps, batch_size=16, sample_ratio=0.3)
    problem = Federation(Data("digits", 10), Cnn(), training, Randomization(SIGMA, 100.0), ())
    return sent(Points(problem, (0,), ({"sigma": 0.0},)), [derive(0, "inversion", 0)], images, "server")


@pytest.mark.parametrize(("steps", "images"), [(1, 1), (6, 1), (6, 3)])
def test_local_training_is_taken_again_as_the_client_took_it(steps, images):
    found = trained(steps, images)
    gradient = gradient_of(found.module, found.loss)
    assert found.steps == (steps,)
    alike = []
    for strides in (1, 3, 6)[:steps]:
        moved = replayed(gradient, found.rate[0], strides)(found.models[0], found.x[0], found.y[0])
        alike.append(float(torch.cosine_similarity(moved, -found.updates[0, 0], dim=0)))
    assert alike == sorted(alike)
    assert alike[-1] == pytest.approx(1, abs=1e-5)  # as many strides as steps


def test_the_start_that_matches_best_is_kept():
    found = trained(1)
    gradient = gradient_of(found.module, found.loss)
    start = torch.rand(3, *found.x[0].shape)
    start[1] = found.x[0]
    models = found.models[0].expand(3, -1)
    made = matched(gradient, models, found.updates[0, 0], start, found.y[0], 0, found.span, torch.Generator())
    assert torch.equal(made, found.x[0])


def test_a_training_that_runs_away_when_taken_again_ends_nothing():
    found = trained(1)
    wild = replayed(gradient_of(found.module, found.loss), 1e30, 4)
    start, models = torch.rand(2, *found.x[0].shape), found.models[0].expand(2, -1)
    made = matched(wild, models, found.updates[0, 0], start, found.y[0], 3, found.span, torch.Generator())
    assert bool(torch.isfinite(made).all())


@pytest.mark.slow
def test_lenet_gives_its_pictures_back():
    (measures,) = (f.measures for f in found(points((0.0,), Lenet5(), data="mnist"), pictures=10))
    print(measures)
    assert measures["psnr"] >= 22


def test_the_sheet_shows_originals_above_what_was_rebuilt():
    (exact,) = found(points((0.0,)), pictures=3)
    with Image.open(io.BytesIO(exact.picture)) as shown:
        pixels = np.array(shown)
    half = pixels.shape[0] // 2
    assert pixels.shape == (2 * (64 + 2), 3 * (64 + 2))
    assert np.abs(pixels[:half].astype(int) - pixels[half:]).max() <= 1


def test_rows_of_numbers_have_no_picture(tmp_path):
    labels = np.random.default_rng(1).integers(0, 2, 60)
    (finding,) = found(points((0.0,), data=table(tmp_path, labels)), candidates=20)
    assert finding.picture is None
    assert "ssim" not in finding.measures
    assert finding.measures["psnr"] > 60


def table(tmp_path, y):
    """Return a data set of rows of five numbers, as many in training as there are labels."""
    x = np.random.default_rng(0).random((len(y), 5)).astype(np.float32)
    path = tmp_path / "rows.npz"
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    return str(path)


def test_a_line_up_has_no_more_candidates_than_there_are_records(tmp_path):
    labels = np.random.default_rng(1).integers(0, 2, 60)
    (measures,) = (f.measures for f in found(points((0.0,), data=table(tmp_path, labels)), candidates=1000))
    assert (measures["candidates"], measures["lineup_chance"]) == (60, 1 / 60)


def test_of_numbers_to_predict_no_label_is_said_to_be_told(tmp_path):
    labels = np.random.default_rng(1).random(60).astype(np.float32)
    training = Training(0.1, rounds=1, local_epochs=1, batch_size=16, sample_ratio=0.3, loss="mse")
    problem = Federation(Data(table(tmp_path, labels), 10), Lr(), training, Randomization(SIGMA, 1.0), ())
    (finding,) = found(Points(problem, (0,), ({"sigma": 0.0},)), candidates=20)
    assert "label" not in finding.measures
    assert "labels" not in sentence(finding.measures)
    assert finding.measures["psnr"] > 60


def test_it_says_why_it_does_not_apply():
    why = Inversion().inapplicable
    assert why(points((0.0,), private=True), "server") == "data are private: a training for an attack would cost privacy that is counted nowhere"
    assert why(points((0.0,)), "release") == "what a model moved by is the sum of a round, divided by a number: see secagg"
    encrypted = points((0.0,), mechanism=Chain((Randomization(SIGMA, 1.0), BatchCrypt())))
    assert "ciphertexts" in why(encrypted, "server")
    assert why(encrypted, "secagg") is None


def test_it_holds_what_an_attack_must():
    check_attack(Inversion(candidates=50), points((0.0, 0.1)))
    assert Inversion(pictures=10).within(1e-9).pictures == 2


def test_a_png_holds_its_pixels():
    draw = np.random.default_rng(0)
    for channels in (1, 3):
        pixels = draw.integers(0, 256, (7, 9, channels)).astype(np.uint8)
        with Image.open(io.BytesIO(png(pixels))) as shown:
            assert np.array_equal(np.array(shown).reshape(pixels.shape), pixels)


def test_nearness_is_that_of_its_definitions():
    draw = np.random.default_rng(0)
    one = draw.random((1, 28, 28))
    assert psnr(one, one, 1.0) == BEST
    assert psnr(one, one + 0.1, 1.0) == pytest.approx(20.0)
    assert ssim(one, one, 1.0) == pytest.approx(1.0)
    noisy = np.clip(one + draw.normal(0, 0.5, one.shape), 0, 1)
    assert ssim(one, noisy, 1.0) < 0.7
    a, b = one[0, :7, :7], noisy[0, :7, :7]  # of one window, by hand (Wang 2004, Eq. 13)
    cov = np.cov(a.ravel(), b.ravel())
    by_hand = (2 * a.mean() * b.mean() + 1e-4) * (2 * cov[0, 1] + 9e-4) / ((a.mean() ** 2 + b.mean() ** 2 + 1e-4) * (cov[0, 0] + cov[1, 1] + 9e-4))
    assert ssim(one[:, :7, :7], noisy[:, :7, :7], 1.0) == pytest.approx(by_hand)

"""Laws that every mechanism keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.errors import SettingError
from fedpareto.mechanisms import (
    MECHANISMS,
    BatchCrypt,
    Chain,
    Pruning,
    Quantization,
    Randomization,
    Sparsification,
    Unprotected,
    Upload,
)
from fedpareto.mechanisms.base import smallest
from fedpareto.noise import Noise
from fedpareto.settings import fixed, named, searched
from fedpareto.space import Float, Integer
from fedpareto.testing import check_mechanism

GENTLE = [Unprotected(), Randomization(0.0, 1e6), Randomization(noise_multiplier=0.0, clipping_norm=1e6), Sparsification(),
          Pruning(prune_rate=0.0), Pruning(threshold=0.0), Quantization(32), Quantization(32, "stochastic"),
          Chain((Randomization(0.0, 1e6), Pruning(0.0), Quantization(32)))]
ALL = [*GENTLE, Randomization(0.1), Randomization(0.1, of="parameters"), Randomization(0.1, clipping="printed"),
       Randomization(noise_multiplier=1.0), Sparsification(0.5, 0.5), Sparsification(0.5, 0.5, withheld="mean_square"), Pruning(0.5),
       Pruning(0.5, of="parameters"), Pruning(threshold=0.5), Pruning(0.5, layers="all"), Quantization(4), Quantization(4, "stochastic"),
       Quantization(4, "down"), Quantization(4, "printed"), Quantization(4, of="parameters"),
       Chain((Sparsification(0.9, 0.2), Randomization(0.1), Pruning(0.5), Quantization(8))),
       Chain((Quantization(8), Quantization(4)))]


def upload(R=2, K=3, P=40, seed=0, exists=None):
    draw = torch.Generator().manual_seed(seed)
    one = torch.ones(R, K)
    values = torch.randn(R, K, P, generator=draw)
    count = one * P if exists is None else exists.sum(1)[:, None] * one
    return Upload(values if exists is None else values * exists[:, None], count, one * 32, one * 0, model=torch.randn(R, P, generator=draw),
                  exists=exists, linear=torch.arange(P) < P - 5)


def protect(mechanism, given_upload=None, seed=0, **other):
    given_upload = given_upload or upload()
    values = {name: torch.full((len(given_upload.values),), float(v)) for name, v in named(mechanism).items()
              if isinstance(v, int | float) and not isinstance(v, bool)}
    return mechanism.protect(given_upload, values | other, Noise(seed, 0, range(given_upload.values.shape[1])))


def test_every_kind_is_tried_here():
    assert set(MECHANISMS.values()) - {BatchCrypt} <= {type(m) for m in ALL}  # it has a file of its own


@pytest.mark.parametrize("mechanism", ALL, ids=repr)
def test_every_mechanism_keeps_the_contract(mechanism):
    check_mechanism(mechanism)


@pytest.mark.parametrize("mechanism", GENTLE, ids=repr)
def test_gentle_protection_changes_nothing(mechanism):
    before = upload()
    after = protect(mechanism, before)
    assert torch.equal(after.values, before.values)
    assert torch.equal(after.total_bits, before.total_bits)


@pytest.mark.parametrize("mechanism", ALL, ids=repr)
def test_parameters_that_do_not_exist_are_neither_sent_nor_counted(mechanism):
    exists = (torch.arange(40) % 3 > 0).float().expand(2, -1)
    after = protect(mechanism, upload(exists=exists))
    if getattr(mechanism, "of", "update") == "update":
        assert float((after.values * (1 - exists)[:, None]).abs().max()) == 0
    assert bool((after.count <= exists.sum(1)[:, None]).all())


@settings(max_examples=40, deadline=None)
@given(rate=st.floats(0, 0.9999), P=st.integers(1, 200), ties=st.booleans(), seed=st.integers(0, 99))
def test_pruned_counts_are_exact_even_among_equals(rate, P, ties, seed):
    sizes = torch.randn(1, 2, P, generator=torch.Generator().manual_seed(seed)).abs()
    sizes = sizes.round() if ties else sizes
    share = torch.tensor([rate], dtype=torch.float64)
    dropped = smallest(sizes, share, None)
    assert dropped.sum(2).tolist() == [[int(rate * P * (1 + 1e-7))] * 2]
    kept_least = sizes.masked_fill(dropped, torch.inf).amin(2)
    dropped_most = sizes.masked_fill(~dropped, -torch.inf).amax(2)
    assert bool((dropped_most <= kept_least).all())


@settings(max_examples=20, deadline=None)
@given(bits=st.integers(1, 12), seed=st.integers(0, 99))
def test_quantization_stays_between_the_levels_around_a_number_and_is_right_on_average(bits, seed):
    start = upload(R=1, K=1, P=5, seed=seed)
    many = Upload(start.values.expand(1, 4000, 5), torch.full((1, 4000), 5.0), torch.full((1, 4000), 32.0), torch.zeros(1, 4000))
    out = protect(Quantization(bits, "stochastic"), many, seed=seed).values[0]
    step = float(start.values.max() - start.values.min()) / (2**bits - 1)
    assert float((out - start.values[0]).abs().max()) <= step * 1.001 + 1e-6
    assert float((out.double().mean(0) - start.values[0, 0]).abs().max()) <= 5 * step / 2 / 4000**0.5 + 1e-6


@pytest.mark.parametrize(("rounding", "expected"), [
    ("nearest", [-0.31, -0.31, -0.04, -0.04, -0.04, 0.23, 0.5]),
    ("down", [-0.31, -0.31, -0.31, -0.04, -0.04, -0.04, 0.5]),
    ("printed", [-0.31, -0.31, -0.31, -0.31, -0.31, -0.31, 0.5]),
])
def test_two_bits_by_each_reading_of_xiao_eq_3(rounding, expected):
    w = torch.tensor([[[-0.31, -0.2, -0.05, 0.0, 0.02, 0.11, 0.5]]])
    one = torch.ones(1, 1)
    out = protect(Quantization(2, rounding), Upload(w, one * 7, one * 32, one * 0))
    assert out.values[0, 0].tolist() == pytest.approx(expected, abs=1e-6)


def test_a_constant_upload_survives_quantization():
    one = torch.ones(1, 1)
    out = protect(Quantization(1), Upload(torch.full((1, 1, 5), 0.3), one * 5, one * 32, one * 0))
    assert out.values.flatten().tolist() == pytest.approx([0.3] * 5)


def test_an_upload_of_nothing_survives_quantization():
    chain = Chain((Pruning(threshold=1e6, layers="all"), Quantization(4)))
    out = protect(chain)
    assert float(out.values.abs().max()) == 0
    assert float(out.count.max()) == 0


@pytest.mark.parametrize(("clip", "literal", "standard"), [(1.0, [0.12, 0.16], [0.6, 0.8]), (30.0, [3.0, 4.0], [3.0, 4.0])])
def test_clipping_as_gu_prints_line_21_and_as_read(clip, literal, standard):
    one = torch.ones(1, 1)
    w = Upload(torch.tensor([[[3.0, 4.0]]]), one * 2, one * 32, one * 0)
    assert protect(Randomization(0.0, clip, clipping="printed"), w).values.flatten().tolist() == pytest.approx(literal, rel=1e-6)
    assert protect(Randomization(0.0, clip), w).values.flatten().tolist() == pytest.approx(standard, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(clip=st.floats(1e-3, 100), scale=st.floats(1e-3, 1e3), clipping=st.sampled_from(["norm", "printed"]))
def test_no_upload_is_longer_than_the_norm_that_the_guarantee_counts_on(clip, scale, clipping):
    one = torch.ones(1, 1)
    w = torch.randn(1, 1, 300, generator=torch.Generator().manual_seed(1)) * scale
    mechanism = Randomization(0.0, clip, clipping=clipping)
    sent = protect(mechanism, Upload(w, one * 300, one * 32, one * 0)).values
    assert float(sent.double().norm()) <= mechanism.gaussian({"sigma": 0.0, "clipping_norm": clip})[1] * (1 + 1e-6)


def test_noise_multiplier_is_the_noise_of_the_sum():
    mechanism = Randomization(noise_multiplier=2.0, clipping_norm=3.0)
    sigma, norm = mechanism.gaussian({"noise_multiplier": 2.0, "clipping_norm": 3.0, "cohort": 16.0})
    assert (sigma, norm) == (1.5, 3.0)
    one = torch.ones(1, 16)
    still = Upload(torch.zeros(1, 16, 20_000), one * 20_000, one * 32, one * 0)
    assert float(protect(mechanism, still).values.sum(1).std()) == pytest.approx(6.0, rel=0.02)


def test_under_poisson_sampling_few_clients_add_the_noise_of_the_expected_cohort():
    one = torch.ones(1, 4)
    still = Upload(torch.zeros(1, 4, 20_000), one * 20_000, one * 32, one * 0)
    out = protect(Randomization(1.0), still, cohort=torch.tensor([9.0]), participants=torch.tensor([4.0]))
    assert float(out.values.sum(1).std()) == pytest.approx(3.0, rel=0.02)


def test_noise_after_pruning_makes_the_upload_dense_again():
    printed = protect(Chain((Pruning(0.9), Quantization(8), Randomization(0.1))))
    assert printed.total_bits.tolist() == [[40 * 32.0 + 64] * 3] * 2
    ours = protect(Chain((Randomization(0.1), Pruning(0.9), Quantization(8))))
    assert float(ours.total_bits.max()) < 40 * 8 + 64


def test_costs_of_a_chain_are_the_sums_of_its_links():
    class Slow:
        def protect(self, given_upload, values, noise):
            from dataclasses import replace
            return replace(given_upload, seconds=given_upload.seconds + 0.5, overhead=10.0 + (given_upload.overhead or 0))

    from dataclasses import dataclass
    slow = dataclass(frozen=True)(type("Slow", (), {"protect": Slow.protect, "__annotations__": {}}))
    out = protect(Chain((slow(), slow(), slow())))
    assert out.seconds.tolist() == [[1.5] * 3] * 2
    assert out.total_bits.tolist() == [[40 * 32.0 + 30] * 3] * 2


@pytest.mark.parametrize(("count", "room", "expected"), [(10, 1000, 100), (200, 1000, 1000), (1000, 1000, 0), (0, 1000, 0)])
def test_places_cost_a_list_or_a_bitmap_whichever_is_smaller(count, room, expected):
    sent = (torch.arange(room) < count).expand(1, 1, -1)
    one = torch.ones(1, 1)
    out = Upload(torch.zeros(1, 1, room), one * count, one * 32, one * 0, sent=sent)
    assert float(out.index_bits) == expected


def test_connections_are_a_share_of_the_weights_of_fully_connected_layers_and_nested():
    draw, linear = torch.rand(10_000, generator=torch.Generator().manual_seed(0)), torch.arange(10_000) < 9_000
    exists = Sparsification().connections({"connection_probability": torch.tensor([0.0, 0.3, 0.7, 1.0])}, draw, linear)
    assert bool(exists[:, ~linear].all())
    assert exists[:, linear].float().mean(1).tolist() == pytest.approx([0.0, 0.3, 0.7, 1.0], abs=0.02)
    assert bool((exists[:-1] <= exists[1:]).all())


def test_two_links_with_a_setting_of_one_name_are_numbered():
    chain = Chain((Quantization(Integer("bits", 4, 16)), Quantization(Integer("bits", 1, 4)), Randomization(Float("sigma", 0.1, 1.0))))
    assert [v.name for v in searched(chain)] == ["bits_1", "bits_2", "sigma"]
    chosen = fixed(chain, lambda v: v.low)
    assert (chosen.links[0].bits, chosen.links[1].bits, chosen.links[2].sigma) == (4, 1, 0.1)
    assert {"bits_1", "bits_2", "sigma", "clipping_norm"} <= set(named(chain))


def test_the_noise_of_a_chain_is_that_of_the_link_that_protects_most():
    chain = Chain((Randomization(0.1, 1.0), Randomization(0.5, 2.0)))
    values = {"sigma_1": 0.1, "clipping_norm_1": 1.0, "sigma_2": 0.5, "clipping_norm_2": 2.0, "cohort": 4.0}
    assert chain.gaussian(values) == (0.5, 4.0)  # an update of zero reaches the second with noise on it, up to 2.0 long
    weak = torch.tensor([0.5, 0.3])
    sigma, norm = chain.gaussian({name: torch.full((2,), v) for name, v in values.items()} | {"sigma_2": weak})
    assert sigma.tolist() == pytest.approx([0.5, 0.1])
    assert norm.tolist() == pytest.approx([4.0, 1.0])


@pytest.mark.parametrize(("make", "says"), [
    (lambda: Randomization(), "exactly one of sigma and noise_multiplier must be given, found neither"),
    (lambda: Randomization(0.1, 1.0, 2.0), "found both"),
    (lambda: Pruning(), "exactly one of prune_rate and threshold must be given, found neither"),
    (lambda: Pruning(0.1, 0.1), "found both"),
    (lambda: Chain(()), "a chain must have at least one link, found none"),
    (lambda: Chain((Unprotected(),) * 21), "a chain must have at most 20 links, found 21"),
])
def test_settings_that_contradict_one_another_are_refused(make, says):
    with pytest.raises(SettingError, match=says):
        make()


BREAKS = {
    "noise half as strong": (lambda r, u, v, n: replace(u, values=r.protect(u, v | {"sigma": v["sigma"] / 2}, n).values),
                             "noise must have standard deviation"),
    "clipping by halves": (lambda r, u, v, n: r.protect(u, v | {"clipping_norm": v["clipping_norm"] * 2}, n),
                           "a client must move its upload by at most"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_mechanism_whose_noise_or_clipping_is_not_what_it_says_is_found(name):
    broken, says = BREAKS[name]

    @dataclass(frozen=True)
    class Broken:
        sigma: float = 0.5
        clipping_norm: float = 1.0

        def gaussian(self, values):
            return values["sigma"], values["clipping_norm"]

        def protect(self, upload, values, noise):
            return broken(Randomization(0.5), upload, values, noise)

    with pytest.raises(AssertionError, match=says):
        check_mechanism(Broken())


def test_a_mechanism_whose_costs_are_not_those_of_its_uploads_is_found():
    @dataclass(frozen=True)
    class Cheap:
        def protect(self, upload, values, noise):
            return upload

        def costs(self, upload, values):
            return replace(upload, bits=upload.bits / 2)

    with pytest.raises(AssertionError, match="costs must tell the bits of an upload"):
        check_mechanism(Cheap())


def test_connections_that_are_no_mask_are_found():
    @dataclass(frozen=True)
    class Odd:
        def protect(self, upload, values, noise):
            return upload

        def connections(self, values, drawn, linear):
            return drawn[None].expand(3, -1)

    with pytest.raises(AssertionError, match="connections must be true or false"):
        check_mechanism(Odd())

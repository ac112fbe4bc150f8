"""Splits: every image goes to one client, the same seed deals the same, and each kind of split is as uneven as it says."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.errors import DataError
from fedpareto.federation.data import Data, load
from fedpareto.federation.setup import Setup
from fedpareto.federation.split import SPLITS, TRIES, Split, deal
from fedpareto.noise import derive, rng

KINDS = sorted(SPLITS)


def labels_of(classes: int, each: int) -> np.ndarray:
    """Return labels [classes * each], the classes in turn."""
    return np.arange(classes * each) % classes


def split(kind: str, labels: np.ndarray, clients: int, seed: int = 0, **more: float) -> Split:
    """Deal images, to clients that may be left with none."""
    return SPLITS[kind](labels, Data(split=kind, clients=clients, **more), seed)


def counts(made: Split, labels: np.ndarray) -> np.ndarray:
    """Return how many images of each class each client holds, [K,C]."""
    owner = np.repeat(np.arange(len(made.sizes)), made.sizes)
    table = np.zeros((len(made.sizes), labels.max() + 1), dtype=np.int64)
    np.add.at(table, (owner, labels[made.order]), 1)
    return table


def skew(made: Split, labels: np.ndarray) -> float:
    """Return how far, on average over images, the classes of a client are from those of all: 0 the same, near 1 one class each."""
    table = counts(made, labels)
    shares = table / np.maximum(1, table.sum(1, keepdims=True))
    apart = np.abs(shares - table.sum(0) / table.sum()).sum(1) / 2
    return float(np.average(apart, weights=table.sum(1)))


def equal(one: Split, other: Split) -> bool:
    return np.array_equal(one.order, other.order) and np.array_equal(one.starts, other.starts)


@st.composite
def dealings(draw: st.DrawFn, fits: bool = True) -> tuple[np.ndarray, Data, int]:
    """Labels of any sizes of classes, a split of any kind and a seed; if it fits, there is an image for every shard."""
    labels = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=200)), dtype=np.int64)
    kind, clients = draw(st.sampled_from(KINDS)), draw(st.integers(1, 60))
    if fits and kind == "shards":
        clients = min(clients, len(labels))
    most = min(5, len(labels) // clients) if fits and kind == "shards" else 5
    data = Data(split=kind, clients=clients, shards=draw(st.integers(1, most)), alpha=draw(st.floats(1e-3, 1e6)))
    return labels, data, draw(st.integers(0, 2**63 - 1))


@given(dealings())
def test_every_image_is_dealt_exactly_once(dealt: tuple[np.ndarray, Data, int]) -> None:
    labels, data, seed = dealt
    made = SPLITS[data.split](labels, data, seed)
    assert np.array_equal(np.sort(made.order), np.arange(len(labels)))
    assert (made.starts[0], made.starts[-1], len(made.starts)) == (0, len(labels), data.clients + 1)
    assert (made.sizes >= 0).all()
    assert np.array_equal(np.concatenate([made.of(k) for k in range(data.clients)]), made.order)


@given(dealings())
def test_the_same_seed_deals_the_same(dealt: tuple[np.ndarray, Data, int]) -> None:
    labels, data, seed = dealt
    first, again = (SPLITS[data.split](labels, data, seed) for _ in range(2))
    assert equal(first, again)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_deals_otherwise(kind: str) -> None:
    labels = labels_of(10, 50)
    assert len({split(kind, labels, 5, seed).order.tobytes() for seed in range(20)}) == 20


def attempts(labels: np.ndarray, data: Data, seed: int) -> list[Split]:
    """Return all splits that may be drawn, in order."""
    return [SPLITS[data.split](labels, data, derive(seed, "deal", attempt)) for attempt in range(TRIES)]


@given(dealings(fits=False))
@settings(max_examples=300)
def test_every_client_gets_an_image_or_the_split_is_refused(dealt: tuple[np.ndarray, Data, int]) -> None:
    labels, data, seed = dealt
    if data.split == "shards" and data.clients * data.shards > len(labels):
        with pytest.raises(DataError, match=r"^data\.shards: every shard must hold an image, "):
            deal(labels, data, seed)
    elif data.clients > len(labels):
        with pytest.raises(DataError, match=r"^data\.clients: every client must hold an image, "):
            deal(labels, data, seed)
    elif all((drawn.sizes == 0).any() for drawn in attempts(labels, data, seed)):
        with pytest.raises(DataError, match=r"^data\.split: every client must hold an image, "):
            deal(labels, data, seed)
    else:
        made, _ = deal(labels, data, seed)
        assert (made.sizes > 0).all()
        assert np.array_equal(np.sort(made.order), np.arange(len(labels)))


@given(dealings())
def test_what_is_dealt_is_the_first_draw_that_leaves_no_client_without_an_image_and_comes_with_its_seed(
        dealt: tuple[np.ndarray, Data, int]) -> None:
    labels, data, seed = dealt
    try:
        made, drawn = deal(labels, data, seed)
    except DataError:
        return
    assert equal(made, SPLITS[data.split](labels, data, drawn))
    assert equal(made, next(one for one in attempts(labels, data, seed) if (one.sizes > 0).all()))
    again, drawn_again = deal(labels, data, seed)
    assert equal(made, again)
    assert drawn == drawn_again


@pytest.mark.parametrize(("kind", "alpha"), [("dirichlet", 0.1), ("unequal", 1.0)])
def test_a_draw_that_leaves_a_client_without_an_image_is_drawn_again(kind: str, alpha: float) -> None:
    labels, data = labels_of(10, 30), Data(split=kind, clients=12, alpha=alpha)
    which = [next(i for i in range(TRIES) if derive(seed, "deal", i) == deal(labels, data, seed)[1]) for seed in range(100)]
    assert which.count(0) > 0
    assert sum(attempt > 0 for attempt in which) > 10
    assert len({deal(labels, data, seed)[0].order.tobytes() for seed in range(100)}) == 100


def test_an_iid_split_of_fewer_images_than_clients_is_refused() -> None:
    with pytest.raises(DataError) as refused:
        deal(labels_of(3, 1), Data(split="iid", clients=5), 0)
    assert str(refused.value) == "data.clients: every client must hold an image, so at most 3 clients, found 5. Lower data.clients."


def test_the_owners_of_images_make_a_split() -> None:
    made = Split.by_owner(np.array([2, 0, 2, 3, 0]), 5)
    assert [made.of(k).tolist() for k in range(5)] == [[1, 4], [], [0, 2], [3], []]
    assert made.sizes.tolist() == [2, 0, 2, 1, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_client_gets_everything(kind: str) -> None:
    labels = labels_of(3, 7)
    assert sorted(deal(labels, Data(split=kind, clients=1), 0)[0].of(0)) == list(range(21))


# iid


@given(st.integers(1, 100_000), st.data())
def test_shares_of_an_iid_split_differ_by_one_at_the_most(images: int, data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, images))
    sizes = deal(np.zeros(images, dtype=np.int64), Data(split="iid", clients=clients), 0)[0].sizes
    assert sizes.max() - sizes.min() <= 1
    assert sizes.min() >= 1


def test_an_iid_split_mixes_the_classes_also_of_sorted_images() -> None:
    labels = np.sort(labels_of(10, 600))
    assert skew(split("iid", labels, 10), labels) < 0.1


# dirichlet


def test_a_dirichlet_split_is_the_more_skewed_the_smaller_alpha_is() -> None:
    labels = labels_of(10, 600)
    found = [np.mean([skew(split("dirichlet", labels, 10, seed, alpha=alpha), labels) for seed in range(5)])
             for alpha in (0.05, 0.5, 5.0, 500.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.6
    assert found[-1] < 0.05


def test_shares_of_a_dirichlet_split_have_the_mean_and_the_variance_of_their_law() -> None:
    K, alpha = 10, 0.5
    labels = labels_of(500, 200)
    shares = counts(split("dirichlet", labels, K, alpha=alpha), labels) / 200  # [K,C]
    assert np.allclose(shares.mean(1), 1 / K, atol=0.02)
    assert shares.var() == pytest.approx((K - 1) / (K**2 * (K * alpha + 1)), rel=0.05)


def test_a_dirichlet_split_with_a_huge_alpha_deals_each_class_evenly() -> None:
    labels = labels_of(10, 1000)
    table = counts(split("dirichlet", labels, 10, alpha=1e6), labels)
    assert np.abs(table - 100).max() <= 2


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e-10])
@pytest.mark.parametrize("kind", ["dirichlet", "unequal"])
def test_the_tiniest_alpha_gives_all_to_one_client(kind: str, alpha: float) -> None:
    labels = labels_of(3, 50)
    table = counts(split(kind, labels, 6, alpha=alpha), labels)
    assert ((table == 50).sum(0) == 1).all()


# shards


def test_a_client_of_a_shards_split_holds_no_more_classes_than_shards_where_shards_are_of_one_class() -> None:
    labels = labels_of(10, 100)
    for seed in range(10):
        table = counts(split("shards", labels, 25, seed, shards=2), labels)  # 50 shards of 20 images
        assert (table.sum(1) == 40).all()
        assert ((table > 0).sum(1) <= 2).all()


@given(st.lists(st.integers(40, 80), min_size=2, max_size=8), st.integers(1, 4), st.integers(0, 1000))
def test_a_shard_reaches_into_two_classes_at_the_most(sizes: list[int], shards: int, seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    clients = -(-len(labels) // (shards * 40))  # so that no shard is larger than a class
    made = split("shards", labels, clients, seed, shards=shards)
    assert ((counts(made, labels) > 0).sum(1) <= 2 * shards).all()
    assert made.sizes.max() - made.sizes.min() <= shards


def test_a_shards_split_of_more_shards_is_less_skewed() -> None:
    labels = labels_of(10, 600)
    found = [skew(split("shards", labels, 10, shards=shards), labels) for shards in (1, 3, 10, 60)]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(0.9)  # one of ten classes each


# unequal


def test_an_unequal_split_is_uneven_and_keeps_the_classes_mixed() -> None:
    labels = np.sort(labels_of(10, 2000))
    made = split("unequal", labels, 10, alpha=0.5)
    assert made.sizes.max() > 5 * made.sizes.min()
    assert skew(made, labels) < 0.05
    assert skew(split("dirichlet", labels, 10, alpha=0.5), labels) > 0.3


def test_sizes_of_an_unequal_split_have_the_variance_of_their_law_and_even_out_with_alpha() -> None:
    K, n = 10, 10_000
    labels = np.zeros(n, dtype=np.int64)
    for alpha in (0.5, 5.0):
        shares = np.array([split("unequal", labels, K, seed, alpha=alpha).sizes / n for seed in range(400)])
        assert shares.var() == pytest.approx((K - 1) / (K**2 * (K * alpha + 1)), rel=0.1)
    assert np.ptp(split("unequal", labels, K, alpha=1e6).sizes) <= 20


# a client's share of the test images


@given(st.integers(0, 2**63 - 1), st.floats(0.05, 100.0), st.integers(1, 30))
@settings(max_examples=50)
def test_the_test_images_of_a_dirichlet_split_follow_the_proportions_of_the_training_images(
        seed: int, alpha: float, clients: int) -> None:
    train, test = np.repeat(np.arange(4), [300, 500, 100, 50]), np.repeat(np.arange(4), [60, 90, 40, 10])
    of_train, of_test = (counts(split("dirichlet", labels, clients, seed, alpha=alpha), labels) for labels in (train, test))
    shares_train, shares_test = of_train / of_train.sum(0), of_test / of_test.sum(0)
    assert (np.abs(shares_train - shares_test) <= 1 / of_train.sum(0) + 1 / of_test.sum(0) + 1e-12).all()  # each rounds half an image


@pytest.mark.parametrize("kind", KINDS)
def test_the_test_images_of_every_split_follow_the_training_images(kind: str) -> None:
    train, test = labels_of(10, 600), labels_of(10, 100)
    of_train, of_test = (counts(split(kind, labels, 5, 3), labels) for labels in (train, test))
    assert np.abs(of_train.sum(1) / len(train) - of_test.sum(1) / len(test)).max() < 0.02
    if kind in ("dirichlet", "shards"):
        assert np.abs(of_train / 600 - of_test / 100).max() < 0.02


def setup(data: Data, seed: int = 0) -> Setup:
    return Setup(data, None, None, None, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "alpha"), [("dirichlet", 0.1), ("unequal", 0.5)])
def test_the_test_images_follow_the_training_images_also_where_these_were_drawn_again(kind: str, alpha: float) -> None:
    data = Data("digits", split=kind, clients=25, alpha=alpha)
    y_train, y_test = load(data).y_train, load(data).y_test
    seed = next(seed for seed in range(1000) if deal(y_train, data, seed)[1] != derive(seed, "deal", 0))
    of_train, of_test = setup(data, seed).train_split(), setup(data, seed).test_split()
    assert equal(of_test, SPLITS[kind](y_test, data, deal(y_train, data, seed)[1]))
    table_train, table_test = counts(of_train, y_train), counts(of_test, y_test)  # [K,C]
    if kind == "unequal":
        table_train, table_test = table_train.sum(1, keepdims=True), table_test.sum(1, keepdims=True)
    apart = np.abs(table_train / table_train.sum(0) - table_test / table_test.sum(0))
    assert (apart <= 1 / table_train.sum(0) + 1 / table_test.sum(0) + 1e-12).all()  # each rounds half an image


def test_shards_need_no_more_than_the_training_images() -> None:
    data = Data("digits", split="shards", clients=200, shards=2)  # 400 shards of 1,438 training images and 359 test images
    assert (setup(data).train_split().sizes > 0).all()
    assert len(setup(data).test_split().order) == 359


# refused


@pytest.mark.parametrize("kind", ["dirichlet", "unequal"])
def test_an_empty_client_is_refused_with_the_ways_out(kind: str) -> None:
    labels, data = labels_of(10, 30), Data(split=kind, clients=20, alpha=0.01)
    empty = np.flatnonzero(attempts(labels, data, 0)[-1].sizes == 0)
    with pytest.raises(DataError) as refused:
        deal(labels, data, 0)
    assert str(refused.value) == (
        f"data.split: every client must hold an image, found {len(empty)} of 20 with none (client {empty[0]} the first) in the last of "
        f"50 {kind} splits. Raise data.alpha, or lower data.clients.")
    assert (deal(labels, dataclasses.replace(data, alpha=100.0), 0)[0].sizes > 0).all()
    assert (deal(labels, dataclasses.replace(data, clients=1), 0)[0].sizes > 0).all()


@pytest.mark.parametrize(("clients", "shards"), [(100, 2), (101, 1), (1, 101), (10**7, 10_000)])
def test_more_shards_than_images_are_refused_with_a_way_out_that_helps(clients: int, shards: int) -> None:
    with pytest.raises(DataError) as refused:
        deal(labels_of(4, 25), Data(split="shards", clients=clients, shards=shards), 0)
    assert str(refused.value) == (
        f"data.shards: every shard must hold an image, so clients × shards at most 100, found {clients * shards:,}. Lower either.")


@pytest.mark.parametrize(("clients", "shards"), [(100, 1), (50, 2), (33, 3), (1, 100)])
def test_as_many_shards_as_images_leave_no_client_without_one_at_the_first_draw(clients: int, shards: int) -> None:
    labels, data = labels_of(4, 25), Data(split="shards", clients=clients, shards=shards)
    for seed in range(20):
        made, drawn = deal(labels, data, seed)
        assert drawn == derive(seed, "deal", 0)
        assert made.sizes.min() >= shards


# many classes and clients


def test_a_dirichlet_split_deals_each_class_by_its_own_draws() -> None:
    """As it always has: a class is found by its number, also where numbers are left out, and draws with that number."""
    labels, data = np.array([7, 2, 2, 99_999, 7, 2, 0, 7] * 30), Data(split="dirichlet", clients=4, alpha=0.5)
    owner = np.empty(len(labels), dtype=np.int64)
    for c in (0, 2, 7, 99_999):
        mine = rng(5, "split", len(labels), c).permutation(np.flatnonzero(labels == c))
        ends = np.round(np.cumsum(rng(5, "shares", c).dirichlet(np.full(4, 0.5))) * len(mine))
        owner[mine] = np.searchsorted(ends, np.arange(len(mine)), side="right").clip(max=3)
    assert equal(SPLITS["dirichlet"](labels, data, 5), Split.by_owner(owner, 4))


@pytest.mark.parametrize(("classes", "clients"), [(100_000, 10), (1000, 100_000), (100_000, 100_000)])
def test_a_dirichlet_split_that_would_take_minutes_is_refused_at_once(classes: int, clients: int) -> None:
    with pytest.raises(DataError) as refused:
        deal(labels_of(classes, 100_000 // classes), Data(split="dirichlet", clients=clients), 0)
    assert str(refused.value) == (
        "data.split: dirichlet draws a share for every class and client, so classes × (clients + 1,000) must be at most 29,900,000, "
        f"found {classes:,} classes and {clients:,} clients. Use iid, unequal or shards, or lower data.clients.")


def test_a_split_of_much_work_is_tried_less_often_and_always_once(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, data = labels_of(10, 30), Data(split="dirichlet", clients=200, alpha=1e-3)  # no draw has an image for all
    for work, tries in ((10**9, 50), (130_000, 10), (12_300, 1)):
        monkeypatch.setattr("fedpareto.federation.split.MOST_WORK", work)
        with pytest.raises(DataError, match=f"in the last of {tries} dirichlet splits"):
            deal(labels, data, 0)


def test_labels_that_leave_numbers_out_are_dealt_by_every_split() -> None:
    labels = np.array([0, 99_999] * 50)
    for kind in KINDS:
        assert (deal(labels, Data(split=kind, clients=3, alpha=100.0), 0)[0].sizes > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_one_image_of_one_class_is_dealt_to_one_client_and_no_more(kind: str) -> None:
    one = np.zeros(1, dtype=np.int64)
    assert deal(one, Data(split=kind, clients=1, shards=1), 0)[0].of(0).tolist() == [0]
    with pytest.raises(DataError, match=r"so (at most 1 clients|clients × shards at most 1), found 2"):
        deal(one, Data(split=kind, clients=2, shards=1), 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_hundred_thousand_clients_are_dealt_in_seconds_and_in_memory_of_images_and_clients_alone(kind: str) -> None:
    clients, labels = 100_000, labels_of(10, 100_000)
    data = Data(split=kind, clients=clients, alpha=1e4)
    started = time.perf_counter()
    made, _ = deal(labels, data, 0)
    assert time.perf_counter() - started < 5
    held = sum(getattr(made, field.name).nbytes for field in dataclasses.fields(made))
    assert held == 8 * (len(labels) + clients + 1)
    assert (np.bincount(made.order, minlength=len(labels)) == 1).all()
    tracemalloc.start()
    try:
        deal(labels, data, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * held


@pytest.mark.parametrize("shards", [10, 10_000])
def test_many_shards_take_no_more_memory_than_images_and_clients(shards: int) -> None:
    labels, data = labels_of(10, 1000), Data(split="shards", clients=1000, shards=shards)
    tracemalloc.start()
    try:
        with contextlib.nullcontext() if shards == 10 else pytest.raises(DataError):
            deal(labels, data, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * 8 * (len(labels) + 1000)

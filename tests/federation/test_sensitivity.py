"""One client moves what each view sees by no more than the contract of a round says, whatever it sends.

The engine runs with the same noise in worlds that differ in one client's update. Every registered mechanism is tested, alone and in chains,
with examples made from its declared settings.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from worlds import ROUNDS, ROWS, WORLDS, both_ran, examples, federation, refused, terms

from fedpareto.contract import SAMPLINGS, VIEWS
from fedpareto.federation.servers import SERVERS, OneOf
from fedpareto.federation.servers.one_of import STEPS
from fedpareto.mechanisms import (
    MECHANISMS,
    Chain,
    Randomization,
    adds_noise,
    links_of,
    needs_everyone,
    noise_comes_last,
)
from fedpareto.privacy import Privacy
from fedpareto.privacy.accounting import ADJACENCIES
from fedpareto.privacy.accounting import terms as priced_terms

KINDS = [kind for kind in MECHANISMS.values() if kind is not Chain]
ALL = [made for kind in KINDS for made in examples(kind)]
FIRST = [examples(kind)[0] for kind in KINDS]  # one of each kind
NOISY = [m for m in ALL if adds_noise(m)]
PRESENT = [w for w in WORLDS if w != "absent"]
ROUNDING = 1e-5


def rows(t):
    """Return the row of each world that differs from round t on."""
    return {world: i for i, (first, world) in enumerate(ROWS) if first == t}


def compared(mechanism):
    """Yield (first, round): rounds in which worlds that differ from a first round on can be compared.

    In later rounds the models differ, which may change what is sent only of mechanisms that work on parameters.
    """
    by_model = any(getattr(link, "of", "update") == "parameters" for link in links_of(mechanism))
    for first in range(ROUNDS):
        yield from ((first, t) for t in range(first, first + 1 if by_model else ROUNDS))


def moved(seen, worlds):
    """Return how far any two of these worlds are from one another, [W,W], of values [R,...] in float64."""
    flat = seen[list(worlds.values())].double().flatten(1)
    return torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist")


def close_enough(seen, worlds, bound, neighbours):
    """Assert that neighbours are within the bound: of zero_out a client's update and zero, of replace any two."""
    here = {w: worlds[w] for w in PRESENT}
    far = moved(seen, here)
    if neighbours == "zero_out":
        far = far[:1]
    # rounding is that of float32 at the size of what is seen
    slack = ROUNDING * bound + 1e-6 * float(seen[list(here.values())].double().flatten(1).norm(dim=1).max())
    assert bool(torch.isfinite(far).all())
    assert float(far.max()) <= bound + slack, f"{neighbours}: moved by {float(far.max())}, bound {bound}"


def check(problem, monkeypatch):
    """Check every view and neighbour of one federation against its contract."""
    contract = terms(problem)
    seen = {view: contract.seen(view) for view in VIEWS}
    if not adds_noise(problem.mechanism):
        assert not any(seen.values())
        return
    assert seen["server"] is not None
    assert (seen["secagg"] is None) == (seen["release"] is None) == (problem.training.weighting == "size")
    loud, silent = both_ran(problem, monkeypatch)
    last = noise_comes_last(problem.mechanism)
    for view, adjacency in itertools.product(VIEWS, ADJACENCIES):
        if seen[view] is None:
            continue
        priced = priced_terms(Privacy(target_delta=1e-5, adjacency=adjacency), **seen[view].terms(ROUNDS))
        norm, alone = float(contract.norm[0]), view == "server" or not last
        shown, quiet = (loud.entered, silent.entered) if alone else (loud.sums, silent.sums)
        for first, t in compared(problem.mechanism):
            close_enough(shown[t], rows(first), priced.sensitivity * norm, adjacency)
            if view == "release" and priced.secret and contract.sampling == "poisson":
                absent_is_hidden(silent.sums[t], rows(first), norm)
        for t in {t for first, t in compared(problem.mechanism) if first == 0}:  # models differ, with and without noise
            noise = (shown[t] - quiet[t]).double()
            strong_enough(noise, rows(0), float(priced.z[0]) * norm, loud.block, exactly=not alone)
    nothing_else_is_told(loud, problem.mechanism)
    if last:
        assert all(torch.equal(a * (b != 0), b) for a, b in zip(loud.entered, loud.uploads, strict=True))
    if seen["release"] is not None:
        models_follow_from_sums(loud, contract, problem.server)
    if not last and seen["secagg"] is not None:
        found = problem.columns({}, 1)
        assert found["epsilon_secagg"] >= found["epsilon_server"]


def absent_is_hidden(sums, worlds, norm):
    """Without noise, a sum with the client is within the norm of the sum without it."""
    far = moved(sums, worlds)[WORLDS.index("absent")]
    slack = ROUNDING * norm + 1e-6 * float(sums.double().norm(dim=1).max())
    assert float(far.max()) <= norm + slack, f"absent: moved by {float(far.max())}, norm {norm}"


def strong_enough(noise, worlds, least, block, exactly):
    """Assert that the noise [R,...] is as strong as it is priced; on sums, the same whoever came, even nobody."""
    there = noise[list(worlds.values())]
    if block.exists is not None:
        there = there[..., block.exists[0, 0] > 0]
    spread = there.std(-1) if exactly else there.std(-1)[: len(PRESENT)]
    assert bool((spread >= 0.85 * least).all()), f"noise {spread.min()}, priced {least}"
    if exactly:
        assert bool((spread <= 1.15 * least).all()), f"noise {spread.max()}, priced {least}"


def nothing_else_is_told(loud, mechanism):
    """Of uploads with noise, how many numbers are sent, with how many bits and which, does not tell the update."""
    for first, t in compared(mechanism):
        mine = [rows(first)[w] for w in PRESENT]
        for count, bits, sent in loud.beside[t]:
            assert len(set(count[mine].tolist())) == len(set(bits[mine].tolist())) == 1
            assert sent is None or bool((sent[mine] == sent[mine[0]]).all())


def models_follow_from_sums(loud, contract, server):
    """The server makes its models of sums alone, and under Poisson sampling divides by the same whoever came."""
    block = loud.block
    memory = server.start(block.initial, block.settings)
    models = block.initial
    for t in range(ROUNDS):
        divisor = contract.divisor(loud.came[t].clamp_min(1), torch.full((len(ROWS),), float(contract.cohort[0])))
        mean = loud.sums[t] / divisor[:, None].float()
        mean = mean if block.exists is None else mean * block.exists[0]
        models, memory = server.step(models, mean[None], memory, block.settings)
        torch.testing.assert_close(models[0], loud.models[t + 1], rtol=1e-5, atol=1e-6)


def chains(links, lengths=(2, 3)):
    """Return every order of these links that a chain takes, where one adds noise."""
    made = [c for n in lengths for c in itertools.product(links, repeat=n)]
    return [Chain(c) for c in made if any(map(adds_noise, c)) and not refused(c)]


def alternating(mechanisms):
    """Return each mechanism with one way of sampling, in turns."""
    return list(zip(mechanisms, itertools.cycle(SAMPLINGS), strict=False))


PAIRS, TRIPLES = chains(FIRST, (2,)), chains(FIRST, (3,))
ON_PARAMETERS = [Chain((m, NOISY[0])) for m in ALL if getattr(m, "of", "") == "parameters" and not adds_noise(m)]
LOOSE, TIGHT = Randomization(0.3, 30.0), Randomization(0.9, 0.3)  # noise of the first is longer than the norm of the second
TWICE = [Chain(pair) for pair in itertools.product((LOOSE, TIGHT), repeat=2)]
WIDE = [Chain(pair) for pair in itertools.product(ALL, repeat=2) if any(map(adds_noise, pair)) and not refused(pair)]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("mechanism", NOISY, ids=repr)
def test_one_client_moves_what_is_seen_by_no_more_than_the_contract_says(mechanism, sampling, monkeypatch):
    check(federation(mechanism, sampling), monkeypatch)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_of_sums_weighted_by_size_nothing_is_said_and_uploads_are_bounded(sampling, monkeypatch):
    check(federation(NOISY[0], sampling, "size"), monkeypatch)


@pytest.mark.parametrize("server", [*(kind() for name, kind in SERVERS.items() if name != "one_of"), *map(OneOf, STEPS)], ids=repr)
def test_servers_with_a_memory_make_their_models_of_sums_alone(server, monkeypatch):
    check(federation(NOISY[0], "poisson", server=server), monkeypatch)


@pytest.mark.parametrize(("mechanism", "sampling"), alternating([*PAIRS, *ON_PARAMETERS[::5], *TWICE, *TRIPLES[::12]]), ids=repr)
def test_so_does_it_through_chains_in_every_order(mechanism, sampling, monkeypatch):
    check(federation(mechanism, sampling), monkeypatch)


@pytest.mark.parametrize("mechanism", [m for m in ALL if not adds_noise(m)], ids=repr)
def test_without_noise_the_contract_says_nothing(mechanism, monkeypatch):
    check(federation(mechanism), monkeypatch)


def test_a_chain_refuses_noise_after_a_link_that_needs_everyone_and_nothing_else():
    for n in (1, 2, 3):
        for links in itertools.product(FIRST, repeat=n):
            late = any(needs_everyone(a) and adds_noise(b) for a, b in itertools.combinations(links, 2))
            assert refused(links) == late, links


@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("mechanism", [*WIDE, *TRIPLES, *TWICE], ids=repr)
def test_every_pair_of_examples_and_every_three_kinds_keep_the_contract(mechanism, sampling, monkeypatch):
    check(federation(mechanism, sampling), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("mechanism", [*NOISY, *PAIRS], ids=repr)
def test_uploads_weighted_by_size_keep_the_contract(mechanism, sampling, monkeypatch):
    if not needs_everyone(mechanism):  # encrypted sums cannot be weighted
        check(federation(mechanism, sampling, "size"), monkeypatch)

"""The federations that are audited: every view and sampling, few clients, rounds in which nobody comes."""

from __future__ import annotations

from dataclasses import replace

from canaries import LONG, Case, Tiny

from fedpareto import Chain, Data, Federation, Privacy, Randomization, Training
from fedpareto.mechanisms import Quantization


def federation(sigma=1.0, *, clients=5, cohort=2, rounds=1, sampling="fixed", mechanism=None, start=0.0, delta=1e-5, **privacy):
    """Return a federation of few clients, whose data do not matter."""
    training = Training(0.1, rounds=rounds, local_steps=1, batch_size=1, sampling=sampling, sample_ratio=cohort / clients, evaluate_every=rounds)
    mechanism = mechanism or Randomization(sigma, 1.0)
    return Federation(Data("canaries:records", clients), Tiny(start), training, mechanism, (), privacy=Privacy(target_delta=delta, **privacy))


def tight():
    """Return the cases of server and secagg in which the canary takes part in every round: the statistic is Gaussian."""
    def forced(name, view, problem, **more):
        return Case(f"{view}, {name}", view, problem, **{"came": "forced", "exact": True} | more)

    all5 = {"came": "everyone", "canaries": tuple(range(5))}
    of_parameters = Randomization(1.2, 1.0, of="parameters")
    return [
        forced("fixed", "server", federation(1.0, cohort=5), **all5),
        forced("fixed, replaced, 3 rounds", "server", federation(3.0, cohort=5, rounds=3, adjacency="replace"), neighbour="opposite", **all5),
        forced("fixed, infinite updates", "server", federation(1.2, cohort=5), length=float("inf"), **all5),
        forced("fixed, clipping as printed", "server", federation(cohort=5, mechanism=Randomization(2.0, 4.0, clipping="printed")), length=1.0, **all5),
        forced("poisson, all come", "server", federation(1.5, sampling="poisson"), **all5),
        forced("fixed, parameters", "server", federation(mechanism=of_parameters, cohort=5, start=-LONG), **all5),
        forced("fixed", "secagg", federation(0.45, cohort=5), **all5),
        forced("fixed, cohort of 3", "secagg", federation(0.6, cohort=3)),
        forced("fixed, replaced, 2 rounds", "secagg", federation(1.3, cohort=5, rounds=2, adjacency="replace"), neighbour="opposite", **all5),
        forced("fixed, noise multiplier", "secagg", federation(mechanism=Randomization(clipping_norm=0.5, noise_multiplier=1.0), cohort=5), **all5),
        forced("poisson, all come", "secagg", federation(0.8, sampling="poisson"), **all5),
        forced("poisson", "secagg", federation(1.0, clients=10, cohort=1, rounds=2, sampling="poisson")),
        forced("fixed, 1 colludes", "secagg", federation(0.5, cohort=5, colluders=1), colluders=(4,), came="everyone", canaries=(0, 1, 2, 3)),
        forced("poisson, 2 collude", "secagg", federation(1.0, clients=6, cohort=3, sampling="poisson", colluders=2), colluders=(1, 2)),
        forced("poisson, 1 drops out", "secagg", federation(0.9, clients=4, cohort=2, sampling="poisson", dropouts=1), colluders=(1,)),
        forced("fixed, parameters", "secagg", federation(mechanism=replace(of_parameters, sigma=0.8), cohort=4, start=-LONG), rest=-1.0),
    ]


def loose():
    """Return the cases that are audited by counting, at a δ at which counting shows something."""
    def case(name, view, problem, **more):
        return Case(f"{view}, {name}", view, problem, **more)

    poisson = {"sampling": "poisson", "delta": 0.01}
    hidden = {"secret": True}
    replaced = {"neighbour": "opposite", "rest": -1.0, "secret": True}  # the others as far from the canary as can be
    coarse = Chain((Randomization(0.7, 1.0), Quantization(2)))
    of_parameters = Randomization(0.8, 1.0, of="parameters")
    return [
        case("fixed, as drawn", "server", federation(0.6, cohort=3, rounds=2, delta=0.01)),
        case("poisson, as drawn", "server", federation(0.7, rounds=2, **poisson)),
        case("fixed, as drawn", "secagg", federation(0.4, cohort=3, rounds=2, delta=0.01)),
        case("poisson, as drawn", "secagg", federation(0.4, rounds=2, **poisson), canaries=(0, 1, 2, 3, 4)),
        case("fixed, noise then 2 bits", "secagg", federation(mechanism=coarse, delta=0.01), came="forced"),
        case("poisson, noise then 2 bits", "secagg", federation(mechanism=coarse, clients=3, cohort=1, **poisson), came="forced"),
        case("poisson, zeroed", "release", federation(0.5, clients=10, cohort=1, rounds=6, **poisson), canaries=tuple(range(10)), **hidden),
        case("poisson, absent", "release", federation(0.5, clients=10, cohort=1, rounds=6, **poisson), neighbour="absent", **hidden),
        case("poisson, 3 clients, absent", "release", federation(0.6, clients=3, cohort=1, rounds=3, **poisson), neighbour="absent", **hidden),
        case("poisson, 2 clients, absent", "release", federation(0.8, clients=2, cohort=1, rounds=4, **poisson), neighbour="absent", **hidden),
        case("poisson, replaced", "release", federation(0.8, clients=3, cohort=1, rounds=3, adjacency="replace", **poisson), neighbour="opposite", canaries=(0, 1, 2), **hidden),
        case("fixed, replaced", "release", federation(1.0, cohort=1, rounds=4, delta=0.01), **replaced),
        case("fixed, cohort of 3, replaced", "release", federation(0.6, clients=6, cohort=3, rounds=2, delta=0.01), **replaced),
        case("fixed, 1 colludes", "release", federation(1.0, clients=4, cohort=2, rounds=3, colluders=1, delta=0.01), colluders=(1,), **replaced),
        case("poisson, 1 colludes", "release", federation(0.6, clients=3, cohort=2, rounds=2, colluders=1, **poisson), colluders=(1,)),
        case("poisson, noise then 2 bits", "release", federation(mechanism=coarse, clients=3, cohort=1, rounds=2, **poisson)),
        case("poisson, parameters", "release", federation(mechanism=of_parameters, clients=3, cohort=2, start=-LONG, **poisson), rest=-1.0),
        case("fixed, parameters", "release", federation(mechanism=of_parameters, clients=4, cohort=2, start=-LONG, delta=0.01), rest=-1.0, **hidden),
    ]


def long_run():
    """Return a federation of 50 rounds, in a third of which nobody comes."""
    problem = federation(0.8, clients=10, cohort=1, rounds=50, sampling="poisson", delta=0.01)
    return Case("release, poisson, 50 rounds, zeroed", "release", problem, canaries=tuple(range(10)), secret=True)

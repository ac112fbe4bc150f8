"""The terms of a round, and that training, plans and prices keep to them."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import fedpareto
from fedpareto import Data, Federation, Lr, Randomization, Training
from fedpareto.contract import Round, cohort, share_of_noise
from fedpareto.federation.columns import contract_of
from fedpareto.privacy import Privacy, epsilon, plan


def test_a_fixed_cohort_is_a_whole_number_of_at_least_one():
    assert [cohort(q, 10) for q in (0.01, 0.35, 1.0)] == [1, 4, 10]
    assert cohort(0.35, 10, "poisson") == 3.5


def test_under_poisson_sampling_the_divisor_does_not_tell_who_came():
    assert Round(10, 4.0, "fixed").divisor(3.0, 4.0) == 3.0
    assert Round(10, 4.0, "poisson").divisor(3.0, 4.0) == 4.0


@pytest.mark.parametrize("came", [1, 4, 10])
def test_the_noise_on_the_sum_is_that_of_the_expected_cohort_however_many_came(came):
    each = 0.5 * share_of_noise(4.0, came)
    assert np.sqrt(came) * each == pytest.approx(0.5 * np.sqrt(4.0))


def test_a_server_that_sees_uploads_is_sure_of_the_least_share_of_noise_only():
    terms = Round(25, 9.0, "poisson", noise=1.0, norm=2.0)
    assert terms.seen("server").noise == pytest.approx(np.sqrt(9 / 25))
    assert terms.seen("secagg").noise == terms.seen("release").noise == 1.0
    assert Round(25, 9.0, "fixed", noise=1.0, norm=2.0).seen("server").noise == 1.0


def test_nothing_is_seen_of_a_bound_without_noise_or_with_weights_by_size():
    assert Round(10, 4.0).seen("server") is None
    weighed = Round(10, 4.0, weighting="size", noise=1.0, norm=1.0)
    assert weighed.seen("secagg") is None
    assert weighed.seen("release") is None
    assert weighed.seen("server").noise == 1.0


@pytest.mark.parametrize("view", ["server", "secagg", "release"])
@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
@pytest.mark.parametrize("cohort", [3, 10])
def test_a_plan_states_the_epsilon_of_the_study_that_follows_it(view, sampling, cohort):
    (row,) = plan(4.0, 1e-5, 30, view=view, sampling=sampling, cohort=cohort, rounds=20)
    training = Training(0.1, rounds=20, local_steps=1, sampling=sampling, sample_ratio=cohort / 30)
    problem = Federation(Data("digits", 30), Lr(), training, Randomization(row.sigma, row.clipping_norm), (),
                         privacy=Privacy(view, 1e-5))
    stated = problem.columns({}, 1)[f"epsilon_{view}"][0]
    assert stated == pytest.approx(row.epsilon, rel=1e-9)
    assert row.epsilon <= 4.0


def test_a_study_is_priced_by_its_contract():
    training = Training(0.1, rounds=7, local_steps=1, sampling="poisson", sample_ratio=0.3)
    problem = Federation(Data("digits", 20), Lr(), training, Randomization(0.4, 2.0), ())
    columns = problem.columns({}, 1)
    for view in ("server", "secagg", "release"):
        seen = contract_of(problem, columns).seen(view)
        assert columns[f"epsilon_{view}"] == epsilon(Privacy(), **seen.terms(np.array([7.0])))


def test_no_other_module_knows_how_clients_are_drawn_weighed_or_share_their_noise():
    """The words 'poisson' and 'fixed' as values, beside the contract: draws, accountants, and what is shown."""
    root = Path(fedpareto.__file__).parent
    allowed = {"contract.py", "federation/cohorts.py", "federation/blocks.py", "federation/known.py", "federation/rules.py",
               "privacy/accounting.py", "privacy/loss.py", "privacy/plan.py", "privacy/selection.py", "privacy/statement.py",
               "privacy/records.py", "federation/training.py", "federation/local/dp_sgd.py", "cli/planning.py"}
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            audits = path.is_relative_to(root / "audit")  # auditors work it out for themselves
            if isinstance(node, ast.Constant) and node.value == "poisson" and not audits:
                found.add(str(path.relative_to(root)))
    assert found <= allowed

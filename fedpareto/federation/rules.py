"""What a federation must hold before anything is trained; each rule refuses with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpareto.contract import Round, cohort
from fedpareto.errors import (
    CodeEnded,
    FedparetoError,
    ModelError,
    SettingError,
    guarded,
    out_of_memory,
    told,
)
from fedpareto.federation.blocks import device_of
from fedpareto.federation.bounds import memory
from fedpareto.federation.columns import given_of, hides_records
from fedpareto.federation.data import load
from fedpareto.federation.local import ClipsRecords
from fedpareto.federation.measures import function_name
from fedpareto.federation.measuring import check_shown, measurable
from fedpareto.federation.record_rules import check_alone, check_silos, check_terms
from fedpareto.federation.setup import seeded
from fedpareto.federation.sizes import size_of
from fedpareto.federation.split import deal
from fedpareto.federation.width_rules import check_widths
from fedpareto.mechanisms import (
    AddsGaussian,
    LimitsSummands,
    adds_noise,
    needs_everyone,
    states_loss,
)
from fedpareto.problem import Judge, judges
from fedpareto.settings import function_of, is_own, largest, least, named
from fedpareto.space import Variable

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedpareto.federation.problem import Federation

OF_VIEW = ("epsilon", "epsilon_client")  # the ε of whoever [privacy] says looks on
TRIED = 1000  # test images that a loss or a measure of the user's own is tried on


def check_settings(problem: Federation) -> None:
    """Refuse settings that contradict one another."""
    clients = problem.data.clients
    ratio = least(problem.training.sample_ratio)
    if ratio * clients < 1 - 1e-9:
        raise SettingError(
            f"training.sample_ratio: must ask for at least one client, found {ratio:g} of "
            f"{clients} clients. Raise it to {1 / clients:g}."
        )
    _check_sums(problem)
    _check_charged(problem)
    _check_epsilon(problem)
    if isinstance(problem.local, ClipsRecords):
        check_terms(problem, problem.local)
    check_shown(problem, _asked_of(problem, "raw"))


def _check_sums(problem: Federation) -> None:
    """Refuse a mechanism that cannot sum so many clients, or not by weight."""
    mechanism, training = problem.mechanism, problem.training
    if not isinstance(mechanism, LimitsSummands):
        return
    if needs_everyone(mechanism) and training.weighting != "uniform":
        raise SettingError(
            "training.weighting: must be uniform for encrypted sums, found size. Write weighting = "
            '"uniform".'
        )
    most = problem.data.clients
    if training.sampling == "fixed":
        most = int(cohort(float(largest(training.sample_ratio)), most))
    try:
        mechanism.fits(most)
    except SettingError as error:
        raise SettingError(f"mechanism.{error}") from None


def _check_charged(problem: Federation) -> None:
    """Refuse to charge lattices what another library takes for Paillier."""
    if named(problem.mechanism).get("scheme") == "bfv" and problem.cost.encryption == "phe":
        raise SettingError(
            'cost.encryption: must be calibrated with scheme = "bfv", found phe, which has no '
            "lattices: its seconds are those of Paillier. Leave it out, and let fedpareto "
            "calibrate --write measure them."
        )


def _check_epsilon(problem: Federation) -> None:
    """Refuse an ε that is asked for and cannot be given."""
    asked = {name for name in problem.asked if name.startswith("epsilon")}
    if not asked:
        return
    if hides_records(problem) and "epsilon_client" not in asked:
        return
    headline = f"epsilon_{problem.privacy.view}"
    views = {(headline if m in OF_VIEW else m).removeprefix("epsilon_") for m in asked}
    views -= {"record"}
    if not views:
        return
    training = problem.training
    contract = Round(problem.data.clients, 1.0, training.sampling, training.weighting)
    if not all(contract.bounded(view, problem.privacy.replaces_clients) for view in views):
        raise SettingError(
            "training.weighting: must be uniform for a true ε of sums, or of a replaced client, "
            "found size: a client with many images would weigh more than the clipping norm bounds. "
            'Write weighting = "uniform".'
        )
    if not problem.looked_at:
        _check_noise(problem)


def _check_noise(problem: Federation) -> None:
    """Refuse a mechanism that may add no noise, where ε is asked for."""
    mechanism = problem.mechanism
    lowest = {
        name: least(v)
        for name, v in named(mechanism).items()
        if not isinstance(v, str | bool | tuple | None)
    }
    sigma = 0.0
    if isinstance(mechanism, AddsGaussian) and adds_noise(mechanism):
        sigma, _ = mechanism.gaussian({**lowest, "cohort": 1.0})
    stated = states_loss(mechanism)
    if sigma > 0 or (stated and stated.privacy_loss({**lowest, "cohort": 1.0}, False) is not None):
        return
    silent = [name for name, v in lowest.items() if v == 0]
    zero = next((n for n in silent if n.startswith(("sigma", "noise_multiplier"))), "name")
    raise SettingError(
        f"mechanism.{zero}: must add noise where ε is asked for, found "
        f"{lowest.get(zero, 'none')}: without noise there is no ε. Raise its lower end above 0, or "
        "choose a mechanism that adds noise."
    )


def check_parts(problem: Federation) -> None:
    """Load the data, deal them and build the model once, to say early what is wrong with them."""
    try:
        with guarded():
            _check_parts(problem)
    except CodeEnded as error:
        raise SettingError(
            f"study: code of your own must return, found that it ended the program by {error}. "
            "Let it raise an error in its place."
        ) from error
    except Exception as error:
        if isinstance(error, FedparetoError) or not out_of_memory(error):
            raise
        raise ModelError(
            f"the model must fit into memory, found {told(error)}. Make it narrower."
        ) from error


def _check_parts(problem: Federation) -> None:
    from fedpareto.federation.stack import stack_of

    data = load(problem.data)
    size, _ = size_of(problem.widest, data.shape, data.classes)  # type: ignore[arg-type]
    needed = 16 * size
    room = memory(2**62)
    if needed > room:
        raise ModelError(
            f"the model must fit into memory, found {needed / 16:.3g} parameters: with gradient "
            f"and update {needed / 2**30:,.0f} GiB, where there are {room / 2**30:,.0f}. Make "
            "it narrower."
        )
    _check_labels(problem, data.numbers)
    _check_batches(problem)
    _check_costs(problem)
    if isinstance(problem.local, ClipsRecords):
        check_silos(problem)
    module = seeded(lambda: problem.widest.build(data.shape, data.classes), 0)
    stack_of(problem.widest, module, data.shape, data.classes)
    check_widths(problem, module, data.shape, data.classes)
    _check_own(problem, module)
    _check_server(problem)
    device_of(problem)


def _check_labels(problem: Federation, numbers: bool) -> None:
    """Refuse a loss or a measure of classes where numbers are to be predicted."""
    if not numbers:
        return
    if problem.training.loss == "cross_entropy":
        raise SettingError(
            "training.loss: must be mse or your own where labels are floats to predict, found "
            "cross_entropy. If they are classes, store them as whole numbers."
        )
    for o in judges(problem):
        if o.measure in ("test_error", "test_error_equal", "test_error_worst", "utility_lost"):
            raise SettingError(
                f"{_where(o)}: must not count wrong classes where labels are floats to "
                f"predict, found {o.measure}. Use test_loss, or a measure of your own."
            )


def _check_batches(problem: Federation) -> None:
    """Deal the data once; refuse to search batch sizes that no client has the images for."""
    data = load(problem.data)
    split, _ = deal(data.y_train, problem.data, 0, data.sites_train)
    batch = problem.training.batch_size
    most = int(split.sizes.max())
    if isinstance(batch, Variable) and largest(batch) > most:
        raise SettingError(
            f"training.batch_size: must be at most the {most:,} images that the largest client "
            f"holds, where it is searched, found {largest(batch):,}: larger batches would all be "
            f"the same. End it at {most}."
        )


def _check_costs(problem: Federation) -> None:
    """Refuse to judge by costs where data are private and costs depend on them."""
    costs = _asked_of(problem, "costs")
    if not problem.private or not costs:
        return
    values = {v.name: [v.decode(0.5)] for v in problem.space.variables}
    shown = measurable(problem, problem.columns(values, 1, views=()))
    check_shown(problem, {where: name for where, name in costs.items() if name not in shown})


def _asked_of(problem: Federation, source: str) -> dict[str, str]:
    """Return the measures asked for that come from this source, where → measure."""
    known = problem.measures
    asked = [o for o in judges(problem) if o.measure in known]
    return {_where(o): o.measure for o in asked if known[o.measure].source == source}


def _where(judge: Judge) -> str:
    """Return the table of a study file that asks for an objective or a limit."""
    return f"{judge.section}.{judge.name}"


def _check_own(problem: Federation, module: nn.Module) -> None:
    """Try the user's own loss and measures on some test images, to say early what is wrong."""
    import torch

    from fedpareto.federation.judge import called

    data = load(problem.data)
    labels = torch.from_numpy(data.y_test[:TRIED])
    with torch.no_grad():
        scores = module(torch.from_numpy(data.x_test[:TRIED]) * data.scale + data.shift)
    own = [("training.loss", problem.training.loss)] if is_own(problem.training.loss) else []
    own += [(f"measure {name!r}", function_name(name)) for name in problem.own_measures]
    for where, name in own:
        try:
            if where == "training.loss":
                _try_loss(name, scores, labels)
                if isinstance(problem.local, ClipsRecords):
                    check_alone(name, scores, labels)
            else:
                called(name, function_of(name), scores.numpy(), labels.numpy())
        except SettingError as error:
            raise SettingError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from None
        except Exception as error:
            raise SettingError(
                f"{where}: {name!r} must take scores {list(scores.shape)} and labels "
                f"{list(labels.shape)}, found {told(error)}."
            ) from error


def _try_loss(name: str, scores: Tensor, labels: Tensor) -> None:
    """Refuse a loss of the user's own that has no slope, or not the numbers that training takes."""
    import torch

    from fedpareto.federation.losses import loss_of

    loss = loss_of(name)
    each = loss.each(scores.t()[None], labels)
    if each.dtype != torch.float32:
        raise SettingError(
            f"training.loss: {name!r} must return float32, as the scores are, found {each.dtype}."
        )
    loss.slope(scores.t()[None, None], labels[None])


def _check_server(problem: Federation) -> None:
    """Refuse a server step of the user's own that does not keep the models' shape."""
    import torch

    server = problem.server
    lowest = {v.name: [v.decode(0.0)] for v in problem.space.variables}
    given = given_of(problem, lowest, 1)
    names = [name for name in named(server) if name in given]
    values = {name: torch.tensor([float(given[name][0])]) for name in names}
    models = torch.zeros(1, 1, 3)
    moved, _ = server.step(models, models + 1, server.start(models, values), values)
    if not isinstance(moved, torch.Tensor) or moved.shape != models.shape:
        found = list(moved.shape) if isinstance(moved, torch.Tensor) else type(moved).__name__
        raise SettingError(
            f"server: step must return models of the shape it was given, [1, 1, 3], found {found}. "
            "Try it with fedpareto.testing.check_server."
        )

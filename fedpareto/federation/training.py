"""How the federation trains: the settings of local training and of who takes part."""

from __future__ import annotations

from dataclasses import dataclass

from fedpareto.contract import SAMPLINGS, WEIGHTINGS
from fedpareto.errors import SettingError, did_you_mean
from fedpareto.federation.losses import LOSSES
from fedpareto.settings import Real, Whole, setting


@dataclass(frozen=True)
class Training:
    """Each round some clients train locally, and the server moves by what they send."""

    learning_rate: Real = setting(help="learning rate of local SGD", above=0, at_most=1e9)
    rounds: Whole = setting(10, help="rounds of the federation, T", at_least=1, at_most=100_000)
    local_epochs: int = setting(
        0,
        help="passes over a client's images per round; or give local_steps",
        at_least=0,
        at_most=10_000,
        search=False,
    )
    local_steps: int = setting(
        0,
        help="mini-batch steps per round; or give local_epochs",
        at_least=0,
        at_most=1_000_000,
        search=False,
    )
    batch_size: int = setting(
        32, help="images per mini-batch", at_least=1, at_most=1_000_000, search=False
    )
    momentum: Real = setting(
        0.0, help="momentum of local SGD, started anew each round", at_least=0, at_most=0.9999
    )
    sample_ratio: Real = setting(
        1.0, help="share q of the clients that take part in a round", above=0, at_most=1
    )
    sampling: str = setting(
        "fixed",
        help="a cohort of fixed size, drawn without replacement; or poisson: each client takes "
        "part by its own chance, and the server divides by the expected cohort",
        options=SAMPLINGS,
        search=False,
    )
    weighting: str = setting(
        "uniform",
        help="how the server weighs clients: all the same, or by number of images; no true (ε, δ) "
        "is known for sums weighted by size",
        options=WEIGHTINGS,
        search=False,
    )

    evaluate_every: int = setting(
        1,
        help="judge the model on the test images after every nth round, and after the last",
        at_least=1,
        at_most=100_000,
        search=False,
    )
    device: str = setting(
        "auto",
        help="where to train; auto takes a CUDA device if there is one",
        options=("auto", "cpu", "cuda"),
        search=False,
    )
    tf32: bool = setting(
        True,
        help="let a CUDA device round the inputs of products to TF32: faster, three digits",
        search=False,
    )
    loss: str = setting(
        "cross_entropy",
        help="what local training makes small: cross_entropy; mse, the mean squared error; or your "
        "own function of scores and labels as package.module:function",
        search=False,
    )

    def __post_init__(self) -> None:
        if bool(self.local_epochs) == bool(self.local_steps):
            raise SettingError(
                "exactly one of local_epochs and local_steps must be given, found "
                f"local_epochs = {self.local_epochs}, local_steps = {self.local_steps}."
            )
        if self.loss not in LOSSES and ":" not in self.loss:
            raise SettingError(
                f"loss: there is no loss {self.loss!r}. {did_you_mean(self.loss, LOSSES)} Your "
                "own: a function as package.module:function."
            )

"""Check what a server step and a loss must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpareto.federation import Loss, ServerStep
from fedpareto.noise import stream
from fedpareto.testing.functions import frozen, numbers_of, texts_of

if TYPE_CHECKING:
    from torch import Tensor


def check_server(server: ServerStep, S: int = 2, R: int = 3, P: int = 20, seed: int = 0) -> None:
    """Check that a server step is pure, keeps shapes, and treats each federation by itself."""
    import torch

    assert frozen(server), "a server step must be a frozen dataclass"
    values = {name: torch.linspace(0.5, 0.9, R) * v for name, v in numbers_of(server).items()}
    values |= {v.name: torch.arange(float(R)) % v.size for v in texts_of(server)}
    models = torch.randn(S, R, P, generator=stream(seed, "models"))
    means = [torch.randn(S, R, P, generator=stream(seed, "mean", t)) for t in range(3)]
    before = models.clone()
    whole = _moved(server, models, means, values)
    assert whole.shape == models.shape, (
        f"models must keep shape {models.shape}, found {whole.shape}"
    )
    assert bool(torch.isfinite(whole).all()), "models must be finite for finite means"
    assert torch.equal(models, before), "the models that came in must be left as they were"
    again = _moved(server, models, means, values)
    assert torch.equal(whole, again), "the same means must lead to the same models"
    alone = {name: v[1:2] for name, v in values.items()}
    one = _moved(server, models[:, 1:2], [mean[:, 1:2] for mean in means], alone)
    same = torch.allclose(whole[:, 1:2], one, rtol=1e-5, atol=1e-6)
    assert same, "a federation must not depend on its neighbours"
    still = _moved(server, models, [torch.zeros_like(models)] * 3, values)
    assert torch.equal(still, models), "means of zero must leave the models where they are"


def _moved(
    server: ServerStep, models: Tensor, means: list[Tensor], values: dict[str, Tensor]
) -> Tensor:
    """Return the models after a server has seen these means, one a round."""
    memory = server.start(models, values)
    for mean in means:
        models, memory = server.step(models, mean, memory, values)
    return models


def check_loss(loss: Loss, classes: int = 4, seed: int = 0) -> None:
    """Check that a loss has one number for each record, and that its slope is its gradient."""
    import torch

    M, R, B = 2, 3, 5
    scores = torch.randn(M, R, classes, B, generator=stream(seed, "scores"))
    labels = torch.randint(0, classes, (M, B), generator=stream(seed, "labels"))
    each = loss.each(scores[0], labels[0])
    assert each.shape == (R, B), f"a loss must have shape {(R, B)}, found {tuple(each.shape)}"
    leaf = scores.clone().requires_grad_()
    total = torch.stack([loss.each(leaf[m], labels[m]).sum() for m in range(M)]).sum()
    (gradient,) = torch.autograd.grad(total, leaf)
    slope = loss.slope(scores, labels)
    assert slope.shape == scores.shape, (
        f"a slope must have shape {tuple(scores.shape)}, found {tuple(slope.shape)}"
    )
    same = torch.allclose(slope, gradient, rtol=1e-4, atol=1e-5)
    assert same, "a slope must be how each record's loss grows with its scores"

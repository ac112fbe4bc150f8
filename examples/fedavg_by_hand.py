"""FedAvg written by hand: one client after another, with an ordinary torch module and optimizer.

This is the federation that fedpareto trains many times at once, for reading and as the oracle of
its tests. It takes the same draws (who holds which images, who takes part, which mini-batches,
which noise) and nothing else.

Run it: python examples/fedavg_by_hand.py
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedpareto.contract import cohort
from fedpareto.federation.cohorts import participants
from fedpareto.federation.data import Data
from fedpareto.federation.models import Mlp
from fedpareto.federation.setup import Setup
from fedpareto.federation.training import Training
from fedpareto.mechanisms import Randomization
from fedpareto.noise import Noise


def train(
    setup: Setup,
    learning_rate: float,
    sample_ratio: float,
    sigma: float,
    clipping_norm: float,
    rounds: int,
) -> tuple[nn.Module, list[float], list[float]]:
    """Return the final model, and its test loss and test error after every round."""
    model = setup.model.build(setup.data.shape, setup.data.classes)
    initial = nn.utils.parameters_to_vector(setup.initial(setup.model))
    nn.utils.vector_to_parameters(initial, model.parameters())
    split = setup.train_split()
    losses = []
    errors = []
    for t in range(rounds):
        asked = participants(setup.seed, t, setup.clients)
        taking_part = asked[: cohort(sample_ratio, setup.clients)]
        start = flat(model)
        noise = Noise(setup.seed, t, taking_part.tolist()).normal(len(start))
        uploads = []
        weights = []
        for slot, client in enumerate(taking_part):
            batches = setup.batches(split, int(client), t)
            update = trained(setup, model, batches, learning_rate) - start
            norm = max(float(update.double().norm()), 1e-30)
            clipped = update * min(1.0, clipping_norm / norm)
            uploads.append(clipped + sigma * noise[slot])
            uniform = setup.training.weighting == "uniform"
            weights.append(1.0 if uniform else float(len(split.of(client))))
        mean = sum(w * u for w, u in zip(weights, uploads, strict=True)) / sum(weights)
        nn.utils.vector_to_parameters(start + mean, model.parameters())
        loss, error = tested(setup, model)
        losses.append(loss)
        errors.append(error)
    return model, losses, errors


def flat(model: nn.Module) -> Tensor:
    """Return the parameters of a model as one vector."""
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def trained(setup: Setup, model: nn.Module, batches, learning_rate: float) -> Tensor:
    """Return the parameters of a copy of the model after one client's local training."""
    images = torch.from_numpy(setup.data.x_train) * setup.data.scale
    labels = torch.from_numpy(setup.data.y_train)
    momentum = setup.training.momentum
    local = copy.deepcopy(model)
    sgd = torch.optim.SGD(local.parameters(), lr=learning_rate, momentum=momentum)
    for batch in batches:
        pick = batch[batch >= 0]  # a batch is filled up with -1
        sgd.zero_grad()
        cross_entropy(local(images[pick]), labels[pick]).backward()
        sgd.step()
    return flat(local)


def tested(setup: Setup, model: nn.Module) -> tuple[float, float]:
    """Return the test loss and the test error of a model."""
    with torch.no_grad():
        scores = model(torch.from_numpy(setup.data.x_test) * setup.data.scale)
    truth = torch.from_numpy(setup.data.y_test)
    loss = float(cross_entropy(scores, truth))
    return loss, float((scores.argmax(1) != truth).float().mean())


def main() -> None:
    where = Data("digits", 10)
    training = Training(learning_rate=0.3, local_epochs=1, batch_size=16)
    setup = Setup(where, Mlp((32,)), training, Randomization(0.1, 1.0), seed=0)
    _, losses, errors = train(setup, 0.3, 1.0, 0.1, 1.0, rounds=10)
    for t, (loss, error) in enumerate(zip(losses, errors, strict=True), 1):
        print(f"round {t:2d}   test loss {loss:.4f}   test error {error:.4f}")


if __name__ == "__main__":
    main()

"""FedAvg written by hand: one client after another, one ordinary torch module, one ordinary optimizer.

This is the federation that fedpareto trains many times at once, for reading and as the oracle of its tests. It takes the
same draws (who holds which images, who takes part, which mini-batches, which noise) and nothing else.

    python examples/fedavg_by_hand.py
"""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpareto.federation.data import Data
from fedpareto.federation.draws import cohort, participants
from fedpareto.federation.models import Mlp
from fedpareto.federation.rounds import Setup
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
    data, training, seed = setup.data, setup.training, setup.seed
    model, split = setup.model.build(data.shape, data.classes), setup.train_split()
    nn.utils.vector_to_parameters(
        nn.utils.parameters_to_vector(setup.initial(setup.model)), model.parameters()
    )
    images = torch.from_numpy(data.x_train) * data.scale
    labels = torch.from_numpy(data.y_train)
    losses, errors = [], []
    for t in range(rounds):
        asked = participants(seed, t, setup.clients)
        taking_part = asked[: cohort(sample_ratio, setup.clients)]
        start = nn.utils.parameters_to_vector(model.parameters()).detach()
        drawn = Noise(seed, t, taking_part.tolist()).normal(len(start))
        uploads, weights = [], []
        for slot, client in enumerate(taking_part):
            mine = split.of(client)
            local = copy.deepcopy(model)
            sgd = torch.optim.SGD(local.parameters(), lr=learning_rate, momentum=training.momentum)
            for batch in setup.batches(split, int(client), t):
                pick = batch[batch >= 0]
                sgd.zero_grad()
                cross_entropy(local(images[pick]), labels[pick]).backward()
                sgd.step()
            update = nn.utils.parameters_to_vector(local.parameters()).detach() - start
            clipped = update * min(1.0, clipping_norm / max(float(update.double().norm()), 1e-30))
            uploads.append(clipped + sigma * drawn[slot])
            weights.append(1.0 if training.weighting == "uniform" else float(len(mine)))
        mean = sum(w * u for w, u in zip(weights, uploads, strict=True)) / sum(weights)
        nn.utils.vector_to_parameters(start + mean, model.parameters())
        with torch.no_grad():
            scores = model(torch.from_numpy(data.x_test) * data.scale)
            truth = torch.from_numpy(data.y_test)
            losses.append(float(cross_entropy(scores, truth)))
            errors.append(float((scores.argmax(1) != truth).float().mean()))
    return model, losses, errors


def main() -> None:
    where, training = Data("digits", 10), Training(learning_rate=0.3, local_epochs=1, batch_size=16)
    setup = Setup(where, Mlp((32,)), training, Randomization(0.1, 1.0), seed=0)
    _, losses, errors = train(setup, 0.3, 1.0, 0.1, 1.0, rounds=10)
    for t, (loss, error) in enumerate(zip(losses, errors, strict=True), 1):
        print(f"round {t:2d}   test loss {loss:.4f}   test error {error:.4f}")


if __name__ == "__main__":
    main()

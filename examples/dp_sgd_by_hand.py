"""DP-SGD inside each client, written by hand: one record after another, with an ordinary module.

This is the local step that fedpareto takes for many models at once without writing the gradient of
any record, for reading and as the oracle of its tests. It takes the same draws (who holds which
images, which records are in a step, which noise) and nothing else.

Run it: python examples/dp_sgd_by_hand.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedpareto import Data, DpSgd, Federation, Lr, Training, Unprotected
from fedpareto.federation.setup import Setup
from fedpareto.noise import Noise, derive

RATE = 0.5


def train(setup: Setup, local: DpSgd, rounds: int) -> nn.Module:
    """Return the final model of a federation in which every client comes every round."""
    model = setup.model.build(setup.data.shape, setup.data.classes)
    nn.utils.vector_to_parameters(flat(setup.initial(setup.model)), model.parameters())
    split = setup.train_split()
    for t in range(rounds):
        start = flat(model.parameters())
        ends = []
        for client in range(setup.clients):
            noise = Noise(derive(setup.seed, "records"), t, [client])
            batches = setup.batches(split, client, t)  # −1 where there is no record
            for batch in batches:
                step(setup, model, local, batch[batch >= 0], noise)
            ends.append(flat(model.parameters()))
            nn.utils.vector_to_parameters(start, model.parameters())
        nn.utils.vector_to_parameters(torch.stack(ends).mean(0), model.parameters())
    return model


def step(setup: Setup, model: nn.Module, local: DpSgd, batch, noise: Noise) -> None:
    """Take one step on the records of a batch, of which there may be none."""
    clip = local.record_clipping_norm
    total = torch.zeros_like(flat(model.parameters()))
    for record in batch:
        x = torch.from_numpy(setup.data.x_train[record : record + 1]) * setup.data.scale
        y = torch.from_numpy(setup.data.y_train[record : record + 1])
        gradients = torch.autograd.grad(cross_entropy(model(x), y), list(model.parameters()))
        gradient = flat(gradients)
        total += gradient * min(1.0, clip / float(gradient.norm()))
    total += local.record_noise_multiplier * clip * noise.normal(len(total))[0]
    # by the records expected: the number there were would tell of a single one
    moved = flat(model.parameters()) - RATE * total / setup.training.batch_size
    nn.utils.vector_to_parameters(moved, model.parameters())


def flat(parts) -> Tensor:
    """Return tensors as one vector."""
    return torch.cat([part.detach().flatten() for part in parts])


def main() -> None:
    """Train by hand and by fedpareto, and say how far the models are apart."""
    data = Data("digits", clients=4, share=0.2)
    training = Training(RATE, rounds=2, local_steps=4, batch_size=16, device="cpu")
    local = DpSgd(record_noise_multiplier=1.2, record_clipping_norm=0.5)
    setup = Setup(data, Lr(), training, Unprotected(), seed=1, local=local)
    by_hand = flat(train(setup, local, training.rounds).parameters())
    federation = Federation(data, Lr(), training, Unprotected(), (), local=local)
    module, _ = federation.train({}, 1)
    apart = float((flat(module.parameters()) - by_hand).abs().max())
    print(f"The two models differ by at most {apart:.1e}.")


if __name__ == "__main__":
    main()

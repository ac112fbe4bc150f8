"""From a small experiment to the noise of a real federation, without training it (Gu 2024, V-D)."""

from __future__ import annotations

import numpy as np

from fedpareto import theory

# The Pareto set in closed form: 10 clients, all asked, k = 25, at most 200 rounds.
rows = theory.pareto_set(
    k=25, clients=10, sample_ratio=1.0, sigma_max=0.15, rounds_max=200, points=1
)
for row in rows[[0, 39, 199]]:
    print("{:3d} rounds with σ = {:.4f}: utility loss {:.3f}, leakage {:.1f}".format(*row))

# A small experiment: 12 values of σ, 2 seeds each, every round of 100. Here Eq. 8 with noise stands
# in for training.
sigma = np.linspace(0.02, 0.2, 12)
small = theory.ClosedForm(k=25, clients=10, noise=0.005)
settings = {"sigma": np.repeat(sigma, 2).tolist(), "rounds": [100] * 24}
every = small.every_round(settings, seeds=[1, 2] * 12)
runs = theory.Runs.of(sigma, 1.0, every["utility_loss"].reshape(12, 2, 100))

# Its Pareto points give k.
grid = theory.full_grid(runs)
estimate = theory.estimate_k(
    grid.points["rounds"],
    grid.points["sigma"],
    clients=10,
    sample_ratio=1.0,
    rounds_max=100,
    sigma_min=0.02,
    sigma_max=0.2,
)
print(estimate.message)

# k gives the noise of the real federation: 40 clients, half of them asked, an hour in all at 18
# seconds a round.
rounds = theory.rounds_within(3600, 18)
design = theory.design(estimate, clients=40, sample_ratio=0.5, rounds_max=rounds)
print(design.message)

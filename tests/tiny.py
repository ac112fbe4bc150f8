"""The text of a study that runs in a moment: two trials of one round, on the digits."""

STUDY = """\
name = "tiny"
seed = 1
budget = 2

[data]
name = "digits"
clients = 4

[model]
name = "lr"

[training]
rounds = 1
local_steps = 10
batch_size = 8
learning_rate = { low = 0.01, high = 0.5, log = true }

[mechanism]
name = "randomization"
sigma = { low = 0.01, high = 1.0, log = true }
clipping_norm = [0.5, 4.0]

[objectives.utility_loss]
measure = "test_error"

[objectives.leakage]
measure = "kang23_eq13"
limit = 0.8

[optimizer]
name = "nsga2"
population = 2
"""

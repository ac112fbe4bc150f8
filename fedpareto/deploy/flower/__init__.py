"""A Flower app that runs a deployment; `fedpareto export --to flower` copies it as it is."""

"""What the server does with the mean of a round, one way per file."""

from fedpareto.federation.servers.adam import Adam
from fedpareto.federation.servers.average import Average
from fedpareto.federation.servers.base import ServerStep
from fedpareto.federation.servers.momentum import Momentum

SERVERS: dict[str, type[ServerStep]] = {
    "average": Average,
    "momentum": Momentum,
    "adam": Adam,
}

__all__ = ["SERVERS", "Adam", "Average", "Momentum", "ServerStep"]

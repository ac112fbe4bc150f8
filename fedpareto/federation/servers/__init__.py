"""What the server does with the mean of a round, one way per file."""

from fedpareto.federation.servers.adam import Adam
from fedpareto.federation.servers.average import Average
from fedpareto.federation.servers.base import ServerStep
from fedpareto.federation.servers.momentum import Momentum
from fedpareto.federation.servers.one_of import OneOf

SERVERS: dict[str, type[ServerStep]] = {
    "average": Average,
    "momentum": Momentum,
    "adam": Adam,
    "one_of": OneOf,
}

__all__ = ["SERVERS", "Adam", "Average", "Momentum", "OneOf", "ServerStep"]

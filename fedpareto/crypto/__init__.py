"""Additively homomorphic encryption and the codec that packs updates for it.

Neither gmpy2 nor tenseal is imported before it is needed: the codec and the quantiser work without.
"""

from fedpareto.crypto.ciphertext import Ciphertext
from fedpareto.crypto.codec import Codec
from fedpareto.crypto.constructions import (
    CONSTRUCTIONS,
    Construction,
    HalfLength,
    OwnerFixedBase,
    Textbook,
)
from fedpareto.crypto.keyfile import (
    kind_of,
    read_bfv_key,
    read_bfv_public_key,
    read_private_key,
    read_public_key,
    write_private_key,
    write_public_key,
)
from fedpareto.crypto.keys import PrivateKey, PublicKey
from fedpareto.crypto.lattice import BfvCiphertext, BfvClient, BfvCodec, BfvKey, BfvServer
from fedpareto.crypto.paillier import PaillierClient, PaillierServer
from fedpareto.crypto.quantiser import clip_of, clip_ratio, dequantise, quantise
from fedpareto.crypto.scheme import SCHEMES, Client, Server

__all__ = [
    "CONSTRUCTIONS",
    "SCHEMES",
    "BfvCiphertext",
    "BfvClient",
    "BfvCodec",
    "BfvKey",
    "BfvServer",
    "Ciphertext",
    "Client",
    "Codec",
    "Construction",
    "HalfLength",
    "OwnerFixedBase",
    "PaillierClient",
    "PaillierServer",
    "PrivateKey",
    "PublicKey",
    "Server",
    "Textbook",
    "clip_of",
    "clip_ratio",
    "dequantise",
    "kind_of",
    "quantise",
    "read_bfv_key",
    "read_bfv_public_key",
    "read_private_key",
    "read_public_key",
    "write_private_key",
    "write_public_key",
]

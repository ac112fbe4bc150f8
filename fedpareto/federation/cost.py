"""What training and sending take, as a model of time.

A study holds the figures of the model, so that every machine gives the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedpareto.mechanisms.batchcrypt import SECONDS
from fedpareto.settings import setting

# How many times as long a ciphertext of Damgård–Jurik (degree 2) takes as one of Paillier with the
# same key, by benchmarks/cost_model.py. It holds twice as much, so a value costs less to encrypt.
DEGREE_2 = {"encrypt_seconds": 1.3, "decrypt_seconds": 2.2, "add_seconds": 1.8}


@dataclass(frozen=True)
class Cost:
    """Seconds of a client's work; `fedpareto calibrate` measures them and writes them to a file."""

    step_seconds: float = setting(
        1.5e-4,
        help="seconds of a mini-batch step whatever its size",
        at_least=0,
        at_most=1e6,
        search=False,
    )
    parameter_seconds: float = setting(
        1.2e-10,
        help="seconds per parameter and image of a mini-batch step",
        at_least=0,
        at_most=1e6,
        search=False,
    )
    encryption: str = setting(
        "calibrated",
        help="whose encryption is charged: the seconds below, or phe's (python-paillier 1.5.0 with "
        "gmpy2: 9.21 ms, 7.7 µs, 2.63 ms at 2048 bits). Both are of degree 1; degree 2 is charged "
        "1.3 times as much to encrypt, 2.2 to decrypt and 1.8 to add",
        options=("calibrated", "phe"),
        search=False,
    )
    encrypt_seconds: float = setting(
        5.2e-4,
        help="seconds to encrypt one ciphertext, one core",
        at_least=0,
        at_most=1e6,
        search=False,
    )
    decrypt_seconds: float = setting(
        2.6e-3,
        help="seconds to decrypt one ciphertext, one core",
        at_least=0,
        at_most=1e6,
        search=False,
    )
    add_seconds: float = setting(
        4.5e-6, help="seconds to add two ciphertexts", at_least=0, at_most=1e6, search=False
    )
    pack_seconds: float = setting(
        3e-8, help="seconds to quantize and pack one value", at_least=0, at_most=1e6, search=False
    )
    upload_rate: float = setting(
        1.25e6, help="bytes a client sends in a second", above=0, at_most=1e15, search=False
    )
    download_rate: float = setting(
        6.25e6, help="bytes a client receives in a second", above=0, at_most=1e15, search=False
    )

    def charged(self, key_bits: int, degree: int = 1) -> dict[str, float]:
        """Return the seconds of encryption that are charged, name → seconds."""
        factors = DEGREE_2 if degree == 2 else {}
        seconds = self._of_paillier(key_bits)
        return {name: value * factors.get(name, 1.0) for name, value in seconds.items()}

    def _of_paillier(self, key_bits: int) -> dict[str, float]:
        if self.encryption != "phe":
            return {name: getattr(self, name) for name in SECONDS}
        grown = (key_bits / 2048) ** 2.8  # 28.8 ms at 3072 bits
        return {
            "encrypt_seconds": 9.21e-3 * grown,
            "decrypt_seconds": 2.63e-3 * grown,
            "add_seconds": 7.7e-6 * (key_bits / 2048) ** 1.2,
            "pack_seconds": self.pack_seconds,
        }

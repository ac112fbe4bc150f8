"""Quantize, pack many values into one ciphertext, encrypt, add (BatchCrypt; Kang 2023, BC)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from fedpareto.errors import SettingError
from fedpareto.mechanisms.base import Upload, each
from fedpareto.settings import Whole, setting
from fedpareto.space import Choice, Variable

if TYPE_CHECKING:
    from torch import Tensor

    from fedpareto.noise import Noise


@dataclass(frozen=True)
class BatchCrypt:
    """Send encrypted whole numbers, many in a ciphertext; the server adds what it cannot read.

    Clients clip by the round's own spread, quantize, pack and encrypt. Encryption is exact on whole
    numbers, so a simulation quantizes, packs and charges measured time; with encrypt the numbers
    take the way through real ciphertexts, and the models are the same, bit for bit.
    """

    encryption_batch: Whole = setting(
        100,
        help="values packed into one ciphertext; more of them leave each fewer bits",
        at_least=1,
        at_most=100_000,
    )
    key_bits: int = setting(
        2048, help="bits of the Paillier key", at_least=2048, at_most=16384, search=False
    )
    degree: int = setting(
        1,
        help="1 for Paillier, 2 for Damgård–Jurik: twice the room for the same key",
        at_least=1,
        at_most=2,
        search=False,
    )
    scheme: str = setting(
        "paillier",
        help="paillier; or bfv: exact lattice sums, faster and larger, where encryption_batch, "
        "key_bits and degree mean nothing",
        options=("paillier", "bfv"),
        search=False,
    )
    encrypt: bool = setting(
        False,
        help="whether to run the true encryption, as `fedpareto run --encrypt` does",
        search=False,
    )

    # clients agree on one clip, so all of a round are protected at once
    joint: ClassVar[bool] = True

    def fits(self, summands: int) -> None:
        """Refuse a batch that leaves no bits for a value when so many clients are summed."""
        for batch in _hardest(self.encryption_batch):
            try:
                self.codec(batch, summands)
            except SettingError as error:
                why = str(error).removeprefix("batch: ")
                raise SettingError(f"encryption_batch: {why}") from None

    def codec(self, batch: int, summands: int) -> Any:
        """Return how values lie in plaintexts."""
        return codec_of(self.scheme, self.key_bits, batch, summands, self.degree)

    def protect(self, upload: Upload, values: Mapping[str, Tensor], noise: Noise) -> Upload:
        import torch

        R, K, P = upload.values.shape
        codecs, here = self._round(upload, values)
        takes = (torch.arange(K, device=here.device) < here[:, None]).double()  # [R,K], 0 or 1
        numbers, clip, most = self._quantized(upload, takes, codecs, noise)
        sums = (numbers * takes[:, :, None]).sum(1)  # [R,P], exact below 2^53
        if self.encrypt:
            sums = self._encrypted(numbers, here, upload, codecs)
        unit = clip / (most * here.double().clamp_min(1))  # [R]
        mean = (sums * unit[:, None]).float()
        return self.costs(replace(upload, values=mean[:, None].expand(R, K, P)), values)

    def _round(self, upload: Upload, values: Mapping[str, Tensor]) -> tuple[list[Any], Tensor]:
        """Return the codec of each federation, and how many clients take part, [R]."""
        import torch

        R, K = upload.count.shape
        here = values.get("participants", torch.full((R,), float(K), device=upload.count.device))
        summands = values.get("summands", torch.full_like(here, float(K)))
        batches = values["encryption_batch"].tolist()
        codecs = [
            self.codec(int(batch), int(most))
            for batch, most in zip(batches, summands.tolist(), strict=True)
        ]
        return codecs, here

    def _quantized(
        self, upload: Upload, takes: Tensor, codecs: list[Any], noise: Noise
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return whole numbers [R,K,P] as float64, the clip [R] and the largest magnitude [R].

        Values are quantized by clip and magnitude. The clip is the one that loses least of normal
        values with the spread of all clients' updates, and never above the largest.
        """
        import torch

        from fedpareto.crypto.quantiser import clip_ratio

        x = upload.values.double() * takes[:, :, None]
        count = takes.sum(1) * upload.parameters
        most = _column([float(codec.magnitude) for codec in codecs], x)
        ratio = _column([clip_ratio(codec.magnitude) for codec in codecs], x)
        spread = (x.square().sum((1, 2)) / count.clamp_min(1)).sqrt()
        clip = torch.minimum(ratio * spread, x.abs().amax((1, 2)))
        clipped = x.clamp(-each(clip), each(clip))
        scaled = clipped / each(torch.where(clip > 0, clip, 1.0)) * each(most)
        low = scaled.floor()
        up = noise.uniform(x.shape[2]) < scaled - low  # so that the mean is right
        return low + up, clip, most

    def _encrypted(
        self, numbers: Tensor, here: Tensor, upload: Upload, codecs: list[Any]
    ) -> Tensor:
        """Return the sums [R,P] that clients decrypt once the server has added ciphertexts."""
        import torch

        out = torch.zeros_like(numbers[:, 0])
        for r, codec in enumerate(codecs):
            places: Any = slice(None)
            if upload.exists is not None:
                places = upload.exists[r].nonzero()[:, 0]
            client = client_of(self.scheme, self.key_bits, codec)
            mine = numbers[r][:, places].long().cpu().numpy()
            sent = [client.encrypt(mine[k]).to_bytes() for k in range(int(here[r]))]
            if sent:
                total = client.server.add(*map(client.server.read, sent))
                out[r, places] = torch.from_numpy(client.decrypt(total)).double().to(out.device)
        return out

    def costs(self, upload: Upload, values: Mapping[str, Tensor]) -> Upload:
        """Return the upload with its cost in bits and, by the cost model, in seconds."""
        import torch

        codecs, here = self._round(upload, values)
        length = upload.parameters.double()
        counts = [codec.count(int(n)) for codec, n in zip(codecs, length.tolist(), strict=True)]
        ciphertexts = _column(counts, here)
        size = _column([8.0 * bytes_of(codec) for codec in codecs], here)  # bits of a ciphertext
        free = torch.zeros_like(length)
        cost = {name: values.get(name, free).double() for name in SECONDS}
        client = ciphertexts * cost["encrypt_seconds"] + length * cost["pack_seconds"]

        def all_clients(column: Tensor) -> Tensor:
            return column[:, None].expand_as(upload.count)

        return replace(
            upload,
            count=all_clients(length).float(),
            bits=all_clients(ciphertexts * size / length.clamp_min(1)),
            sent=None,
            seconds=upload.seconds + all_clients(client),
            download=all_clients(ciphertexts * size),
            reading=all_clients(ciphertexts * cost["decrypt_seconds"]),
            adding=ciphertexts * cost["add_seconds"] * (here.double() - 1).clamp_min(0),
        )


# Bytes of 4096 values with TenSEAL 0.3.18, within a tenth of a percent: what it compresses varies.
BFV_BYTES = 88_560
SECONDS = ("encrypt_seconds", "decrypt_seconds", "add_seconds", "pack_seconds")


def _hardest(batches: Whole) -> list[int]:
    """Return the batches to try: the one given, every choice, or the largest of a range."""
    if isinstance(batches, Choice):
        return [int(batch) for batch in batches.choices]
    if isinstance(batches, Variable):
        return [int(batches.high)]
    return [int(batches)]


def _column(numbers: Sequence[float], like: Tensor) -> Tensor:
    """Return numbers as a float64 tensor [R], on the device of another tensor."""
    import torch

    return torch.tensor(numbers, dtype=torch.float64, device=like.device)


@functools.lru_cache(maxsize=256)
def codec_of(scheme: str, key_bits: int, batch: int, summands: int, degree: int) -> Any:
    """Return the codec of a scheme."""
    from fedpareto.crypto import BfvCodec, Codec

    return BfvCodec(summands) if scheme == "bfv" else Codec(key_bits, batch, summands, degree)


def bytes_of(codec: Any) -> int:
    """Return the bytes of one ciphertext."""
    from fedpareto.crypto.ciphertext import number_size
    from fedpareto.crypto.codec import Codec

    return number_size(codec) if isinstance(codec, Codec) else BFV_BYTES


@functools.lru_cache(maxsize=2)
def _key(scheme: str, bits: int) -> Any:
    """Return a fresh key of this process: drawn from the system, kept in memory alone."""
    from fedpareto.crypto import BfvKey, PrivateKey

    return BfvKey.generate() if scheme == "bfv" else PrivateKey.generate(bits)


@functools.lru_cache(maxsize=8)
def client_of(scheme: str, key_bits: int, codec: Any) -> Any:
    """Return what a client encrypts and decrypts with."""
    from fedpareto.crypto import SCHEMES

    return SCHEMES[scheme](_key(scheme, key_bits), codec)  # type: ignore[call-arg]

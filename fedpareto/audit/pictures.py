"""Pictures: how near one is to another, and many on one sheet as a PNG."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter

from fedpareto.space import FloatArray

BEST = 84.0  # dB; what is nearer is the same picture
WINDOW = 7  # pixels across which likeness is taken
GAP = 2  # pixels between pictures of a sheet
WIDTH = 64  # pixels that a picture has at least on a sheet


def psnr(one: FloatArray, other: FloatArray, span: float) -> float:
    """Return the peak signal-to-noise ratio of two pictures in dB, whose values span so much."""
    error = float(np.mean(np.square(one - other)))
    return BEST if error <= span**2 * 10 ** (-BEST / 10) else 10 * float(np.log10(span**2 / error))


def ssim(one: FloatArray, other: FloatArray, span: float) -> float:
    """Return the structural similarity of two pictures [C,H,W] (Wang 2004), over square windows."""
    size = (1, *(min(WINDOW, n) for n in one.shape[1:]))
    a, b = (0.01 * span) ** 2, (0.03 * span) ** 2
    n = size[1] * size[2]
    mean1, mean2 = (uniform_filter(x, size) for x in (one, other))
    unbiased = n / (n - 1)
    var1 = unbiased * (uniform_filter(one * one, size) - mean1**2)
    var2 = unbiased * (uniform_filter(other * other, size) - mean2**2)
    both = unbiased * (uniform_filter(one * other, size) - mean1 * mean2)
    found = ((2 * mean1 * mean2 + a) * (2 * both + b)) / (
        (mean1**2 + mean2**2 + a) * (var1 + var2 + b)
    )
    sizes = zip(size, one.shape, strict=True)
    edges = [slice(w // 2, length - (w - 1) // 2) for w, length in sizes]
    return float(found[tuple(edges)].mean())


def sheet(rows: list[list[FloatArray]], low: float, span: float) -> bytes | None:
    """Return rows of pictures [C,H,W] as one PNG; None where they are no pictures."""
    first = rows[0][0]
    if first.ndim != 3 or first.shape[0] not in (1, 3):
        return None
    times = max(1, -(-WIDTH // first.shape[2]))
    lines = [np.concatenate([_framed(p, low, span, times) for p in row], axis=1) for row in rows]
    return png(np.concatenate(lines, axis=0))


def _framed(picture: FloatArray, low: float, span: float, times: int) -> NDArray[np.uint8]:
    """Return a picture as bytes [H,W,C], enlarged, with white to its right and below."""
    shown = np.clip((picture - low) / span * 255, 0, 255).round().astype(np.uint8)
    large = shown.transpose(1, 2, 0).repeat(times, 0).repeat(times, 1)
    return np.pad(large, ((0, GAP), (0, GAP), (0, 0)), constant_values=255)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return pixels [H,W,1 or 3] as a PNG file."""
    height, width, channels = pixels.shape
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, parts))


def _chunk(part: tuple[bytes, Any]) -> bytes:
    kind, content = part
    checked: bytes = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

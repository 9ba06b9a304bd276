"""A small picture as part of a page: PNG, written here, since it takes so little."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Bytes of a PNG file, of shape (height, width) in grey or (height, width, 3) in colour."""
    height, width = pixels.shape[:2]
    colour = 0 if pixels.ndim == 2 else 2
    rows = pixels.reshape(height, -1)
    # Each row starts with the number of its filter: none.
    data = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def data_uri(pixels: npt.NDArray[np.uint8]) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"


def _chunk(kind: bytes, content: bytes) -> bytes:
    length, check = len(content), zlib.crc32(kind + content)
    return struct.pack(">I", length) + kind + content + struct.pack(">I", check)

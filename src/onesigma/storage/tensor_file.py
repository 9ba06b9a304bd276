"""Tensors and what they mean in one safetensors file: JSON beside them, a SHA-256 over all.

Nothing is unpickled. A truncated or altered file is an error and not a wrong answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from onesigma.errors import FileError
from onesigma.storage.atomic import replacing


def write(path: Path, kind: str, tensors: Mapping[str, Tensor], content: Any) -> None:
    """Write the file whole or not at all; ``content`` is anything that JSON holds.

    Raises:
        FileError: the disk is full.
    """
    # Copies, for safetensors refuses tensors that share memory, as a buffer's views do.
    stored = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(content)
    metadata = {"format": _format(kind), "content": text, "sha256": digest(text, stored)}
    try:
        with replacing(path) as temporary:
            save_file(stored, temporary, metadata=metadata)
    except SafetensorError as error:
        raise FileError(f"{path} cannot be written: {error}.") from error


def read(path: Path, kind: str, remedy: str) -> tuple[dict[str, Tensor], Any]:
    """What ``write`` wrote: the tensors and the content.

    Raises:
        FileError: the file is missing, truncated, altered, or of another kind; with the remedy.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies: a tensor's place in the file is not aligned as torch's own memory is, and
            # kernels round differently then.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # torch has its own, on a shape that safetensors lets pass
        raise FileError(f"{path.name} cannot be read as a {kind}: {error}. {remedy}") from error
    if "format" not in metadata or not metadata["format"].startswith("onesigma"):
        raise FileError(
            f"{path.name} holds tensors alone, such as weights, and no {kind}. {remedy}"
        )
    if metadata["format"] != _format(kind):
        raise FileError(
            f"{path.name} is not a {kind} of this version of onesigma "
            f"(format {metadata.get('format')!r}, expected {_format(kind)!r}). {remedy}"
        )
    text = metadata.get("content", "")
    if metadata.get("sha256") != digest(text, tensors):
        raise FileError(
            f"{path.name} was altered or damaged after saving: its SHA-256 differs. {remedy}"
        )
    try:
        return tensors, json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path.name} does not describe a {kind}: {error}. {remedy}") from error


def digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the text and of each tensor's name, type, shape and bytes."""
    result = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        result.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        result.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def _format(kind: str) -> str:
    return f"onesigma {kind} 1"

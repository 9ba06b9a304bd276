"""Files of ``onesigma.save``, forged: a model that answers, or a FileError."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from fuzz.harness import altered, answered, examples
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import onesigma
from onesigma import FileError
from onesigma.storage.tensor_file import digest


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 3))
    path = tmp_path_factory.mktemp("fuzz") / "model.safetensors"
    onesigma.save(onesigma.convert(model, torch.zeros(2, 4), input_std=0.1), path)
    return path


def loads(path: Path) -> bool:
    """Whether it is loaded; then it answers, or refuses the input, and prints its report."""
    model = answered(lambda: onesigma.load(path), FileError, naming=path.name)
    if model is None:
        return False
    answered(lambda: model(torch.zeros(2, 4)))
    return bool(str(model.report))


@examples(150)
@given(data=st.data())
def test_header(saved, data):
    """The header is JSON with the place of each tensor: whatever it says, no byte is read twice."""
    content = saved.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.dumps(data.draw(altered(json.loads(content[8:end])))).encode()
    other = saved.with_name("header.safetensors")
    other.write_bytes(struct.pack("<Q", len(header)) + header + content[end:])
    loads(other)


@examples(200)
@given(data=st.data())
def test_content_signed_anew(saved, data):
    """By someone who knows how the digest is made."""
    with safe_open(saved, framework="pt") as file:
        metadata = dict(file.metadata())
    tensors = load_file(saved)
    metadata["content"] = json.dumps(data.draw(altered(json.loads(metadata["content"]))))
    metadata["sha256"] = digest(metadata["content"], tensors)
    other = saved.with_name("forged.safetensors")
    save_file(tensors, other, metadata=metadata)
    loads(other)
    assert {path.suffix for path in saved.parent.iterdir()} == {".safetensors"}


def test_json_deeper_than_python_goes(saved):
    """Not even altered() writes these: Python's own encoder gives up before its decoder does."""
    tensors = load_file(saved)
    text = "[" * 100_000 + "]" * 100_000
    metadata = {"format": "onesigma converted model 1", "content": text}
    other = saved.with_name("deep.safetensors")
    save_file(tensors, other, metadata=metadata | {"sha256": digest(text, tensors)})
    assert not loads(other)

"""The zoo through ONNX and back: what both of PyTorch's exporters write is what they were given."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from models import NAMES, converted, inputs_for, trained

import onesigma
from onesigma.importers.onnx.read import read_onnx

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@contextmanager
def quiet() -> Iterator[None]:
    """Both exporters talk, and the older one is deprecated."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def exported(name: str, folder: Path, *, opset: int = 17, batch: int | None = None) -> Path:
    """By the older exporter, with an open batch unless one is given."""
    path = folder / f"{name}.onnx"
    inputs = inputs_for(name, batch or 2)
    names = [f"in{i}" for i in range(len(inputs))]
    axes = {} if batch else {each: {0: "batch"} for each in [*names, "logits"]}
    with quiet():
        torch.onnx.export(
            *(trained(name), inputs, path),
            dynamo=False,
            opset_version=opset,
            input_names=names,
            output_names=["logits"],
            dynamic_axes=axes,
        )
    return path


@torch.no_grad()
def assert_same_network(name: str, path: Path) -> None:
    module = read_onnx(path, dropout={})
    inputs = inputs_for(name, 5)
    torch.testing.assert_close(module(*inputs), trained(name)(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_older_exporter(name, tmp_path):
    assert_same_network(name, exported(name, tmp_path))


@pytest.mark.parametrize(
    ("name", "opset", "batch"),
    [("tcn", 9, 1), ("mixer", 11, 1), ("separable", 9, 1), ("decoder", 13, 4), ("unet", 11, 1)],
)
def test_older_opsets_and_fixed_batches(name, opset, batch, tmp_path):
    assert_same_network(name, exported(name, tmp_path, opset=opset, batch=batch))


@pytest.mark.parametrize("name", [name for name in NAMES if name.values[0] == "functional"])
def test_the_newer_exporter(name, tmp_path):
    """Its weights lie in a file of their own; one network, for it takes seconds."""
    pytest.importorskip("onnxscript")
    path = tmp_path / f"{name}.onnx"
    with quiet():
        shapes = ({0: "batch"},)
        torch.onnx.export(
            *(trained(name), inputs_for(name, 2), path),
            dynamo=True,
            external_data=True,
            dynamic_shapes=shapes,
            verbose=False,
        )
    assert_same_network(name, path)


# Where the networks of the zoo drop, in the words of their files.
SITES = {
    "tcn": {"every LeakyRelu": 0.2},
    "in_place": {"/stem/Conv": 0.3, "/Add": 0.3},
}


@pytest.mark.parametrize("name", [name for name in NAMES if name.values[0] in SITES])
def test_round_trip(name, tmp_path):
    """Out without its dropout, in with the dropout named: the same doubt as from PyTorch."""
    module = read_onnx(exported(name, tmp_path), dropout=SITES[name])
    inputs = inputs_for(name, 4)
    with torch.no_grad():
        found = onesigma.convert(module, inputs)(*inputs)
        wanted = converted(name)(*inputs)
    for field in ("mean", "var", "probs", "entropy", "aleatoric", "epistemic"):
        torch.testing.assert_close(
            getattr(found, field), getattr(wanted, field), rtol=1e-5, atol=1e-5
        )


def test_dropout_that_was_exported_is_found(tmp_path):
    """PyTorch can be told to leave it in."""
    path = tmp_path / "vgg.onnx"
    training = torch.onnx.TrainingMode.TRAINING
    with quiet():
        torch.onnx.export(
            *(trained("vgg"), inputs_for("vgg", 1), path), dynamo=False, training=training
        )
    rates = [step.dropout.rate for step in read_onnx(path).steps() if step.dropout]
    assert rates == [0.25, 0.25, 0.5]

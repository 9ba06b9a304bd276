"""What ``onesigma predict`` reads, damaged: batches of finite numbers, or an error of ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from fuzz.harness import altered, answered, damaged, examples
from fuzz.test_fuzz_data import npy, wav
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from onesigma.errors import DataError, FileError, OnesigmaError
from onesigma.importers.torch_files import put_weights
from onesigma.storage.opening import open_model
from onesigma.tables.windows import Scaling, read_samples

CSV = b'ax,ay,"a z"\n0.5,1,-2e-3\n 1 ,2,3\n\n"4",5,6\n' + b"7,8,9\n" * 4


def parquet(path: Path) -> bytes:
    pyarrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"ax": np.arange(9.0), "ay": np.arange(9), "az": np.ones(9, np.float32)})
    writer.write_table(table, path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A good file of each kind."""
    folder = tmp_path_factory.mktemp("fuzz")
    contents = {"csv": CSV, "tsv": CSV.replace(b",", b"\t"), "npy": npy(), "wav": wav()}
    contents["parquet"] = parquet(folder / "made.parquet")
    for kind, content in contents.items():
        (folder / f"good.{kind}").write_bytes(content)
    return {kind: folder / f"good.{kind}" for kind in contents}


columns = st.none() | st.lists(
    st.sampled_from(["0", "ay", "a z", "1-2", "9", "", 0, -1]), max_size=3
)
numbers = st.none() | st.sampled_from([1, 2, 3, 100])


@pytest.mark.parametrize("kind", ["csv", "tsv", "npy", "wav", "parquet"])
@examples(50)
@given(
    data=st.data(), columns=columns, window=numbers, hop=numbers, header=st.none() | st.booleans()
)
def test_bytes(kind, files, data, columns, window, hop, header):
    path = files[kind].with_name(f"damaged.{kind}")
    path.write_bytes(data.draw(damaged(files[kind].read_bytes())))
    cut = {"window": window, "hop": hop, "columns": columns, "header": header}
    found = answered(lambda: list(read_samples(path, batch=2, **cut)))
    if found is not None:
        assert found
        assert all(x.dtype == np.float32 and 1 <= len(x) <= 2 for x in found)
        assert all(np.isfinite(x).all() for x in found)


@examples(20)
@given(data=st.data())
def test_scaling(files, data):
    path = files["csv"].with_name("scaling.json")
    path.write_text(json.dumps(data.draw(altered({"mean": [0.5, 1.0], "std": [1.0, 2.5]}))))
    scaling = answered(lambda: Scaling.read(path), DataError, naming=path.name)
    if scaling is not None:
        assert np.isfinite(scaling.mean).all()
        assert (scaling.std > 0).all()


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
@examples(50)
@given(data=st.data())
def test_weights(kind, files, data):
    """Weights that arrive are finite or not, but of the right names and shapes."""
    model, path = nn.Linear(3, 2), files["csv"].with_name(f"weights.{kind}")
    (save_file if kind == "safetensors" else torch.save)(model.state_dict(), path)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    answered(lambda: put_weights(model, path), FileError, naming=path.name)
    assert model(torch.zeros(1, 3)).shape == (1, 2)


names = st.text(max_size=12) | st.from_regex(r"[a-z.:/]{0,12}(\.(onnx|pt|pt2|safetensors))?")


@examples(50)
@given(name=names)
def test_names_of_models(name, files, monkeypatch):
    """None of these is a model."""
    monkeypatch.chdir(files["csv"].parent)
    with pytest.raises(OnesigmaError):
        open_model(name, example=np.zeros((1, 3), np.float32))

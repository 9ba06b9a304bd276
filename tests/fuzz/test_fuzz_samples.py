"""What ``onesigma predict`` is told: batches of finite numbers, or an error of ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from data_files import write_csv, write_npy, write_parquet, write_wav
from fuzz.harness import altered, answered, examples
from hypothesis import given
from hypothesis import strategies as st

from onesigma.errors import DataError, OnesigmaError
from onesigma.storage.opening import open_model
from onesigma.tables.windows import Scaling, read_samples


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A good file of each kind."""
    folder = tmp_path_factory.mktemp("fuzz")
    kinds = {"csv": write_csv, "npy": write_npy, "parquet": write_parquet}
    made = {kind: write(folder / f"t.{kind}") for kind, write in kinds.items()}
    (folder / "t.tsv").write_text((folder / "t.csv").read_text().replace(",", "\t"))
    sound = np.arange(30) * 99
    return made | {"tsv": folder / "t.tsv", "wav": write_wav(folder / "t.wav", sound)}


columns = st.none() | st.lists(st.sampled_from(["0", "y", "z", "1-2", "9", "", 0, -1]), max_size=3)
numbers = st.none() | st.sampled_from([1, 2, 3, 100])


@pytest.mark.parametrize("kind", ["csv", "tsv", "npy", "wav", "parquet"])
@examples(50)
@given(columns=columns, window=numbers, hop=numbers, header=st.none() | st.booleans())
def test_how_samples_are_cut(kind, files, columns, window, hop, header):
    cut = {"window": window, "hop": hop, "columns": columns, "header": header}
    found = answered(lambda: list(read_samples(files[kind], batch=2, **cut)))
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


names = st.text(max_size=12) | st.from_regex(r"[a-z.:/]{0,12}(\.(onnx|pt|pt2|safetensors))?")


@examples(50)
@given(name=names)
def test_names_of_models(name, files, monkeypatch):
    """None of these is a model."""
    monkeypatch.chdir(files["csv"].parent)
    with pytest.raises(OnesigmaError):
        open_model(name, example=np.zeros((1, 3), np.float32))

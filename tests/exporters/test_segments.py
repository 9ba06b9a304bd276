"""A model with exits as files: the same answers from the same exits, or an error."""

import json

import exit_models
import numpy as np
import pytest
from exit_models import never, waves

import onesigma
from onesigma import runtime

pytestmark = pytest.mark.xdist_group("exits")  # a worker makes the models once


@pytest.fixture(scope="module", params=[False, True], ids=["distilled", "energy"])
def exported(request, tmp_path_factory):
    model = exit_models.model(request.param)
    folder = tmp_path_factory.mktemp("exits") / "m.onnx"
    written = onesigma.export(model, folder, class_names=["slow", "medium", "fast"])
    assert written.error < 1e-4
    return model, folder


def test_the_runtime_leaves_where_pytorch_does(exported):
    model, folder = exported
    loaded, (x, _) = runtime.load(folder, threads=1), waves(300)
    found, wanted = loaded(x.numpy()), model(x).detach()
    assert found.exit.tolist() == wanted.exit.tolist()
    assert len(set(found.exit.tolist())) > 1
    for name, value in wanted.arrays().items():
        np.testing.assert_allclose(found.arrays()[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(loaded.cost(found), model.cost(wanted))
    parts = loaded.predict(x.numpy(), batch=64)
    assert parts.exit.tolist() == found.exit.tolist()
    np.testing.assert_allclose(parts.entropy, found.entropy, rtol=1e-4, atol=1e-6)
    assert loaded.class_names == ["slow", "medium", "fast"]
    assert loaded.contract == model.whole.settings.contract


def test_segments_together_are_the_whole_file(exported, tmp_path):
    model, _ = exported
    x = waves(20)[0].numpy()
    onesigma.export(never(model), tmp_path / "m.onnx")
    onesigma.export(model.whole, tmp_path / "whole.onnx")
    found, wanted = (runtime.load(tmp_path / name)(x) for name in ("m.onnx", "whole.onnx"))
    for name, value in wanted.arrays().items():
        np.testing.assert_allclose(found.arrays()[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_row_of_nan_does_not_leave(exported):
    model, folder = exported
    x = waves(20)[0].numpy()
    wanted = runtime.load(folder)(x)
    x[3, 0, 0] = np.nan
    found = runtime.load(folder)(x)
    assert found.exit[3] == len(model.costs) - 1
    assert not found.valid[3]
    assert np.delete(found.exit, 3).tolist() == np.delete(wanted.exit, 3).tolist()


def test_a_folder_that_is_not_as_it_was_written(exported, tmp_path):
    model, _ = exported
    folder = tmp_path / "m.onnx"
    onesigma.export(model, folder)
    listed = (folder / "exits.json").read_text()
    for damaged in ("", "{}", "[]", listed.replace('"format": 1', '"format": 9'), listed[:50]):
        (folder / "exits.json").write_text(damaged)
        with pytest.raises(onesigma.FileError, match="exits"):
            runtime.load(folder)
    content = json.loads(listed)
    content["segments"].reverse()
    (folder / "exits.json").write_text(json.dumps(content))
    with pytest.raises(onesigma.FileError, match="exits"):
        runtime.load(folder)
    (folder / "exits.json").write_text(listed)
    (folder / "segment_1.onnx").write_bytes(b"")
    with pytest.raises(onesigma.FileError, match="segment_1"):
        runtime.load(folder)
    (folder / "segment_1.onnx").unlink()
    with pytest.raises(onesigma.FileError, match="segment_1"):
        runtime.load(folder)

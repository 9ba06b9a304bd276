"""A saved model with exits answers as before; a forged one is refused."""

import json

import exit_models
import pytest
import torch
from exit_models import waves

import onesigma
from onesigma.storage import tensor_file

pytestmark = pytest.mark.xdist_group("exits")  # a worker makes the models once
KIND = "converted model"


@pytest.mark.parametrize("keep", [False, True], ids=["distilled", "energy"])
def test_it_answers_as_before(keep, tmp_path):
    model, (x, _) = exit_models.model(keep), waves(300)
    onesigma.save(model, tmp_path / "m.safetensors")
    onesigma.save(model.whole, tmp_path / "whole.safetensors")
    again = onesigma.load(tmp_path / "m.safetensors")
    assert isinstance(again, onesigma.EarlyExit)
    assert (again.rule, again.costs) == (model.rule, model.costs)
    found, wanted = again(x), model(x)
    assert len(wanted.exit.unique()) > 1
    for name, value in wanted.arrays().items():
        assert torch.equal(found.arrays()[name], value), name
    # Weights are stored once.
    sizes = [(tmp_path / name).stat().st_size for name in ("m.safetensors", "whole.safetensors")]
    assert sizes[0] < 2.5 * sizes[1]


def forge(path, change):
    tensors, content = tensor_file.read(path, KIND, "")
    change(content)
    tensor_file.write(path, KIND, tensors, json.loads(json.dumps(content)))


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["exits"].update(costs=[0.5]),
        lambda c: c["exits"].update(costs=[0.1, 0.2, "much"]),
        lambda c: c["exits"]["rule"].update(threshold="nan"),
        lambda c: c["exits"]["rule"].update(score="luck"),
        lambda c: c["graphs"].pop("segment_1"),
        lambda c: c["graphs"].update(segment_1=c["graphs"]["segment_0"]),
        lambda c: c["graphs"].update(segment_2=c["graphs"]["source"]),
    ],
)
def test_a_forged_file_is_refused(change, tmp_path):
    path = tmp_path / "m.safetensors"
    onesigma.save(exit_models.model(False), path)
    forge(path, change)
    with pytest.raises(onesigma.FileError, match="no model that can be loaded"):
        onesigma.load(path)


def test_with_another_temperature_it_has_no_exits():
    model = exit_models.model(False)
    assert not isinstance(model.with_temperature(None), onesigma.EarlyExit)
    assert model.double()(waves(5)[0].double()).mean.dtype == torch.float64
    model.float()

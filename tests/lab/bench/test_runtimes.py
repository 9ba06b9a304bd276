"""The runtimes are listed with what they need."""

import pytest

from onesigma.lab.bench.runtimes import FROM_ONNX, RUNTIMES, runtime


@pytest.mark.parametrize("name", RUNTIMES)
def test_each_is_complete(name):
    found = runtime(name)
    assert found.title
    assert found.packages
    assert callable(found.translate)
    assert callable(found.start)


def test_what_is_installed_says_its_version():
    pytest.importorskip("onnxruntime")
    assert runtime("onnxruntime").missing() == []
    assert runtime("onnxruntime").with_version().startswith("ONNX Runtime 1.")
    assert set(FROM_ONNX) < set(RUNTIMES)

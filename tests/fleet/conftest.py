from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("onnxruntime")

from fleet_files import export_model


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return export_model(tmp_path_factory.mktemp("model"))

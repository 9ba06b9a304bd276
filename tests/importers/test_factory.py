"""``package.module:factory``: found, called, and every way in which that fails said in words."""

import sys
from pathlib import Path

import pytest
from torch import nn

from onesigma.errors import InputError, ModelError
from onesigma.importers.factory import from_factory, is_factory

SOURCE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layer = nn.Linear(3, width)

class Shelf:
    @staticmethod
    def make():
        return Net(7)

def make_net():
    return Net(5)

def failing():
    raise RuntimeError("the dog ate the weights")

def needy(width):
    return Net(width)

def number():
    return 3

ready = Net(6)
setting = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with modules in it, of names that no other test imports."""
    package = tmp_path / "factory_nets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "small.py").write_text(SOURCE)
    (package / "broken.py").write_text("1 / 0")
    (package / "wanting.py").write_text("import no_such_package_at_all")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("factory_nets")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "width"),
    [("make_net", 5), ("Net", 4), ("ready", 6), ("Shelf.make", 7)],
    ids=["function", "class", "module", "dotted"],
)
def test_found_in_the_current_folder(name, width, folder):
    before = list(sys.path)
    model = from_factory(f"factory_nets.small:{name}")
    assert isinstance(model, nn.Module)
    assert model.layer.out_features == width
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("factory_nots.small:make_net", InputError, "no module 'factory_nots'.*PYTHONPATH"),
        ("factory_nets.tiny:make_net", InputError, "no module 'factory_nets.tiny'"),
        ("factory_nets.wanting:make", InputError, "no_such_package_at_all"),
        ("factory_nets.broken:make", InputError, "ZeroDivisionError"),
        ("factory_nets.small:make_nett", InputError, "it has make_net"),
        ("factory_nets.small:failing", ModelError, "RuntimeError: the dog ate the weights"),
        ("factory_nets.small:needy", ModelError, "takes no arguments"),
        ("factory_nets.small:number", ModelError, "returned int"),
        ("factory_nets.small:setting", ModelError, "is a int"),
    ],
)
def test_what_is_wrong_is_said(name, error, says, folder):
    with pytest.raises(error, match=says):
        from_factory(name)


def test_what_looks_like_a_factory():
    assert is_factory("package.module:factory")
    assert is_factory("module:Class.method")
    for other in ("model.onnx", "C:\\model.onnx", "module", "a:b:c", ":b", "a:", "a-b:c", "1a:b"):
        assert not is_factory(other)

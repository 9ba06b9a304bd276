"""Public names come when first used, and a file that is imported first hides none of them."""

import subprocess
import sys

import pytest

import onesigma


def test_all_names_are_listed_before_they_are_used():
    program = """
import sys, onesigma
assert "torch" not in sys.modules
assert set(onesigma.__all__) <= set(dir(onesigma))
assert "torch" not in sys.modules
from onesigma.convert import assemble  # the file, before the function
assert "torch" in sys.modules
assert onesigma.convert.__module__ == "onesigma.convert" and callable(onesigma.convert)
from onesigma import *
assert convert is onesigma.convert
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'onesigma' has no attribute 'nothing'"):
        _ = onesigma.nothing


def test_other_attributes_can_still_be_set(monkeypatch):
    monkeypatch.setattr(onesigma, "convert", len)
    assert onesigma.convert is len

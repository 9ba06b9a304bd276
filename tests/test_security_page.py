"""SECURITY.md: every promise names its tests, and they exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_it_exists(file, name):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_one():
    promised = PAGE.split("## What is promised")[1].split("## What is not promised")[0]
    promises = re.split(r"\n(?=\*\*)", promised)[1:]
    assert len(promises) > 5
    assert all("`tests/" in promise for promise in promises)

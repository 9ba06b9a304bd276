"""What is installed: every file of it is known by its hash, and every licence is listed."""

import json
import re
import runpy
import tomllib
from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("packaging")

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "sbom.py"))
PINS = TOOL["pins"]((ROOT / "constraints.txt").read_text(encoding="utf-8"))
LOCKS = ("requirements", "dev", "engines")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
# Not in the lock: torch has another build for every platform, `make setup` does not use the others.
UNLOCKED = {"torch", "nvidia-ml-py", "openvino", "openvino-telemetry"}
EXTRAS = ("demo", "dev", "docs", "keras", "onnx", "predict", "ray", "reproduce", "spark")
LOCKED = re.compile(r"([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def test_the_lock_has_every_pin_with_hashes_and_nothing_else():
    demo, engines = (
        set(re.search(rf"{name} := (.*)", MAKEFILE)[1].split())
        for name in ("DEMO_NEEDS", "ENGINES")
    )
    every = (demo, PINS.keys() - demo - engines - UNLOCKED, engines)
    for file, names in zip(LOCKS, every, strict=True):
        lock = (ROOT / f"{file}.lock").read_text(encoding="utf-8")
        assert f"--require-hashes --no-deps -r {file}.lock" in MAKEFILE
        assert not LOCKED.sub("", lock), "a line that is no pin with hashes: run make lock"
        locked = {name: version for name, version, _ in LOCKED.findall(lock)}
        assert locked == {name: PINS[name] for name in names}, "run make lock"
    assert set(re.search(r"UNLOCKED := (.*)", MAKEFILE)[1].split()) == UNLOCKED


def test_what_the_project_asks_for_is_pinned():
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = asked["project"]["optional-dependencies"]
    texts = [*asked["build-system"]["requires"], *asked["project"]["dependencies"]]
    for text in texts + [each for extra in EXTRAS for each in extras[extra]]:
        requirement = Requirement(text)
        version = PINS[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{text}, but {version} is pinned"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([("License-Expression", "MIT AND Zlib"), ("License", "see the file")], "MIT AND Zlib"),
        ([("License", "BSD")], "BSD"),
        ([("License", "Permission is hereby\ngranted"), ("Classifier", "A :: B")], "UNKNOWN"),
        ([("License", "UNKNOWN"), ("Classifier", "License :: OSI Approved :: X")], "X"),
        ([("Classifier", "License :: X"), ("Classifier", "License :: Y")], "X and Y"),
        ([], "UNKNOWN"),
    ],
)
def test_a_licence_is_what_the_package_states(fields, expected):
    metadata = Message()
    for name, value in fields:
        metadata[name] = value
    assert TOOL["licence"](metadata) == expected


def test_another_version_than_the_pinned_one_is_no_truth():
    with pytest.raises(SystemExit, match=r"0\.0\.1 is pinned"):
        TOOL["installed"]({"numpy": "0.0.1"})


def test_the_lists(tmp_path):
    packages = TOOL["installed"]({})
    TOOL["write"](tmp_path, packages)
    bom = json.loads((tmp_path / "sbom.cdx.json").read_text(encoding="utf-8"))
    assert (bom["bomFormat"], bom["specVersion"], bom["version"]) == ("CycloneDX", "1.6", 1)
    assert bom["metadata"]["component"]["name"] == "onesigma"
    components = bom["components"]
    references = [each["bom-ref"] for each in [bom["metadata"]["component"], *components]]
    assert len(set(references)) == len(references) == len(packages) + 1
    for each in components:
        assert each["type"] == "library"
        assert each["purl"].startswith(f"pkg:pypi/{each['name']}@")
        (stated,) = each["licenses"]
        assert stated.get("expression") or stated["license"]["name"]
    edges = {each["ref"]: each["dependsOn"] for each in bom["dependencies"]}
    assert set(edges) == set(references)
    assert {ref for refs in edges.values() for ref in refs} <= set(references)
    needed = {ref.split("@")[0] for ref in edges[references[0]]}
    assert needed == {"pkg:pypi/numpy", "pkg:pypi/safetensors", "pkg:pypi/torch"}
    table = (tmp_path / "licences.csv").read_text(encoding="utf-8").splitlines()
    assert table[0] == "name,version,licence"
    assert [row.split(",")[0] for row in table[1:]] == [each["name"] for each in components]


def test_what_is_missing_is_said_loudly(capsys):
    TOOL["say"]({"silent": SimpleNamespace(metadata=Message())}, {"absent": "1.0"})
    said = capsys.readouterr().out
    assert "UNKNOWN licence, read it yourself: silent." in said
    assert "NOT pinned, listed: silent." in said
    assert "NOT installed, so not listed: absent." in said

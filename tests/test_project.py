"""The files around the code: workflows that call what exists, versions that agree."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import onesigma

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_workflows_are_found():
    assert [path.stem for path in WORKFLOWS] == ["docs", "release", "tests"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow(path):
    """It may only read, its actions have versions, and what it makes exists."""
    content = read(path)
    assert content[True]  # "on", which YAML takes for a truth
    assert content["permissions"] == {"contents": "read"}
    for job in content["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest"
        assert set(job.get("needs", "").split()) <= content["jobs"].keys()
        for step in job["steps"]:
            assert len({"uses", "run"} & step.keys()) == 1
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", step["uses"])
            else:
                program, *words = step["run"].split()
                assert program == "make"
                assert {word for word in words if "=" not in word} <= TARGETS


def test_they_test_the_versions_that_are_promised():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    promised = [each.rsplit(" ")[-1] for each in project["classifiers"] if ":: 3." in each]
    tests = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["tests"]
    assert tests["strategy"]["matrix"]["python"] == promised


def test_only_the_job_that_publishes_may_ask_for_a_token():
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "permissions" not in jobs["build"]


def test_the_citation_is_of_this_version():
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == onesigma.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_hooks_and_templates():
    hooks = read(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert [hook["name"] for hook in hooks] == ["ruff format", "ruff check", "mypy"]
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = read(path)
        assert {"name", "description", "body"} <= form.keys()
        assert all(part["attributes"]["label"] for part in form["body"])

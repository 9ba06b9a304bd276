"""The pages are true: their Python runs, their commands are taken, cheap ones are run.

The blocks of a page run in order and share their names and files, as for somebody who follows it.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnx")

from onnx_files import classifier, write
from short_fit import short_fit

import onesigma
from onesigma.cli import main as cli
from onesigma.rules import RULES

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md")]
    + [page for part in ("docs", "examples", "src") for page in (ROOT / part).rglob("*.md")]
)
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", flags=re.DOTALL | re.MULTILINE)
CHEAP = ("inspect", "convert", "audit", "predict")  # run if their files are there
FILE = re.compile(r"\.(onnx|keras|h5|npy|safetensors|csv|parquet|wav)$")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each fenced block."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [(language, textwrap.dedent(text)) for _, language, text in found]


def commands(text: str) -> list[list[str]]:
    """The commands in a block for the shell, as lists of words; what they redirect is left out."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        found.append([])
        words = iter(shlex.split(line.removeprefix("$ "), comments=True))
        for word in words:
            if word in ("|", "&&"):
                found.append([])
            elif word in ("<", ">", "2>"):
                next(words)
            else:
                found[-1].append(word)
    return [each for each in found if each]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# The tutorial has the code of a notebook, which tests/examples runs.
WITH_CODE = [
    page
    for page in PAGES
    if {"python", "sh"} & {language for language, _ in blocks(page)} and page.stem != "tutorial"
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files that the pages speak of: a model, saved and as ONNX, and inputs."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)).eval()
    inputs = torch.randn(40, 6)
    onesigma.save(onesigma.convert(model, inputs), "model.safetensors")
    write(tmp_path / "model.onnx", classifier())
    np.save("inputs.npy", inputs.numpy())
    rules = dict(RULES)
    yield tmp_path
    RULES.clear()  # the page on rules adds one
    RULES.update(rules)


def test_the_pages_are_found() -> None:
    found = {name(page) for page in WITH_CODE}
    assert {"README.md", "docs/quickstart.md", "src/onesigma/rules/README.md"} <= found


# Some pages train or calibrate: a quick look needs the README alone.
PAGES_TO_RUN = [
    pytest.param(page, marks=() if name(page) == "README.md" else pytest.mark.long, id=name(page))
    for page in WITH_CODE
]


@pytest.mark.parametrize("page", PAGES_TO_RUN)
def test_page_runs(page: Path, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {}
    with short_fit():
        for index, (language, text) in enumerate(blocks(page)):
            if language == "python":
                exec(compile(text, f"{name(page)}, block {index}", "exec"), scope)
            elif language == "sh":
                for words in commands(text):
                    check_command(words, page)
    assert "Traceback" not in capsys.readouterr().out


def check_command(words: list[str], page: Path) -> None:
    """It is one that this repository has, with options that it takes."""
    program, *arguments = words
    if program == "onesigma":
        try:
            cli.build_parser().parse_args(arguments)
        except SystemExit as done:
            if done.code == 0:  # --help, --version
                return
            pytest.fail(f"the command line does not take: {shlex.join(words)}")
        if arguments[0] in CHEAP and all(Path(file).exists() for file in inputs_of(arguments)):
            assert cli.main(arguments) == 0
    elif program == "make":
        makefile = page.with_name("Makefile") if "examples" in page.parts else ROOT / "Makefile"
        for target in arguments:
            assert re.search(rf"^{target}:", makefile.read_text(), flags=re.MULTILINE), target
    elif program == "python" and arguments[0].endswith(".py"):
        assert (ROOT / arguments[0]).is_file(), arguments[0]


def inputs_of(arguments: list[str]) -> list[str]:
    before = ["", *arguments]
    return [
        word
        for word, previous in zip(arguments, before, strict=False)
        if FILE.search(word) and previous not in ("-o", "--output")
    ]


def test_a_wrong_option_is_noticed() -> None:
    with pytest.raises(pytest.fail.Exception, match="no-such-option"):
        check_command(["onesigma", "inspect", "model.onnx", "--no-such-option"], ROOT / "README.md")
    with pytest.raises(AssertionError):
        check_command(["make", "nothing"], ROOT / "README.md")


def test_a_cheap_command_is_run(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_command(["onesigma", "audit", "model.safetensors", "inputs.npy"], ROOT / "README.md")
    assert "40 inputs" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_the_text_exist(page: Path) -> None:
    known = set(cli.commands())
    named = re.findall(r"`onesigma ([a-z]+)", FENCE.sub("", page.read_text(encoding="utf-8")))
    assert set(named) <= known


def test_the_example_of_the_rules_page_is_right(files: Path) -> None:
    """The example rule is one that people will copy: check its formula by Monte Carlo."""
    scope: dict[str, Any] = {}
    exec(blocks(ROOT / "src/onesigma/rules/README.md")[0][1], scope)
    x = onesigma.Gaussian(torch.tensor([0.7, -2.0]), torch.tensor([0.5, 1.5]))
    y = scope["sinh"](x)
    draws = torch.randn(400_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sample = torch.sinh(x.mean + x.var.sqrt() * draws)
    error = sample.std(0) / len(sample) ** 0.5
    assert ((y.mean - sample.mean(0)).abs() < 5 * error).all()
    deviation = (sample - sample.mean(0)).square()
    assert ((y.var - deviation.mean(0)).abs() < 5 * deviation.std(0) / len(sample) ** 0.5).all()


def test_nobody_is_sent_to_an_index_that_has_no_onesigma() -> None:
    for page in [*PAGES, *(ROOT / "examples").glob("*.py")]:
        assert "onesigma[" not in page.read_text(encoding="utf-8"), name(page)

"""Random command lines: done (0), an error that is explained (1) or wrong usage (2), no traceback.

The words come from the parser itself, so a new command or option is tried as soon as it exists.
Commands that train, measure or serve are only parsed.
"""

from __future__ import annotations

import argparse
import io
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from fuzz.harness import examples
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import onesigma
from onesigma.cli import main as cli

pytest.importorskip("onnxruntime")
from onnx_files import classifier, numbers, write

NOT_RUN = ("demo", "bench", "reproduce", "live")
FILES = [  # what they are called below the folder of the test
    *("model.safetensors", "plain.onnx", "converted.onnx", "rows.csv", "rows.npy", "folder", "."),
    *("damaged.onnx", "damaged.safetensors", "empty.csv", "text.npy", "absent.npy"),
    *("out.onnx", "new/out.csv", "model.safetensors/below"),
]
WORDS = [
    *("0", "1", "2", "-1", "3.5", "1e999", "nan", "inf", "9" * 20, "½", "٣", "é\udcff", "", "-"),
    *("every Relu=0.5", "relu1=2", "relu*=x", "=0.5", "fc1=", "a,b", "0-1", "5-2", "x" * 300, "{}"),
    *("os:system", "torch.nn:Identity", "no.such:thing", "classification", "two words"),
]
USUAL = {  # what makes sense for an argument of that name; given as often as all else together
    "model": ["model.safetensors", "converted.onnx", "plain.onnx"],
    "data": ["rows.csv", "rows.npy"],
    "inputs": ["rows.npy"],
    "output": ["out.onnx", "out.csv", "folder"],
}
files = st.sampled_from(FILES).map(lambda file: f"{{}}/{file}")
words = st.sampled_from(WORDS)


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Each command's parser, by its name."""
    root = argparse.ArgumentParser().add_subparsers()
    for command in cli.commands().values():
        command.add_to(root)
    return dict(root.choices)


def filled(draw: st.DrawFn, action: argparse.Action) -> list[str]:
    """An argument or an option as it should be given, its values more or less sensible."""
    flag = list(action.option_strings[:1])
    if action.nargs == 0:
        return flag
    values = files | files | words if action.type is Path or not flag else words | words | files
    if action.dest in USUAL and draw(st.booleans()):
        values = st.sampled_from([f"{{}}/{file}" for file in USUAL[action.dest]])
    elif action.choices:
        values = st.sampled_from([str(choice) for choice in action.choices]) | words
    return flag + draw(st.lists(values, min_size=1, max_size=1 if action.nargs is None else 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Dropout(0.4), nn.Linear(4, 3))
    converted = onesigma.convert(model, torch.randn(2, 6))
    onesigma.save(converted, folder / "model.safetensors")
    onesigma.export(converted, folder / "converted.onnx")
    write(folder / "plain.onnx", classifier())
    np.save(folder / "rows.npy", numbers(5, 6))
    np.savetxt(folder / "rows.csv", numbers(5, 6), delimiter=",", header="a,b,c,d,e,f", comments="")
    np.save(folder / "text.npy", np.array(["text"]))
    (folder / "damaged.onnx").write_bytes((folder / "plain.onnx").read_bytes()[:-40])
    (folder / "damaged.safetensors").write_bytes(b"\xff" * 40)
    (folder / "empty.csv").touch()
    (folder / "folder").mkdir()
    return folder


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command, its arguments and some of its options; at times a word too many or too few."""
    name = draw(st.sampled_from(sorted(parsers())))
    actions = parsers()[name]._actions
    needed = [action for action in actions if action.required]
    optional = [action for action in actions if not action.required and action.dest != "help"]
    extra = draw(st.lists(st.sampled_from(optional), max_size=3, unique_by=id)) if optional else []
    line = [name, *(word for action in needed + extra for word in filled(draw, action))]
    spoilt = draw(st.sampled_from(["not", "not", "not", "a word less", "a word more"]))
    place = draw(st.integers(0, len(line) - 1))
    if spoilt == "a word less":
        del line[place]
    elif spoilt == "a word more":
        stray = st.sampled_from(["--nonsense", "--", "-q", "--help", "--version", "-"])
        line.insert(place, draw(stray | words))
    return line


@examples(40)
@given(line=command_lines())
def test_exit_codes(folder, line):
    line = [word for word in line if word != "--debug"]  # which is there to show tracebacks
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as temporary:
        for name in NOT_RUN:
            idle = replace(cli.commands()[name], run=lambda args: None)
            patch.setitem(cli.commands(), name, idle)
        # A copy, because some commands write, and each example must find the same files.
        here = shutil.copytree(folder, Path(temporary) / "here")
        patch.chdir(here)
        code, said = ran([word.replace("{}", str(here)) for word in line])
    assert code in (0, 1, 2)
    assert "Traceback" not in said
    assert "should not happen" not in said
    assert bool(said.strip()) or code == 0 or "-q" in line


def ran(arguments: list[str]) -> tuple[int | str | None, str]:
    """The exit code, and what was said on standard error."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code: int | str | None = cli.main(arguments)
        except SystemExit as stop:
            code = stop.code
    err.flush()
    return code or 0, err.buffer.getvalue().decode()

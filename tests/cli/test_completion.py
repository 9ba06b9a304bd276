"""Tab completion, asked of the shells themselves."""

import shutil
import subprocess

import pytest

from onesigma.cli import main as cli

CASES = [
    (["onesigma", "pre"], ["predict"]),
    (["onesigma", ""], [each.__name__.rpartition(".")[2] for each in cli.COMMANDS]),
    (["onesigma", "predict", "--abs"], ["--abstain-above", "--abstain-rule"]),
    (["onesigma", "-q", "inspect", "--js"], ["--json"]),
    (["onesigma", "predict", "--variance", ""], ["full", "lowrank"]),
    (["onesigma", "predict", "model.onnx", "--mean", "f"], ["frozen"]),
    (["onesigma", "reproduce", "s"], ["speech"]),
    (["onesigma", "completion", ""], ["bash", "zsh", "fish"]),
]
IDS = [" ".join(words) for words, _ in CASES]


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def ask(shell: str, program: str) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    start = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *start, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def quoted(words: list[str]) -> str:
    return " ".join(f"'{word}'" for word in words)


@pytest.mark.parametrize(("words", "expected"), CASES, ids=IDS)
def test_bash(words, expected, capsys):
    found = ask(
        "bash",
        f"{script('bash', capsys)}\nCOMP_WORDS=({quoted(words)}); COMP_CWORD={len(words) - 1}\n"
        '_onesigma; for each in "${COMPREPLY[@]}"; do echo "$each"; done',
    )
    assert sorted(found) == sorted(expected)


def test_bash_completes_files_where_nothing_else_fits(capsys):
    text = script("bash", capsys)
    found = ask(
        "bash", f"{text}\nCOMP_WORDS=(onesigma inspect mod); COMP_CWORD=2\n_onesigma; "
        "echo ${#COMPREPLY[@]}; complete -p onesigma",
    )  # fmt: skip
    assert found == ["0", "complete -o default -F _onesigma onesigma"]


@pytest.mark.parametrize(("words", "expected"), CASES, ids=IDS)
def test_zsh(words, expected, capsys):
    # Zsh's own parts of a completion, as far as they are used: what fits, and files.
    stubs = """
        compdef() { }
        compadd() { shift; for each in "$@"; do [[ $each == $current* ]] && print -- $each; done }
        _files() { print files }
    """
    found = ask(
        "zsh",
        f"{stubs}\n{script('zsh', capsys)}\nwords=({quoted(words)}); CURRENT={len(words)}; "
        "_onesigma; true",
    )
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(("words", "expected"), CASES, ids=IDS)
def test_fish(words, expected, capsys):
    found = ask("fish", f"{script('fish', capsys)}\ncomplete -C '{' '.join(words)}'")
    assert sorted(line.split("\t")[0] for line in found) == sorted(expected)

"""Every benchmark that is a command can be started."""

import sys
from importlib import import_module

import pytest

NAMES = (
    *("benchmarks_page", "fidelity", "foreign", "mcu_rivals", "microcontroller", "noise_picture"),
    *("overhead", "peers.__main__", "peers.measure", "trained"),
)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_does(name, monkeypatch, capsys):
    module = import_module(f"onesigma.lab.bench.{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as stop:
        module.main()
    assert stop.value.code == 0
    assert "--" in capsys.readouterr().out

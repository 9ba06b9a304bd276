"""``onesigma live`` as it is typed."""

import http.client
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn

import onesigma
from onesigma.cli import main as cli

# Any import of PyTorch fails. A shell that runs us in the background has Ctrl-C ignored: not here.
ON_A_DEVICE = (
    "import signal, sys; sys.modules['torch'] = None; "
    "signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from onesigma.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("live") / "m.onnx"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 3)).eval()
    onesigma.export(onesigma.convert(model, torch.randn(2, 2, 4)), path, class_names=list("abc"))
    return path


def test_from_standard_input_without_pytorch_until_ctrl_c(exported):
    command = [sys.executable, "-c", ON_A_DEVICE, "live", str(exported), "-", "--hop", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        first = process.stdout.readline().decode()
        assert "standard input through m.onnx" in first
        port = int(first.split("127.0.0.1:")[1].split("/")[0])
        viewer = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        viewer.request("GET", "/events")
        response = viewer.getresponse()
        process.stdin.write(b"x,y\n1,2\n3,4\nbroken\n5,6\n7,8\n")
        process.stdin.flush()
        seen = b""
        while b'"answers":[{' not in seen:
            seen = response.readline()
            assert seen, "closed"
        assert b'"bad":1' in seen
        process.send_signal(signal.SIGINT)  # standard input is still open, and being waited for
        assert process.stdout.read() == b"Stopped.\n"
        assert process.wait(60) == 0
        response.close()
        viewer.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["live"], "Name a MODEL and a SOURCE"),
        (["live", "m.onnx"], "Name a MODEL and a SOURCE"),
        (["live", "absent.onnx", "-"], "no such file"),
        (["live", "MODEL", "absent.csv"], "no such file"),
        (["live", "MODEL", "-", "--hop", "0"], "--hop 0: a positive number"),
        (["live", "MODEL", "-", "--rate", "nan"], "--rate nan: a positive number"),
        (["live", "MODEL", "-", "--rate", "inf"], "--rate inf: a positive number"),
        (["live", "MODEL", "-", "--port", "70000"], "Port 70000 cannot be used"),
        (["live", "MODEL", "-", "--class-names", "a,b"], "3 classes"),
    ],
)
def test_what_is_wrong_is_explained(arguments, says, exported, capsys):
    named = [str(exported) if word == "MODEL" else word for word in arguments]
    assert cli.main(named) == 1
    assert says in capsys.readouterr().err

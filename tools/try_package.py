"""Try the installed package: `make release` runs this in an environment without the sources."""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import onesigma

home = Path(onesigma.__file__).parent
assert "site-packages" in home.parts, f"not the installed package: {home}"
assert (home / "py.typed").is_file()
command = Path(sys.executable).with_name("onesigma")
told = subprocess.check_output([command, "--version"], text=True)
assert told == f"onesigma {onesigma.__version__}\n", told
subprocess.check_output([command, "--help"])

model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)).eval()
inputs = torch.randn(10, 6)
ready = onesigma.convert(model, inputs)
with tempfile.TemporaryDirectory() as folder:
    onesigma.save(ready, Path(folder, "model.safetensors"))
    again = onesigma.load(Path(folder, "model.safetensors"))
assert torch.equal(again.predict(inputs).probs, ready.predict(inputs).probs)
print(f"onesigma {onesigma.__version__} answers: {home}")

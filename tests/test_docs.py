"""Every Python block of these pages runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

from onesigma.rules import RULES

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/fidelity.md",
    "docs/microcontroller.md",
    "docs/noise.md",
    "docs/onnx.md",
    "src/onesigma/rules/README.md",
)


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


CASES = [
    pytest.param(block, id=f"{page}-{index}")
    for page in PAGES
    for index, block in enumerate(blocks(page))
]


def test_pages_have_code() -> None:
    assert all(blocks(page) for page in PAGES)


@pytest.mark.parametrize("block", CASES)
def test_block_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(RULES)
    try:
        exec(compile(block, "README", "exec"), {})
    finally:
        RULES.clear()
        RULES.update(before)
    assert "Traceback" not in capsys.readouterr().out


def test_the_sine_of_the_rules_page_is_right() -> None:
    """The example rule is one that people will copy: check its formula by Monte Carlo."""
    scope: dict[str, object] = {}
    before = dict(RULES)
    try:
        exec(blocks("src/onesigma/rules/README.md")[0], scope)
        x = __import__("onesigma").Gaussian(torch.tensor([0.7, -2.0]), torch.tensor([0.5, 1.5]))
        y = scope["sin"](x)  # type: ignore[operator]
    finally:
        RULES.clear()
        RULES.update(before)
    draws = torch.randn(400_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sample = torch.sin(x.mean + x.var.sqrt() * draws)
    error = sample.std(0) / len(sample) ** 0.5
    assert ((y.mean - sample.mean(0)).abs() < 5 * error).all()
    deviation = (sample - sample.mean(0)).square()
    assert ((y.var - deviation.mean(0)).abs() < 5 * deviation.std(0) / len(sample) ** 0.5).all()

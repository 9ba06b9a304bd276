"""The parts of the laboratory stand in one order: no cycles between them."""

import ast
import re
from pathlib import Path

import pytest

from onesigma import lab

LAB = Path(lab.__file__).parent
ORDER = re.findall(r"^    (\w+)  ", lab.__doc__, flags=re.MULTILINE)


def part(path: Path) -> str:
    return path.relative_to(LAB).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.split(".")[2] for name in found if name.startswith("onesigma.lab.")}


FILES = [path for path in sorted(LAB.rglob("*.py")) if path != LAB / "__init__.py"]


def test_every_part_has_its_place():
    assert {part(path) for path in FILES} == set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(LAB).as_posix())
def test_imports_go_one_way(path):
    allowed = set(ORDER[: ORDER.index(part(path)) + 1])
    assert imported_parts(path) <= allowed

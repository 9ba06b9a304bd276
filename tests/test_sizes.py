"""No file over 300 lines, no function over 40, anywhere; what is longer says why."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "examples", "tools")
MAX_LINES = 300
MAX_FUNCTION = 40  # its docstring not counted

# What may be longer, and why. An entry that is not needed any more is an error, too.
LONG_FILES = {
    "tests/cases.py": "a table, an entry for each op and its corners",
    "tests/models.py": "the zoo: one class after the other, which no test reads in full",
    "tests/frontends/test_onnx_ops.py": "mostly a table, an entry for each op",
    "tests/frontends/test_onnx_files.py": "mostly tables of bad files, one entry each",
    "tests/frontends/test_onnx_styles.py": "one network for each way to write the same layer",
    "tests/test_saving.py": "mostly a table of forged files and the few lines to make each",
    "tests/test_convert.py": "a small network for each thing that a user's model may do",
    "tests/targets/test_onnx.py": "all that export promises of a file, on shared fixtures",
    "tests/targets/c/test_generate.py": "all that C promises of its files, on shared fixtures",
    "tests/fidelity/test_audit.py": "all that an audit says, on shared fixtures",
    "tests/data/test_samples.py": "all kinds of files that predict reads, on shared fixtures",
}
LONG_FUNCTIONS: dict[str, str] = {}

FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
SCRIPTS = sorted(
    path for kind in ("js", "css", "html") for path in (ROOT / "src").rglob(f"*.{kind}")
)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES + SCRIPTS, ids=named)
def test_files_are_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert (lines > MAX_LINES) == (named(path) in LONG_FILES), f"{lines} lines"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_functions_are_short(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            key, lines = f"{named(path)}:{node.name}", function_lines(node)
            assert (lines > MAX_FUNCTION) == (key in LONG_FUNCTIONS), f"{key}: {lines} lines"


def test_exceptions_are_of_files_that_exist():
    known = {named(path) for path in FILES}
    assert LONG_FILES.keys() <= known
    assert {key.split(":")[0] for key in LONG_FUNCTIONS} <= known


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the ``def`` to the end, its docstring not counted."""
    total = node.end_lineno - node.lineno + 1
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        total -= docstring.end_lineno - docstring.lineno + 1
    return total

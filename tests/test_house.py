"""The laws of the house: what imports what, what no file may do, how long a function may be."""

import ast
from pathlib import Path

import pytest

import onesigma

SRC = Path(onesigma.__file__).parent
ROOT = Path(__file__).parents[1]
FILES = sorted(SRC.rglob("*.py"))
MAX_FUNCTION = 40  # lines, without the docstring

# Each room may import those before it, so that there are no cycles.
ORDER = [
    # No PyTorch up to runtime.
    *("errors", "arguments", "version", "text_table", "registry", "answer", "runtime"),
    *("values", "moments", "rules", "graph", "importers", "engine"),
    *("head", "prediction", "decide", "report", "converted", "conversion", "forms"),
    *(
        "baselines",
        "metrics",
        "storage",
        "calibration",
        "fitting",
        "exporters",
        "tables",
        "pages",
        "fleet",
        "command",
    ),
]
# On top of everything. Only the command line imports the laboratory, and lazily.
TOP = {"__init__", "lab", "cli"}
LIBRARIES = {"matplotlib": {"lab", "decide"}, "seglearn": {"lab"}, "tqdm": {"lab", "command"}}


def room(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("onesigma.")}


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_room_has_its_place():
    assert {room(path) for path in FILES} == {*ORDER, *TOP}


def test_few_modules_lie_loose():
    assert len(list(SRC.glob("*.py"))) - 1 <= 14


def test_no_module_at_the_root_is_named_like_a_public_function():
    functions = {name for name in onesigma.__all__ if name.islower()}
    assert not functions & {room(path) for path in FILES}


def test_imports_go_one_way():
    for path in FILES:
        if room(path) not in TOP:
            own = rooms(imports(ast.parse(path.read_text()))) - {room(path)}
            later = own - set(ORDER[: ORDER.index(room(path))])
            assert not later, f"{named(path)} imports {later}, which stand after {room(path)}"


@pytest.mark.parametrize("path", sorted((SRC / "cli").glob("*.py")), ids=named)
def test_the_command_line_loads_the_laboratory_lazily(path):
    tree = ast.parse(path.read_text())
    at_import = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert "lab" not in rooms(imports(ast.Module(at_import, [])))


def test_libraries_stay_where_they_belong():
    never = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "torchvision"}
    for path in FILES:
        roots = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
        assert not roots & never, named(path)
        for library, allowed in LIBRARIES.items():
            assert library not in roots or room(path) in allowed, named(path)
        if room(path) in ("answer", "runtime"):
            assert not roots & {"torch", "safetensors"}, named(path)


def test_nothing_is_evaluated_or_unpickled():
    for path in FILES:
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        names = {ast.unparse(node.func) for node in calls}
        assert not names & {"eval", "exec", "compile", "torch.save", "__import__"}, named(path)
        # One file may unpickle, for a user who says --trust: test_torch_files.py.
        assert "torch.load" not in names or path.name == "torch_files.py", named(path)


def test_the_engine_is_short_and_knows_no_op():
    text = (SRC / "engine.py").read_text()
    assert len(text.splitlines()) <= 150
    assert "aten" not in text
    assert "torch.ops" not in text


@pytest.mark.parametrize("path", [p for p in FILES if room(p) in ("values", "moments")], ids=named)
def test_the_maths_knows_no_graph(path):
    assert "fx." not in path.read_text()
    assert "torch.ops" not in path.read_text()


def test_nothing_decides_by_family_and_tuning_is_typed():
    for path in FILES:
        text = path.read_text()
        assert "dict[str, dict[str, Any]]" not in text, named(path)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Compare):
                assert ".family" not in ast.unparse(node), f"{named(path)}:{node.lineno}"


def test_functions_are_short():
    folders = ("src", "tests", "examples", "tools")
    for path in [p for folder in folders for p in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if ast.get_docstring(node) is not None:
                    lines -= node.body[0].end_lineno - node.body[0].lineno + 1
                assert lines <= MAX_FUNCTION, f"{named(path)}:{node.name}: {lines} lines"

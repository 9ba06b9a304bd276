"""The direction of imports, and what may not be called, as laws.

gaussian ← moments ← rules ← passes, propagate ← convert ← baselines, saving, cli
"""

import ast
from pathlib import Path

import pytest

import onesigma

ROOT = Path(onesigma.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# What a part of the package may import of the package; longest prefix wins, a folder by its name.
LEAVES = {"errors", "tensor_file", "text_table", "version", "whole_file"}
VALUES = LEAVES | {"gaussian", "factored"}
GRAPH = VALUES | {"rules", "passes"}
MODEL = GRAPH | {"propagate", "report", "prediction", "head", "converted", "moments", "decision"}
MAY_IMPORT = {
    "answer": set(),
    "errors": set(),
    "lazy_names": set(),
    "tensor_file": {"errors", "whole_file"},
    "text_table": set(),
    "version": set(),
    "whole_file": set(),
    "gaussian": LEAVES,
    "factored": LEAVES | {"gaussian"},
    "moments": VALUES | {"moments"},
    "rules": VALUES | {"moments", "rules"},
    "passes": GRAPH | {"frontends"},  # of these, keras.py: what capture has to know of Keras
    "propagate": GRAPH,
    "report": GRAPH,
    "prediction": LEAVES | {"answer"},
    "decision": LEAVES | {"prediction"},
    "head": VALUES,
    "html": LEAVES,
    "converted": GRAPH | {"prediction", "report", "decision"},
    "logits": GRAPH | {"propagate"},
    "convert": MODEL | {"logits"},
    "baselines": MODEL | {"convert", "baselines"},
    "fidelity": MODEL | {"convert", "baselines", "logits"},
    "graph_json": LEAVES,
    "saving": MODEL | {"convert", "graph_json"},
    "runtime": {"answer", "errors"},
    "targets": MODEL | {"runtime", "convert"},
    "frontends": LEAVES | {"frontends", "rules", "passes", "targets"},
    "answer_table": LEAVES | {"prediction", "data"},
    "sources": MODEL | {"convert", "saving", "frontends", "runtime"},
    # Of these, networks.py: the fully connected network of ApDeepSense.
    "bench": MODEL | {"convert", "baselines", "fidelity", "saving", "targets", "experiments"},
    "metrics": LEAVES | {"prediction", "metrics"},
    "model_report": MODEL
    | {"convert", "baselines", "fidelity", "bench", "metrics", "html", "model_report"},
    "plots": LEAVES | {"prediction", "metrics", "plots"},
    "data": LEAVES | {"data"},
    # No PyTorch in these two, but for what sources opens.
    "stream": {"errors", "data"},
    "live": {"errors", "data", "stream", "runtime", "sources"},
}
# On top of everything: free to import what they like.
TOP = {"__init__", "demo", "experiments", "commands", "cli"}


def part(path: Path) -> str:
    """The top-level module or folder that a file of the package belongs to."""
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Every module named in an import, wherever it stands; relative ones made absolute."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            module = node.module or ""
            found.add(module)
            if module == "onesigma":
                found |= {f"onesigma.{alias.name}" for alias in node.names}
    return found - {"onesigma"} if path.name != "__init__.py" else found


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_imports_go_one_way(path):
    if part(path) in TOP:
        return
    assert part(path) in MAY_IMPORT, f"say in MAY_IMPORT what {part(path)} may import"
    own = {name.split(".")[1] for name in imports(path) if name.startswith("onesigma.")}
    assert own <= MAY_IMPORT[part(path)] | {part(path)}


def test_the_law_has_no_dead_entries():
    assert set(MAY_IMPORT) <= {part(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_libraries_stay_where_they_belong(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & {"pickle", "dill", "cloudpickle", "marshal", "shelve", "torchvision"}
    if part(path) not in ("plots", "demo", "experiments", "commands"):
        assert not roots & {"matplotlib", "seglearn", "tqdm"} or part(path) == "data"
    if part(path) in ("moments", "rules", "gaussian", "passes", "propagate", "convert", "head"):
        assert not roots & {"scipy", "sklearn", "safetensors", "matplotlib"}


def test_only_plots_draw():
    drawing = {part(p) for p in FILES if any(n.startswith("matplotlib") for n in imports(p))}
    assert drawing <= {"plots"}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_nothing_is_evaluated_or_unpickled(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            assert name not in {"eval", "exec", "compile", "torch.save", "__import__"}
            # One file may unpickle, for a user who said so; tests/frontends/test_torch_files.py.
            assert name != "torch.load" or path.name == "torch_files.py"


def test_the_engine_knows_no_op():
    tree = ast.parse((ROOT / "propagate.py").read_text())
    names = {
        ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)
    }
    assert not [name for name in names if "aten" in name or "torch.ops" in name]


@pytest.mark.parametrize("folder", ["gaussian", "moments"])
def test_the_maths_knows_no_graph(folder):
    for path in FILES:
        if part(path) == folder:
            text = path.read_text()
            assert "fx." not in text
            assert "torch.ops" not in text

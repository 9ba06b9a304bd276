"""The two files: declarations, tables, functions, steps. This module knows no op."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from onesigma.exporters.c.integer_layers import RENDERERS as INTEGERS
from onesigma.exporters.c.loops import File, render_loop
from onesigma.exporters.c.nodes import Graph, Storage
from onesigma.exporters.c.plan import Loop, Memory, Step
from onesigma.exporters.c.recurrent import RECURRENT
from onesigma.exporters.c.text import SUPPORT, fill, read_text
from onesigma.exporters.c.weighted_layers import RENDERERS
from onesigma.text_table import text_table
from onesigma.version import __version__

_RENDERERS = {**RENDERERS, **RECURRENT, **INTEGERS}
# Words of C, and names that the code itself uses.
_RESERVED = (
    " arena auto bool break case char const continue default do double else enum extern false "
    "float for goto if inline int label long out register restrict return short signed sizeof "
    "static struct switch true typedef union unsigned void volatile while "
)


def size_table(flash: int, arena: int, prediction: int) -> str:
    rows = [
        ("weights and tables", "flash", f"{flash:,}"),
        ("arena", "RAM", f"{arena:,}"),
        ("prediction", "RAM", f"{prediction:,}"),
    ]
    return text_table(("", "in", "bytes"), rows, numbers=True)


def emit(
    graph: Graph, steps: Sequence[Step], memory: Memory, name: str, class_names: Sequence[str] = ()
) -> tuple[str, str, tuple[int, int, int]]:
    """The text of header and source, and the bytes of tables, arena and struct."""
    places = _places(graph, memory)
    file = File({storage: place for storage, (place, _) in places.items()})
    if any(storage.kind != "float" for storage in places):
        file.function("types")
    blocks = [line for i, step in enumerate(steps) for line in _block(i, step, file, memory, name)]
    flash = sum(array.nbytes for _, array in file.tables.values())
    sizes = (flash, 4 * max(1, memory.size), _prediction_bytes(graph))
    inputs = {identifier(each): value.size for each, value in graph.inputs.items()}
    declared, defined = _class_names(name, class_names)
    shared = {"version": __version__, "NAME": name.upper(), "name": name, **arguments(inputs)}
    header = {
        "size_table": size_table(*sizes).replace("─", "-"),
        "arena": max(1, memory.size),
        "sizes": _input_sizes(graph, name.upper()),
        "class_names": declared,
        "fields": _fields(graph),
    }
    source = {
        "tables": file.table_lines(),
        "class_names": defined,
        "functions": _functions(file, blocks),
        "finite": " && ".join(f"is_finite(in_{each}, {size})" for each, size in inputs.items()),
        "places": [line for _, line in places.values() if line],
        "steps": blocks,
        "ends": _ends(graph),
    }
    texts = (
        fill(read_text("model.h"), **shared, **header),
        fill(read_text("model.c"), **shared, **source),
    )
    return *texts, sizes


def arguments(inputs: Collection[str]) -> dict[str, object]:
    """The inputs as a function declares them, defines them, checks them and passes them on."""
    given = [f"in_{each}" for each in inputs]  # an input may be named like one of our variables
    return {
        "inputs": ", ".join(f"const float *{each}" for each in inputs),
        "given": ", ".join(f"const float *{each}" for each in given),
        "checks": " || ".join(f"{each} == NULL" for each in given),
        "arguments": ", ".join(given),
    }


def _class_names(name: str, class_names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Their declaration and their definition; nothing if there are none."""
    if not class_names:
        return [], []
    array = f"const char *const {name}_class_names[{len(class_names)}]"
    quoted = ", ".join(_quote(each) for each in class_names)
    return [f"extern {array};", ""], [f"{array} = {{{quoted}}};", ""]


def _block(index: int, step: Step, file: File, memory: Memory, name: str) -> list[str]:
    file.scratch = f"arena + {memory.scratch.get(index, 0)}"
    lines = render_loop(step, file) if isinstance(step, Loop) else _RENDERERS[step.kind](step, file)
    comment = re.sub(r"[^\w ,.:+-]", "_", step.name, flags=re.ASCII)
    head = [f"{name.upper()}_STEP({index});", f"{{ /* {comment} */"]
    return [*head, *(f"    {line}" for line in lines), "}"]


def _functions(file: File, blocks: Sequence[str]) -> list[str]:
    """Those that expressions call, then those of the structured ops."""
    text = "\n".join([*blocks, *file.functions.values()])
    called: list[str] = []
    for name, body in reversed(SUPPORT.items()):  # one calls only those before it
        if f"{name}(" in text:
            called.insert(0, body)
            text += body
    return [line for body in (*called, *file.functions.values()) for line in body.split("\n")]


def _places(graph: Graph, memory: Memory) -> dict[Storage, tuple[str, str]]:
    """For each storage its name in C, and the line that declares it."""
    places = {v.storage: (f"in_{identifier(name)}", "") for name, v in graph.inputs.items()}
    for name, value in graph.outputs.items():
        field = identifier(name)
        if graph.types[name] != "float":
            places[value.storage] = (f"{field}_", f"float {field}_[{value.size}];")
        else:
            places[value.storage] = (f"out->{field}" if value.size > 1 else f"(&out->{field})", "")
    for index, (storage, place) in enumerate(memory.places.items()):
        name = f"b{index}_{identifier(storage.name.split(':')[0])}"
        cast = "" if storage.kind == "float" else f"({storage.kind} *)"
        at = f"(arena + {place})" if cast else f"arena + {place}"
        places[storage] = (name, f"{storage.kind} *const {name} = {cast}{at};")
    return places


def _has_label(graph: Graph) -> bool:
    probs = graph.outputs.get("probs")
    return probs is not None and probs.size == max(probs.shape) > 1


def _fields(graph: Graph) -> list[str]:
    fields = []
    for name, value in graph.outputs.items():
        shape = " x ".join(str(n) for n in value.long_dims)
        comment = f" /* {shape} */" if " x " in shape else ""
        fields.append(declaration(graph.types[name], name, value.size) + comment)
    return fields + ["int label; /* the most probable class */"] * _has_label(graph)


def _prediction_bytes(graph: Graph) -> int:
    """As compilers for microcontrollers lay the struct out."""
    widths = {name: 1 if kind == "bool" else 4 for name, kind in graph.types.items()}
    total = sum(value.size * widths[name] for name, value in graph.outputs.items())
    return -(-total // 4) * 4 + 4 * _has_label(graph)


def _ends(graph: Graph) -> list[str]:
    """Convert what is not a float in the struct, and find the label."""
    lines = []
    for name, value in graph.outputs.items():
        kind, field = graph.types[name], identifier(name)
        converted = f"{field}_[i] != 0.0f" if kind == "bool" else f"({kind}){field}_[i]"
        if kind != "float":
            target = f"out->{field}[i]" if value.size > 1 else f"out->{field}"
            lines += [f"for (int i = 0; i < {value.size}; ++i)", f"    {target} = {converted};"]
    if _has_label(graph):
        lines += ["out->label = 0;", f"for (int i = 1; i < {graph.outputs['probs'].size}; ++i)"]
        lines += ["    out->label = out->probs[i] > out->probs[out->label] ? i : out->label;"]
    return lines


def _input_sizes(graph: Graph, prefix: str) -> list[str]:
    lines = []
    for name, value in graph.inputs.items():
        which = f"{identifier(name).upper()}_" if len(graph.inputs) > 1 else ""
        shape = " x ".join(str(n) for n in value.shape[1:])
        lines.append(f"#define {prefix}_{which}INPUT_SIZE {value.size} /* {shape} */")
    if _has_label(graph):
        lines.append(f"#define {prefix}_CLASSES {graph.outputs['probs'].size}")
    return lines


def identifier(name: str) -> str:
    """A name as C allows it."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"{name}_" if f" {name} " in _RESERVED else f"_{name}" if name[:1].isdigit() else name


def declaration(kind: str, name: str, size: int) -> str:
    return f"{kind} {identifier(name)}{f'[{size}]' if size > 1 else ''};"


def _quote(text: str) -> str:
    """A C string; what is not plain ASCII becomes escaped bytes of UTF-8."""
    plain = set(range(32, 127)) - set(b'"\\?')  # ?? would begin a trigraph
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'

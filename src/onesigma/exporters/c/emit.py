"""The two files: declarations, tables, functions, steps. Of ops it knows nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from onesigma.exporters.c.elementwise import SUPPORT
from onesigma.exporters.c.fuse import Loop, Step
from onesigma.exporters.c.loops import render_loop
from onesigma.exporters.c.plan import Plan
from onesigma.exporters.c.render import RENDERERS, File, filled
from onesigma.exporters.c.values import Graph, Storage, Value
from onesigma.version import __version__

# Words of C, and names of our own in the same places.
_RESERVED = (
    " arena auto bool break case char const continue default do double else enum extern false "
    "float for goto if inline int label long out register restrict return short signed sizeof "
    "static struct switch true typedef union unsigned void volatile while "
)

_HEADER = """\
/* Written by onesigma @version@. Do not edit.

@sizes table@

The code itself comes on top of the tables. */
#ifndef @NAME@_H
#define @NAME@_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define @NAME@_ARENA_SIZE @arena@ /* floats */
@sizes@
@names@
struct @name@_prediction {
@fields@
};

/* Answer one input. Returns 0, or -1 if a pointer is NULL. Not re-entrant: it uses an arena of its
   own, which is left out if @NAME@_NO_ARENA is defined. */
int @name@_predict(@inputs@, struct @name@_prediction *out);

/* The same in memory of the caller's, @NAME@_ARENA_SIZE floats that it may use otherwise between
   two calls. Re-entrant. */
int @name@_predict_with(float *arena, @inputs@,
                        struct @name@_prediction *out);

#ifdef __cplusplus
}
#endif

#endif
"""

_SOURCE = """\
/* Written by onesigma @version@. Do not edit. */
#include "@name@.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifndef @NAME@_STEP
#define @NAME@_STEP(number) /* for profiling: called before each step */
#endif

@tables@

@names@@functions@
int @name@_predict_with(float *arena, @given@,
                        struct @name@_prediction *out)
{
    if (arena == NULL || @checks@ || out == NULL)
        return -1;
@places@
@steps@
@ends@
    return 0;
}

#ifndef @NAME@_NO_ARENA
int @name@_predict(@given@, struct @name@_prediction *out)
{
    static float arena[@NAME@_ARENA_SIZE];
    return @name@_predict_with(arena, @arguments@, out);
}
#endif
"""


@dataclass
class Code:
    """The text of both files, and what goes into flash besides code."""

    header: str
    source: str
    table_bytes: int


@dataclass
class Names:
    """What the file is called, and the classes, if they have names."""

    model: str
    classes: Sequence[str] = ()


def emit(graph: Graph, steps: Sequence[Step], memory: Plan, names: Names, int8: bool) -> Code:
    """Render everything."""
    places = _places(graph, memory)
    file = File({storage: name for storage, (name, _) in places.items()}, int8)
    blocks = [line for i, step in enumerate(steps) for line in _block(i, step, file, memory, names)]
    inputs = [identifier(name) for name in graph.inputs]
    given = [f"in_{name}" for name in inputs]  # in the code, names of inputs could be in the way
    parts = {
        "version": __version__,
        "NAME": names.model.upper(),
        "name": names.model,
        "arena": max(1, memory.size),
        "inputs": ", ".join(f"const float *{name}" for name in inputs),
        "given": ", ".join(f"const float *{name}" for name in given),
        "arguments": ", ".join(given),
        "checks": " || ".join(f"{name} == NULL" for name in given),
        "tables": "\n".join(file.table_lines()),
        "functions": "\n".join(_functions(file, blocks)),
        "places": "\n".join(f"    {line}" for _, line in places.values() if line),
        "steps": "\n".join(blocks),
        "ends": "\n".join(f"    {line}" for line in _ends(graph)),
        "fields": "\n".join(f"    {field}" for field in _fields(graph)),
        "sizes": "\n".join(_sizes(graph, names)),
    }
    classes = ", ".join(_quoted(name) for name in names.classes)
    listed = f"const char *const {names.model}_class_names[{len(names.classes)}]"
    declared = f"extern {listed};\n" if names.classes else ""
    defined = f"{listed} = {{{classes}}};\n\n" if names.classes else ""
    header = filled(_HEADER, **parts, names=declared)
    return Code(header, filled(_SOURCE, **parts, names=defined), file.table_bytes)


def _block(index: int, step: Step, file: File, memory: Plan, names: Names) -> list[str]:
    file.scratch = f"arena + {memory.scratch.get(index, 0)}"
    lines = _lines(step, file)
    comment = re.sub(r"[^\w ,.:+-]", "_", step.name, flags=re.ASCII)
    head = f"    {names.model.upper()}_STEP({index});"
    return [head, f"    {{ /* {comment} */", *(f"        {line}" for line in lines), "    }"]


def _lines(step: Step, file: File) -> list[str]:
    if isinstance(step, Loop):
        return render_loop(step, file)
    return RENDERERS[step.kind](step, file)


def _functions(file: File, blocks: Sequence[str]) -> list[str]:
    """Those that expressions call, then those of the structured ops."""
    text = "\n".join(blocks)
    called = [body for name, body in SUPPORT.items() if f"{name}(" in text]
    return [*called, *file.functions.values()]


def _places(graph: Graph, memory: Plan) -> dict[Storage, tuple[str, str]]:
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
        places[storage] = (name, f"float *const {name} = arena + {place};")
    return places


def _fields(graph: Graph) -> list[str]:
    fields = []
    for name, value in graph.outputs.items():
        extent = f"[{value.size}]" if value.size > 1 else ""
        shape = " x ".join(str(n) for n in value.shape if n > 1)
        comment = f" /* {shape} */" if " x " in shape else ""
        fields.append(f"{graph.types[name]} {identifier(name)}{extent};{comment}")
    if has_label(graph):
        fields.append("int label; /* the most probable class */")
    return fields


def has_label(graph: Graph) -> bool:
    probs = graph.outputs.get("probs")
    return probs is not None and probs.size == max(probs.shape) > 1


def _ends(graph: Graph) -> list[str]:
    """What is not a float in the arena becomes what the struct holds."""
    lines = []
    for name, value in graph.outputs.items():
        kind, field = graph.types[name], identifier(name)
        converted = f"{field}_[i] != 0.0f" if kind == "bool" else f"({kind}){field}_[i]"
        if kind != "float":
            target = f"out->{field}[i]" if value.size > 1 else f"out->{field}"
            lines += [f"for (int i = 0; i < {value.size}; ++i)", f"    {target} = {converted};"]
    if has_label(graph):
        lines += ["out->label = 0;", f"for (int i = 1; i < {graph.outputs['probs'].size}; ++i)"]
        lines += ["    out->label = out->probs[i] > out->probs[out->label] ? i : out->label;"]
    return lines


def _sizes(graph: Graph, names: Names) -> list[str]:
    many = len(graph.inputs) > 1
    lines = [_size_line(names, many, name, value) for name, value in graph.inputs.items()]
    if has_label(graph):
        lines.append(f"#define {names.model.upper()}_CLASSES {graph.outputs['probs'].size}")
    return lines


def _size_line(names: Names, many: bool, name: str, value: Value) -> str:
    which = f"{identifier(name).upper()}_" if many else ""
    shape = " x ".join(str(n) for n in value.shape[1:])
    return f"#define {names.model.upper()}_{which}INPUT_SIZE {value.size} /* {shape} */"


def identifier(name: str) -> str:
    """A name as C allows it."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"{name}_" if f" {name} " in _RESERVED else f"_{name}" if name[:1].isdigit() else name


def _quoted(text: str) -> str:
    """A C string; what is not plain ASCII as escaped bytes of UTF-8."""
    plain = set(range(32, 127)) - set(b'"\\?')  # ?? would begin a trigraph
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode()) + '"'

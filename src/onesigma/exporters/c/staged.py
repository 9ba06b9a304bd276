"""A model with exits in C: a model for each segment, and two files that run one after the other.

The state has two slots. A segment reads the newer one and writes the other, whose number comes
last: after a power cut at any instant one of them is whole, and the segment runs again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from onesigma.exporters.c.emit import arguments, declaration, identifier
from onesigma.exporters.c.generator import Generated, generate
from onesigma.exporters.c.text import fill, read_text
from onesigma.storage.atomic import replacing
from onesigma.version import __version__


def generate_staged(
    models: Sequence[onnx.ModelProto],
    folder: Path,
    *,
    name: str,
    shapes: Sequence[Sequence[Sequence[int]]],
    columns: Sequence[str],
    leave: str,
    named: bool,
) -> Generated:
    """Write the segments, then what runs them; ``columns`` are the fields of an answer.

    ``leave`` is the output that says whether a segment's answer is the last word, ``named`` whether
    the classes have names.
    """
    parts = [
        generate(model, folder, name=f"{name}_{place}", input_shapes=given)
        for place, (model, given) in enumerate(zip(models, shapes, strict=True))
    ]
    fields = {each: parts[-1].outputs[each] for each in columns}
    words = 2 + sum(-(-size // 4) if kind == "bool" else size for kind, size in fields.values())
    texts = _texts(parts, name, fields, words, leave, named)
    paths = folder / f"{name}.c", folder / f"{name}.h"
    with replacing(paths[0]) as code, replacing(paths[1]) as declarations:
        code.write_text(fill(read_text("staged.c"), **texts), encoding="ascii")
        declarations.write_text(fill(read_text("staged.h"), **texts), encoding="ascii")
    return replace(
        parts[0],
        source=paths[0],
        header=paths[1],
        outputs=fields,
        prediction=4 * words,
        flash=sum(part.flash for part in parts),
        arena=max(part.arena for part in parts),
        steps=tuple(step for part in parts for step in part.steps),
    )


def _texts(
    parts: Sequence[Generated],
    name: str,
    fields: Mapping[str, tuple[str, int]],
    words: int,
    leave: str,
    named: bool,
) -> dict[str, object]:
    """What is filled in to both files; a slot holds an answer, too, of so many words."""
    layouts = _layouts(parts)
    inputs = {identifier(each): size for each, size in parts[0].inputs.items()}
    begins = [
        f"memcpy(state->slots[0].values + {layouts[0][each].start}, in_{identifier(each)}, "
        f"{size} * sizeof(float));"
        for each, size in parts[0].inputs.items()
    ]
    return {
        "version": __version__,
        "NAME": name.upper(),
        "name": name,
        "floats": max(words, *(each.stop for layout in layouts for each in layout.values())),
        "includes": [f'#include "{part.header.name}"' for part in parts],
        "input": sum(inputs.values()),
        "count": len(parts),
        "last": len(parts) - 1,
        "class_names": [f"#define {name}_class_names {name}_0_class_names"] * named,
        "fields": [declaration(kind, each, size) for each, (kind, size) in fields.items()],
        **arguments(inputs),
        "begins": begins,
        "arena": max(part.arena for part in parts) // 4,
        "structs": [f"struct {name}_{k}_prediction s{k};" for k in range(len(parts))],
        "cases": _cases(parts, layouts, name, [*fields], leave),
    }


def _layouts(parts: Sequence[Generated]) -> list[dict[str, slice]]:
    """Where in a slot each value lies that a segment or a later one reads, and none makes since."""
    found = []
    for place in range(len(parts)):
        made = {name for part in parts[place:] for name in part.outputs}
        read = {name: size for part in parts[place:] for name, size in part.inputs.items()}
        layout, total = dict[str, slice](), 0
        for name, size in read.items():
            if name not in made:
                layout[name] = slice(total, total + size)
                total += size
        found.append(layout)
    return found


def _cases(
    parts: Sequence[Generated],
    layouts: Sequence[dict[str, slice]],
    name: str,
    columns: Sequence[str],
    leave: str,
) -> list[str]:
    """For each segment: run it, and note its answer or what later ones need."""
    lines = []
    for place, (part, layout) in enumerate(zip(parts, layouts, strict=True)):
        given = "".join(f"in + {layout[each].start}, " for each in part.inputs)
        call = f"{name}_{place}_predict_with(arena, {given}&said.s{place});"
        lines += [f"case {place}:", f"    error = {call}", "    if (error != 0)", "        break;"]
        for field in (*map(identifier, columns), "label"):
            here = f"said.s{place}.{field}"
            lines.append(f"    memcpy(&answer.{field}, &{here}, sizeof answer.{field});")
        lines.append(f"    answer.exit = {place};")
        if place + 1 < len(parts):
            lines.append(f"    answered = said.s{place}.{leave};")
            for each, there in layouts[place + 1].items():
                old = layout.get(each)
                taken = f"in + {old.start}" if old else f"&said.s{place}.{identifier(each)}"
                size = f"{there.stop - there.start} * sizeof(float)"
                lines.append(f"    memcpy(to->values + {there.start}, {taken}, {size});")
        lines.append("    break;")
    return lines

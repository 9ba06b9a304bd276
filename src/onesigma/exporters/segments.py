"""Segments: a model with exits as one graph for each piece, for ONNX and for C.

A piece takes what pieces before it computed, by name. It returns the fields of ``Prediction`` that
its exit answers with, ``leave`` if it is not the last, and what it computed for later ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn

from onesigma.converted import Inputs
from onesigma.exporters.agreement import compare
from onesigma.exporters.answering import Answering, make_answering
from onesigma.exporters.onnx import file as onnx_file
from onesigma.forms.exits import EarlyExit
from onesigma.graph import capture
from onesigma.runtime.exits import FORMAT, LEAVE
from onesigma.runtime.model import EXITS
from onesigma.storage.atomic import write_text

if TYPE_CHECKING:
    from onesigma.exporters.c import Generated

_STATE = "state_"


class _Piece(nn.Module):
    """What a segment's file computes: an answer, whether to leave, and what is new to later ones.

    ``columns`` are the fields of the answer, ``new`` the places of what later ones read.
    """

    def __init__(
        self, model: EarlyExit, place: int, columns: Sequence[str], new: list[int]
    ) -> None:
        super().__init__()
        self.segment, self.columns, self.new = model.segments[place], columns, new
        self.last = place == len(model.segments) - 1
        self.model = (model,)  # in a tuple, so that its weights are not listed twice

    def forward(self, *live: Tensor) -> tuple[Tensor, ...]:
        (model,) = self.model
        kept, said = model.say(self.segment(*live), ())
        fields = said.arrays()
        leave = () if self.last else (model.rule(said),)
        # A copy: an output must not be an input, nor another output.
        answer = [fields[name].clone() for name in self.columns]
        return (*answer, *leave, *(kept[k] for k in self.new))


class _Named(nn.Module):
    """A piece whose outputs have names, for the comparison with ONNX."""

    def __init__(self, piece: _Piece, names: Sequence[str]) -> None:
        super().__init__()
        self.piece, self.names = piece, names

    def forward(self, *live: Tensor) -> Any:
        found = dict(zip(self.names, self.piece(*live), strict=True))
        return SimpleNamespace(arrays=lambda: found)


@torch.no_grad()
def make_segments(
    model: EarlyExit, example_input: Inputs | None, class_names: Sequence[str] | None
) -> list[tuple[Answering, nn.Module]]:
    """For each piece what a target writes, and a module to compare that with."""
    whole = make_answering(model.whole, example_input, class_names=class_names)
    columns, inputs = [*whole.outputs], dict(zip(_inputs_of(model, 0), whole.inputs, strict=True))
    live: tuple[Tensor, ...] = whole.examples
    found = list[tuple[Answering, nn.Module]]()
    for place, segment in enumerate(model.segments):
        given, kept = _inputs_of(model, place), _kept_by(model, place)
        new = [k for k, name in enumerate(kept) if name not in given]
        piece = _Piece(model, place, columns, new).eval()
        graph = capture.plain_module(capture.export(piece, live, dynamic=True))
        leave = [] if piece.last else [LEAVE]
        names = [inputs.get(name, f"{_STATE}{name}") for name in given]
        outputs = {name: name for name in (*columns, *leave)}
        outputs |= {f"{_STATE}{kept[k]}": f"{_STATE}{kept[k]}" for k in new}
        metadata = whole.metadata | {"outputs": {name: name for name in columns}}
        answering = Answering(graph, live, tuple(names), outputs, None, metadata, dynamic=True)
        found.append((answering, _Named(piece, [*outputs])))
        live = tuple(model.say(segment(*live), ())[0])
    return found


def _inputs_of(model: EarlyExit, place: int) -> list[str]:
    graph: fx.Graph = model.segments[place].graph  # type: ignore[assignment]
    return [node.name for node in graph.find_nodes(op="placeholder")]


def _kept_by(model: EarlyExit, place: int) -> list[str]:
    """What a piece returns for later ones, by the names that the next one has for it."""
    return _inputs_of(model, place + 1) if place + 1 < len(model.segments) else []


def write_segments(
    model: EarlyExit,
    folder: Path,
    *,
    opset: int,
    example_input: Inputs | None,
    class_names: Sequence[str] | None,
) -> onnx_file.Exported:
    """One ONNX file for each piece, and last a JSON file that names them and their SHA-256."""
    segments = make_segments(model, example_input, class_names)
    protos = [onnx_file.make_model(answering, opset) for answering, _ in segments]
    agreements = [
        compare(proto, module, answering, None)
        for proto, (answering, module) in zip(protos, segments, strict=True)
    ]
    folder.mkdir(exist_ok=True)
    written, listed = [], []
    for place, (proto, agreement) in enumerate(zip(protos, agreements, strict=True)):
        path = folder / f"segment_{place}.onnx"
        written.append(onnx_file.write_model(proto, path, opset, agreement))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        listed.append({"file": path.name, "sha256": digest})
    content = {"format": FORMAT, "segments": listed, "costs": model.costs}
    content["rule"] = model.rule.to_dict()
    write_text(folder / EXITS, json.dumps(content, indent=1))
    return onnx_file.Exported(
        *(folder, opset, sum(each.nodes for each in written), sum(each.size for each in written)),
        *(agreements[0].runtime, max(each.error for each in agreements)),
    )


def write_c(
    model: EarlyExit,
    folder: Path,
    *,
    name: str,
    example_input: Inputs | None,
    class_names: Sequence[str] | None,
) -> Generated:
    """C for each piece, and two files that run them one after the other."""
    from onesigma.exporters.c.staged import generate_staged

    segments = make_segments(model, example_input, class_names)
    protos = list[Any]()
    for answering, module in segments:
        protos.append(onnx_file.make_model(answering))
        compare(protos[-1], module, answering, None)
    metadata = segments[-1][0].metadata
    return generate_staged(
        *(protos, folder),
        name=name,
        shapes=[[(1, *x.shape[1:]) for x in answering.examples] for answering, _ in segments],
        columns=[*metadata["outputs"]],
        leave=LEAVE,
        named=bool(metadata["class_names"]),
    )

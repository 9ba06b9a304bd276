"""``export``: a converted model as files for another runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from torch import Tensor

from onesigma.converted import Converted
from onesigma.errors import InputError
from onesigma.exporters.onnx import file as onnx
from onesigma.exporters.onnx.file import Exported

if TYPE_CHECKING:
    from onesigma.exporters.c import Generated


@overload
def export(
    converted: Converted, path: str | Path, *, target: Literal["onnx"] = "onnx", **options: Any
) -> Exported: ...


@overload
def export(
    converted: Converted, path: str | Path, *, target: Literal["c"], **options: Any
) -> Generated: ...


def export(
    converted: Converted, path: str | Path, *, target: str = "onnx", **options: Any
) -> Exported | Generated:
    """Write a converted model for another runtime, whole or not at all.

    Args:
        converted: what ``convert`` returned.
        path: for ONNX the file, ending in ``.onnx``; for C a folder.
        target: "onnx" for one file of standard ops, or "c" for microcontrollers: ``model.c`` and
            ``model.h``, plain C99.
        options: for either, ``erf``, ``class_names`` and ``example_input``; for ONNX those of
            ``targets.onnx.export``, among them ``opset``; for C those of ``targets.export.to_c``:
            ``input_shape``, ``name``, ``int8``.

    Raises:
        ExportError: the model holds something that the target lacks, or gives other answers there.
        PackageError: the packages of ``onesigma[onnx]`` are not installed.
    """
    if target == "onnx":
        return onnx.export(converted, path, **options)
    if target == "c":
        return to_c(converted, path, **options)
    raise InputError(f"target={target!r}: choose 'onnx' or 'c'.")


def to_c(
    converted: Converted,
    folder: str | Path,
    *,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    name: str = "model",
    int8: bool = False,
    erf: bool = True,
    class_names: Sequence[str] | None = None,
    example_input: Tensor | tuple[Tensor, ...] | None = None,
) -> Generated:
    """Write a converted model as ``name.c`` and ``name.h``, by way of ONNX.

    Args:
        converted: what ``convert`` returned.
        folder: created if it does not exist.
        input_shape: of one input, with its batch of 1 or without it, or one shape per input; by
            default that of the example that the model was converted with.
        name: prefix of the files and of every public name in them.
        int8: store the weights in eight bits; the result says what that costs in accuracy.
        erf: False to do without the error function (which here is no library's in any case).
        class_names: written into the file, one per class.
        example_input: real inputs, on which to compare the graph with PyTorch and to measure the
            cost of ``int8``.
    """
    given = example_input if isinstance(example_input, tuple) else (example_input,)
    examples = [x.cpu().numpy() for x in given if x is not None]
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "model.onnx"
        onnx.export(converted, file, erf=erf, class_names=class_names, example_input=example_input)
        from onnx import load_model  # which export has just asked for

        model = load_model(file)
    from onesigma.exporters.c import generate

    shapes = _shapes(converted, input_shape)
    return generate(
        model, folder, name=name, int8=int8, input_shapes=shapes, examples=examples or None
    )


def _shapes(
    converted: Converted, given: Sequence[int] | Sequence[Sequence[int]] | None
) -> list[tuple[int, ...]]:
    if given is None:
        shapes = converted.settings.input_shapes
        return [tuple(1 if n is None else n for n in shape) for shape in shapes]
    one = all(isinstance(n, int) for n in given)
    return [tuple(given)] if one else [tuple(shape) for shape in given]  # type: ignore[arg-type]

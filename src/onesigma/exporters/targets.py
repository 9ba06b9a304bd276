"""``export``: a converted model as files for another runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from onesigma.arguments import typed
from onesigma.converted import Converted, Inputs
from onesigma.errors import ExportError, InputError
from onesigma.exporters.agreement import compare
from onesigma.exporters.answering import Answering, make_answering
from onesigma.exporters.onnx import file as onnx_file
from onesigma.exporters.onnx.file import Exported
from onesigma.exporters.segments import write_c, write_segments
from onesigma.forms.exits import EarlyExit

if TYPE_CHECKING:
    from onnx import ModelProto

    from onesigma.exporters.c import Generated
    from onesigma.exporters.int8 import Fidelity


@typed
def export(
    converted: Converted,
    path: str | Path,
    *,
    class_names: Sequence[str] | None = None,
    example_input: Inputs | None = None,
    opset: int | None = None,
    input_names: Sequence[str] | None = None,
    plain: tuple[str, nn.Module] | None = None,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    name: str | None = None,
    int8: bool = False,
) -> Exported | Generated:
    """Write a converted model for another runtime, whole or not at all.

    A path that ends in ``.onnx`` becomes one file of standard ops; any other path is a folder for
    ``model.c`` and ``model.h``, plain C99 for microcontrollers. The outputs are ``mean`` and
    ``var``, and for classification ``probs``, ``entropy``, ``aleatoric`` and ``epistemic`` (with
    ``act`` if the model has an abstain rule).

    Args:
        converted: what ``fit`` or ``convert`` returned, or ``early_exit``.
        path: the file, ending in ``.onnx``; or a folder for C, created if it does not exist. Of a
            model with exits, that of ONNX is a folder, too: one file for each segment, and
            ``exits.json``.
        class_names: stored in the file, one per class.
        example_input: real inputs on which to compare with PyTorch, and to measure ranges for
            ``int8`` and what it costs; random ones by default.
        opset: ONNX only: version of the operators, 17 or above; 18 by default.
        input_names: ONNX only: names of the inputs in the file; default: those of ``forward``.
        plain: ONNX only: a name and the original model, whose own output is added under that name.
            It costs a second pass through the network, and next to nothing where ``fit`` chose the
            energy form, which runs the network as it is.
        input_shape: C only: of one input, with its batch of 1 or without, or one shape per input;
            by default that of the example that the model was converted with.
        name: C only: prefix of the files and of every public name in them; default "model".
        int8: the layers in eight bits, weights and activations, with ranges measured on
            ``example_input`` (some hundred real inputs); what makes the uncertainty stays float.
            The result says what that costs in accuracy.

    Outputs whose names ``input_names`` or ``plain`` take are prefixed with ``onesigma_``.

    Raises:
        ExportError: the model holds something that the target lacks, or gives other answers there.
        PackageError: the packages of the extra ``onnx`` are not installed.
    """
    path = Path(path)
    version = onnx_file.OPSET if opset is None else opset
    onnx_file.check_target(path, version)
    if path.suffix:
        _refuse_idle(path, input_shape=input_shape, name=name)
    else:
        _refuse_idle(path, opset=opset, input_names=input_names, plain=plain)
    about: dict[str, Any] = {"example_input": example_input, "class_names": class_names}
    if isinstance(converted, EarlyExit):
        if input_names or plain or input_shape or int8:
            raise InputError("input_names, plain, input_shape, int8: not for a model with exits.")
        return _write_exits(converted, path, version, name, about)
    answering = make_answering(converted, input_names=input_names, plain=plain, **about)
    model = onnx_file.make_model(answering, version)
    agreement = compare(model, converted, answering, None if plain is None else plain[1])
    fidelity = None
    if int8:
        given, file = example_input is not None, path.suffix == ".onnx"
        model, fidelity = _in_eight_bits(model, answering, given, onnx_runtime=file)
    if path.suffix == ".onnx":
        return onnx_file.write_model(model, path, version, agreement, fidelity)
    from onesigma.exporters.c import generate  # from the same model, in memory

    shapes = _shapes(converted, input_shape)
    generated = generate(model, path, name=name or "model", input_shapes=shapes)
    return replace(generated, int8=fidelity)


def _in_eight_bits(
    model: ModelProto, answering: Answering, given: bool, *, onnx_runtime: bool
) -> tuple[ModelProto, Fidelity]:
    """The model with its layers in eight bits, refused if that changes the answers too much."""
    from onesigma.exporters.int8 import compare, quantise, require_close

    if not given:
        raise InputError("int8 measures ranges on real inputs: give some as example_input.")
    if not answering.dynamic:
        raise ExportError("int8 needs a model with an open batch: this one fixes its size.")
    if "probs" not in answering.outputs:
        raise ExportError("int8 is for classifiers: their probabilities are what is compared.")
    examples = [x.cpu().numpy() for x in answering.examples]
    quantised = quantise(model, examples, onnx_runtime=onnx_runtime)
    found = compare(model, quantised, examples)
    require_close(found)
    return quantised, found


def _write_exits(
    model: EarlyExit, path: Path, opset: int, name: str | None, about: dict[str, Any]
) -> Exported | Generated:
    if path.suffix:
        return write_segments(model, path, opset=opset, **about)
    return write_c(model, path, name=name or "model", **about)


def _refuse_idle(path: Path, **options: object) -> None:
    idle = [name for name, value in options.items() if value is not None]
    if idle:
        kind = "ONNX" if path.suffix else "C"
        raise InputError(f"{', '.join(idle)}: {kind} files ({path.name}) have no such option.")


def _shapes(
    converted: Converted, given: Sequence[int] | Sequence[Sequence[int]] | None
) -> list[tuple[int, ...]]:
    """One shape per input."""
    known = converted.settings.input_shapes
    if given is None:
        return [tuple(1 if n is None else n for n in shape) for shape in known]
    shapes: Any = [given] if all(isinstance(n, int) for n in given) else given
    try:
        return [tuple(map(index, shape)) for shape in shapes]
    except TypeError as error:
        raise InputError(f"input_shape={given!r}: sizes are whole numbers ({error}).") from error

"""An exported file as a function from numpy arrays to a ``Prediction`` of numpy arrays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onesigma.answer import BROKEN, NOVEL, UNFAMILIAR, Answer
from onesigma.arguments import typed
from onesigma.errors import FileError, InputError, ModelError, PackageError
from onesigma.runtime.contract import Contract
from onesigma.runtime.reference import Reference

METADATA_KEY = "onesigma"  # in the file's metadata_props: one JSON object
FORMAT = 2
EXITS = "exits.json"  # in the folder of a model with exits
BATCH = 32  # inputs that a network takes at a time: of more, less stays in the caches

# How protobuf writes the start of that entry: field 1 is the key, field 2 the value.
_MARK = b"\x0a\x08onesigma\x12"
# And the start of the file's last entry (field 14, 83 bytes): the SHA-256 of all before it.
_SEAL = b"\x72\x53\x0a\x0fonesigma.sha256\x12\x40"
_SEAL_SIZE = len(_SEAL) + 64
Arrays = dict[str, npt.NDArray[Any]]
_DTYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Answer[npt.NDArray[Any]]):
    """An answer and its uncertainty for a batch, as numpy arrays; for the fields see ``Answer``."""

    @staticmethod
    def cat(parts: Sequence[Prediction]) -> Prediction:
        """Several batches as one."""
        names = parts[0].arrays()
        whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return Prediction(**whole, class_dim=parts[0].class_dim)

    @property
    def std(self) -> npt.NDArray[Any]:
        """Standard deviation of the logits."""
        return np.asarray(np.sqrt(self.var))

    @cached_property
    def valid(self) -> npt.NDArray[np.bool_]:
        """For each row, whether its answer is finite; not so if the input holds NaN or infinity."""
        both = np.isfinite(self.mean) & np.isfinite(self.var)
        return np.asarray(both.all(axis=tuple(range(1, both.ndim))))

    @cached_property
    def in_contract(self) -> npt.NDArray[np.bool_]:
        """For each input, whether all of its channels are as ``fit`` knows them."""
        return np.asarray((np.abs(self._places()) <= 1).all(1))

    @property
    def oddness(self) -> list[str]:
        """As ``Answer`` says it, of all inputs at once: a recording may hold millions."""
        words: list[str] = np.array(["", UNFAMILIAR, BROKEN], object)[self.odd_places].tolist()
        return words

    @property
    def odd_places(self) -> npt.NDArray[np.integer[Any]]:
        """0 where the guard finds nothing odd, 1 where an input is unfamiliar, 2 where broken."""
        if self.contract is None or self.novelty is None:
            return np.zeros(len(self.mean), int)
        return np.where(self.in_contract, ~(self.novelty >= NOVEL), 2)

    @property
    def confidence(self) -> npt.NDArray[Any]:
        """The probability of the most probable class."""
        return np.asarray(self._probabilities().max(self.class_dim))


class Model:
    """An exported model; made by ``load``, called with one numpy batch per input.

    Attributes:
        metadata: what ``onesigma.export`` wrote: noise sites, gains, prior, settings.
        input_shapes: the shape of each input; None stands for any batch.
    """

    def __init__(self, session: Any, metadata: dict[str, Any], *, sealed: bool = False) -> None:
        self._session = session
        self._inputs = session.get_inputs()
        self._outputs = _output_names(session, metadata)
        # Of several inputs a guard may leave one out, and another tool may have changed what it is.
        self._guarded = sealed and "contract" in self._outputs and len(self._inputs) == 1
        plain = metadata.get("plain_output")
        self._names = [each.name for each in session.get_outputs() if each.name != plain]
        self.metadata = metadata
        self.input_shapes: list[tuple[int | None, ...]] = [
            tuple(n if isinstance(n, int) else None for n in x.shape) for x in self._inputs
        ]

    @property
    def class_names(self) -> list[str] | None:
        """The names given to ``onesigma.export``, or None."""
        names: list[str] | None = self.metadata.get("class_names")
        return names or None

    @property
    def contract(self) -> Contract | None:
        """What is known of the inputs, if the model was fitted with a guard."""
        found = self.metadata.get("contract")
        return None if found is None else Contract.from_dict(found)

    @property
    def reference(self) -> Reference | None:
        """What the model says of known inputs, for ``onesigma.Monitor``, if it was fitted."""
        found = self.metadata.get("reference")
        return None if found is None else Reference.from_dict(found)

    def explain(self, prediction: Prediction) -> list[str]:
        """For each input that is broken or unfamiliar, what is odd about which channel; else ""."""
        if self.contract is None:
            raise InputError("The model has no input contract: make it with onesigma.fit.")
        return self.contract.explain(prediction)

    def __call__(self, *inputs: npt.NDArray[Any]) -> Prediction:
        """Answer a batch. A row of NaN or infinity is not ``valid``: see ``Answer``.

        Raises:
            InputError: an input has not the shape or the dtype that the model takes.
            ModelError: the runtime fails on it.
        """
        feed = self._feed(inputs, self.input_shapes)
        return self._answer(feed, len(inputs[0]))

    def predict(self, *inputs: npt.NDArray[Any], batch: int = BATCH) -> Prediction:
        """Answer inputs of any number, ``batch`` at a time. Errors as of a call.

        Of a model of one batch size that many at a time; the last batch is filled up.
        """
        if batch < 1:
            raise InputError(f"batch={batch}: at least 1 is needed.")
        feed = self._feed(inputs, [(None, *shape[1:]) for shape in self.input_shapes])
        size, rows = self.input_shapes[0][0], len(inputs[0])
        if size is None:
            return self._answer(feed, batch)
        filled = {
            name: np.concatenate([x, np.repeat(x[-1:], -rows % size, 0)])
            for name, x in feed.items()
        }
        return self._answer(filled, size).take(slice(rows))

    def _feed(
        self, inputs: Sequence[npt.NDArray[Any]], shapes: Sequence[tuple[int | None, ...]]
    ) -> Arrays:
        if len(inputs) != len(self._inputs):
            raise InputError(f"The model takes {len(self._inputs)} inputs, not {len(inputs)}.")
        return {
            wanted.name: _check_input(x, shape, wanted)
            for x, shape, wanted in zip(inputs, shapes, self._inputs, strict=True)
        }

    def _answer(self, feed: Arrays, batch: int) -> Prediction:
        made = self._run(feed, batch)
        # It has the mean of every channel: if they are finite, then all of the input is.
        if not (self._guarded and np.isfinite(made[self._outputs["contract"]]).all()):
            made = hide_rows(made, feed.values())
        values = {field: made[name] for field, name in self._outputs.items()}
        return Prediction(**values, class_dim=self.metadata["class_dim"])

    def _run(self, feed: Arrays, batch: int) -> Arrays:
        """All outputs by name; the original network's own is left out."""
        parts = [self._session_run(part) for part in split(feed, batch)]
        # Nothing is done between two runs: it would be slow, since a network empties the caches.
        outputs = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        return dict(zip(self._names, outputs, strict=True))

    def _session_run(self, feed: Arrays) -> list[npt.NDArray[Any]]:
        try:
            outputs: list[npt.NDArray[Any]] = self._session.run(self._names, feed)
        except Exception as error:  # each of its failures is a class of its own
            raise ModelError(f"ONNX Runtime cannot answer this input: {error}") from error
        return outputs


def split(feed: Arrays, batch: int) -> list[Arrays]:
    rows = len(next(iter(feed.values())))
    starts = range(0, rows, batch)
    return [{name: x[i : i + batch] for name, x in feed.items()} for i in starts]


def hide_rows(made: Arrays, inputs: Iterable[npt.NDArray[Any]]) -> Arrays:
    """No number, and nothing to act on, in a row whose input holds NaN or infinity."""
    for x in inputs:
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(x.sum()):  # nearly always: then all of it is, and this is quicker
                continue
        bad = ~np.isfinite(x).reshape(len(x), -1).all(1)
        if not bad.any():
            continue
        made = {name: np.array(value) for name, value in made.items()}
        for value in made.values():
            rows = bad if len(bad) == len(value) else slice(None)
            value[rows] = False if value.dtype == np.bool_ else np.nan
    return made


@typed
def load(path: str | Path, *, threads: int | None = None, check: bool = True) -> Model:
    """Open a file that ``onesigma.export`` wrote.

    Args:
        path: the ``.onnx`` file; of a model with exits, the folder, which is always checked.
        threads: how many threads one call may use; by default, one per core.
        check: False takes a file that another tool has changed, to quantise or optimise it. Damage
            is not noticed then.

    Raises:
        FileError: the file is missing, damaged, changed, or was not written by ``onesigma.export``.
        PackageError: onnxruntime is not installed.
    """
    path = Path(path)
    if threads is not None and threads < 1:
        raise InputError(f"threads={threads}: at least one is needed.")
    if (path / EXITS).is_file():
        from onesigma.runtime.exits import load_exits  # it needs this module

        return load_exits(path, threads)
    if not path.is_file():
        kind = f"it is a folder, and without {EXITS}" if path.is_dir() else "there is no such file"
        raise FileError(f"{path}: {kind}.")
    if check:
        return open_bytes(path.read_bytes(), path.name, threads)
    return _open(str(path), path.name, threads)


def open_bytes(content: bytes, name: str, threads: int | None = None) -> Model:
    """Open what ``onesigma.export`` wrote; what is checked is what runs. Errors as for ``load``."""
    _check_seal(content, name)
    return _open(content, name, threads)


def _open(source: bytes | str, name: str, threads: int | None) -> Model:
    """From bytes, or by a path, where a file may have weights beside it."""
    session = _open_session(name, source, threads)
    try:
        return Model(session, _read_metadata(name, session), sealed=isinstance(source, bytes))
    except UnicodeDecodeError as error:
        raise FileError(f"{name} holds text that is no UTF-8: {error}.") from error


def is_exported(path: Path) -> bool:
    """Whether the file carries an entry of ``onesigma.export``; it is searched, not parsed."""
    if path.is_dir():
        return (path / EXITS).is_file()
    content = path.read_bytes()
    return _MARK in content or _SEAL in content


def seal(content: bytes) -> bytes:
    """The model with its last entry: the SHA-256 of every byte before it."""
    return content + _SEAL + hashlib.sha256(content).hexdigest().encode()


def _check_seal(content: bytes, name: str) -> None:
    if content == seal(content[:-_SEAL_SIZE]):
        return
    if _MARK not in content and _SEAL not in content:
        raise FileError(
            f"{name} carries no onesigma metadata: onesigma.export did not write it, or it is "
            "cut short. Convert and export the model first."
        )
    raise FileError(
        f"{name} is not as onesigma.export wrote it: its SHA-256 differs or is missing. It is "
        "damaged, or another tool changed it, or it has format 1, which had no SHA-256. Export it "
        "again. If the change is meant, open it with check=False (onesigma predict --no-check)."
    )


def _open_session(name: str, source: bytes | str, threads: int | None) -> Any:
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ModuleNotFoundError as error:
        raise PackageError(
            "onesigma.runtime needs onnxruntime. Install it with: pip install onnxruntime"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0  # 0: one per core
    options.log_severity_level = 4  # errors are raised
    try:
        return onnxruntime.InferenceSession(
            source, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:  # each of its failures is a class of its own
        raise FileError(
            f"{name} cannot be read as an ONNX model, it may be truncated: {error}"
        ) from error


def _read_metadata(name: str, session: Any) -> dict[str, Any]:
    text = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
    if text is None:
        raise FileError(
            f"{name} is an ONNX model, but not one that onesigma.export wrote: it carries no "
            "onesigma metadata. Convert and export the model first."
        )
    try:
        metadata: dict[str, Any] = json.loads(text)
        version = metadata["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"{name}: its onesigma metadata are damaged ({error}).") from error
    if version != FORMAT:
        raise FileError(
            f"{name} has format {version}, this version of onesigma reads {FORMAT}. "
            "Export the model again, or update onesigma here."
        )
    if not _matches_graph(session, metadata):
        raise FileError(f"{name}: its onesigma metadata do not fit its graph. Export it again.")
    return metadata


def _output_names(session: Any, metadata: dict[str, Any]) -> dict[str, str]:
    """What each field is called in the file. The original network's own output is left out."""
    return metadata.get("outputs") or {output.name: output.name for output in session.get_outputs()}


def _matches_graph(session: Any, metadata: dict[str, Any]) -> bool:
    """Whether everything is there that a call will need."""
    outputs, names = _output_names(session, metadata), metadata.get("class_names")
    known = {each.name for each in fields(Prediction)} - {"class_dim"}
    made = [output.name for output in session.get_outputs()]
    return (
        isinstance(outputs, dict)
        and {"mean", "var"} <= outputs.keys() <= known
        and all(name in made for name in outputs.values())
        and type(metadata.get("class_dim")) is int
        and (names is None or (isinstance(names, list) and all(isinstance(n, str) for n in names)))
        and all(wanted.type in _DTYPES for wanted in session.get_inputs())
    )


def _check_input(x: Any, shape: tuple[int | None, ...], wanted: Any) -> npt.NDArray[Any]:
    """The input as the graph takes it. It is cast only where that loses nothing."""
    if (
        not isinstance(x, np.ndarray)
        or len(x.shape) != len(shape)
        or any(n is not None and n != m for n, m in zip(shape, x.shape, strict=True))
    ):
        given = x.shape if isinstance(x, np.ndarray) else type(x).__name__
        words = ", ".join("batch" if n is None else str(n) for n in shape)
        raise InputError(f"Expected an array of shape ({words}), not {given}.")
    if not x.size:
        raise InputError("The batch is empty.")  # some ops of the runtime fail on it, others do not
    dtype = np.dtype(_DTYPES[wanted.type])
    if not np.can_cast(x.dtype, dtype, "safe"):
        raise InputError(
            f"Expected a {dtype} input, not {x.dtype}. Convert it: x.astype(np.{dtype})."
        )
    return x.astype(dtype, copy=False)

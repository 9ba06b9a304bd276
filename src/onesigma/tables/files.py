"""Numbers from CSV, NPY, Parquet and WAV files, in pieces: a file may be larger than the memory."""

from __future__ import annotations

import csv
import gzip
import re
import tokenize
import wave
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np
import numpy.typing as npt

from onesigma.errors import DataError
from onesigma.tables.arrow import import_pyarrow, to_numpy

Array: TypeAlias = npt.NDArray[np.float32]
Columns: TypeAlias = Sequence[str | int] | None

TEXTS = (".csv", ".tsv", ".txt")  # also packed, as .csv.gz
ARRAYS = (".npy", ".npz")
SUFFIXES = (*TEXTS, ".csv.gz", *ARRAYS, ".parquet", ".wav")
BYTES_AT_ONCE = 1 << 20  # of a file in memory
# What numpy, and zipfile below it, raise on bytes that are no array. numpy parses the header of
# an array as Python, warns of one that Python 2 wrote, and it may state a size beyond all memory.
DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, RuntimeError, SyntaxError, tokenize.TokenError),
    *(MemoryError, OverflowError, UserWarning, zipfile.BadZipFile, zlib.error),
)
UNREADABLE = (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error)  # as CSV
_LARGEST = float(np.finfo(np.float32).max)
_RANGE = re.compile(r"(\d+)-(\d+)")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")


def read_rows(
    path: Path, columns: Columns = None, *, header: bool | None = None
) -> Iterator[Array]:
    """The rows of a file in order, some at a time: finite float32 numbers, (k, columns) or (k, …).

    Args:
        path: ``.csv`` (``.tsv``, ``.txt``, also packed as ``.csv.gz``), ``.npy`` or ``.npz`` with
            one array, ``.parquet``, or ``.wav``. A row of a sound is one instant, with values from
            −1 to 1.
        columns: which columns to read, in this order; see ``choose_columns``.
        header: for CSV, whether the first line names the columns. None: it does if it holds no
            number.

    Raises:
        DataError: absent, damaged, or not all numbers; names the file, the row and the column.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file.")
    if is_text(path):
        return _read_csv(path, columns, header)
    match path.suffix.lower():
        case ".npy" | ".npz":
            return _read_npy(path, columns)
        case ".parquet":
            return _read_parquet(path, columns)
        case ".wav":
            return _read_sound(path, columns)
    raise DataError(f"{path.name}: data are read from {', '.join(SUFFIXES)} files.")


def column_names(path: Path, *, header: bool | None = None) -> list[str]:
    """What the file calls its columns; none if it does not, or if it cannot be read."""
    if path.suffix.lower() == ".parquet":
        try:
            return list(import_pyarrow()[1].read_schema(path).names)
        except (OSError, ValueError):
            return []
    if not is_text(path) or not path.is_file():
        return []
    try:
        with open_text(path) as file:
            return _Layout.of(file.readline(), None, header, path.name).header or []
    except (DataError, *UNREADABLE):
        return []


def is_text(path: Path) -> bool:
    """Whether its name is that of a CSV file, packed or not."""
    name = path.name.lower()
    return name.removesuffix(".gz").endswith(TEXTS)


def open_text(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def choose_columns(
    columns: Columns, header: Sequence[str] | None, width: int, file: str
) -> list[int]:
    """The positions of the columns: by name, by number from 0, or "2-7" for several; None: all.

    Raises:
        DataError: there is no such column; the message says which there are.
    """
    if columns is None:
        return list(range(width))
    if not columns:
        raise DataError(f"{file}: choose at least one column, or None for all.")
    return [place for column in columns for place in _places(column, header, width, file)]


def _places(column: str | int, header: Sequence[str] | None, width: int, file: str) -> list[int]:
    if header is not None and column in header:
        return [list(header).index(str(column))]
    span = _RANGE.fullmatch(str(column))
    first, last = span.groups() if span else (str(column), str(column))
    if first.isdecimal() and last.isdecimal() and int(first) <= int(last) < width:
        return list(range(int(first), int(last) + 1))
    has = ", ".join(header) if header else f"columns 0 to {width - 1}"
    raise DataError(f"{file} has no column {column!r}; it has {has}.")


def _read_csv(path: Path, columns: Columns, header: bool | None) -> Iterator[Array]:
    """Fields separated by commas, semicolons or tabs; after these two, 0,5 is a half."""
    try:
        with open_text(path) as file:
            first = file.readline()
            layout = _Layout.of(first, columns, header, path.name)
            lines, number = ([], 2) if layout.header else ([first], 1)
            while lines := lines + file.readlines(BYTES_AT_ONCE):
                if any(map(str.strip, lines)):
                    yield layout.parse(lines, number)
                number, lines = number + len(lines), []
    except UNREADABLE as error:
        raise DataError(f"{path.name} cannot be read as CSV: {error}") from error


@dataclass(frozen=True)
class _Layout:
    """How the lines of one CSV file are read."""

    file: str
    delimiter: str
    header: list[str] | None
    width: int
    places: list[int]

    @staticmethod
    def of(first: str, columns: Columns, header: bool | None, file: str) -> _Layout:
        if not first.strip():
            raise DataError(f"{file} is empty, or begins with an empty line.")
        delimiter = find_delimiter(first)
        fields = [field.strip() for field in next(csv.reader([first], delimiter=delimiter))]
        # Some programs name columns without a name 0, 1, 2 …
        numbered = len(fields) > 2 and fields == [str(i) for i in range(len(fields))]
        numbers = [is_number(_with_point(field, delimiter)) for field in fields]
        named = numbered or not any(numbers) if header is None else header
        names = fields if named else None
        places = choose_columns(columns, names, len(fields), file)
        return _Layout(file, delimiter, names, len(fields), places)

    def parse(self, lines: Sequence[str], number: int) -> Array:
        """The numbers of some lines; the first is line ``number`` of the file."""
        if all(line.count(self.delimiter) == self.width - 1 for line in lines):
            try:
                plain = [_with_point(line, self.delimiter) for line in lines]
                values: Array = np.loadtxt(
                    *(plain, np.float32, None, self.delimiter),
                    usecols=self.places,
                    ndmin=2,
                    quotechar='"',
                )
                if np.isfinite(values).all():
                    return values
            except ValueError:
                pass
        return self._parse_slowly(lines, number)

    def _parse_slowly(self, lines: Sequence[str], number: int) -> Array:
        """The same, field by field. It finds what is wrong, if something is."""
        found = []
        for at, line in enumerate(lines, start=number):
            if not line.strip():
                continue
            fields = next(csv.reader([line], delimiter=self.delimiter))
            if len(fields) != self.width:
                raise DataError(
                    f"{self.file}, line {at}: {len(fields)} fields, where line 1 has {self.width}."
                )
            found.append([self._parse_field(fields[place], at, place) for place in self.places])
        return np.array(found, np.float32)

    def _parse_field(self, field: str, line: int, place: int) -> float:
        number = _with_point(field, self.delimiter)
        if is_number(number) and abs(float(number)) <= _LARGEST:  # False for NaN, too
            return float(number)
        column = repr(self.header[place]) if self.header else f"{place} (counted from 0)"
        what = f"{field.strip()!r} is no finite number" if field.strip() else "empty"
        raise DataError(
            f"{self.file}, line {line}, column {column}: {what}. "
            "Correct the file, or choose columns with --columns."
        )


def find_delimiter(line: str) -> str:
    """The commonest of comma, semicolon and tab; beside these two, 0,5 is one number."""
    other = ";" in line or "\t" in line
    return max(",;\t", key=(_DECIMAL_COMMA.sub("", line) if other else line).count)


def _with_point(text: str, delimiter: str) -> str:
    """Numbers with a decimal point, where the delimiter leaves commas for another use."""
    return text if delimiter == "," else text.replace(",", ".")


def is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def read_array(path: Path) -> npt.NDArray[Any]:
    """A whole ``.npy`` (``.npz``) array, the batch first; floating-point becomes float32.

    Raises:
        DataError: the file is absent, damaged, pickled, or holds no numbers.
    """
    array = _open_npy(path)
    dtype = np.float32 if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite
        return array.astype(dtype, copy=False)


def _open_npy(path: Path, *, mapped: bool = False) -> npt.NDArray[Any]:
    array = open_array(path, mapped=mapped)
    if array.ndim == 0 or array.dtype.kind not in "fiub":
        raise DataError(f"{path.name} must hold one array of numbers, the batch first.")
    return array


def open_array(path: Path, *, mapped: bool = False) -> npt.NDArray[Any]:
    """The one array of a ``.npy`` or ``.npz`` file, of numbers or of texts."""
    if path.suffix.lower() not in ARRAYS:
        raise DataError(f"{path.name}: an array is read from {' and '.join(ARRAYS)} files.")
    try:
        content: Any = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return content
        with content:
            names = content.files
            if len(names) == 1:
                return np.asarray(content[names[0]])
    except DAMAGE as error:
        reason = str(error)
        if "pickle" in reason:  # numpy would advise to run code from the file
            reason = "it is damaged, or holds Python objects. Save numbers: np.save(file, array)"
        raise DataError(f"{path.name} cannot be read as a .npy array: {reason}") from error
    raise DataError(
        f"{path.name} holds {len(names)} arrays ({', '.join(names)}): save the one that is meant "
        "alone, with np.save."
    )


def _read_npy(path: Path, columns: Columns) -> Iterator[Array]:
    array = _open_npy(path, mapped=True)
    if columns is not None and array.ndim != 2:
        raise DataError(f"{path.name} has shape {array.shape}: only a table has columns.")
    places = None if columns is None else choose_columns(columns, None, array.shape[1], path.name)
    step = _rows_at_once(array[:1].size)
    for start in range(0, len(array), step):
        piece = array[start : start + step]
        yield _to_finite(piece if places is None else piece[:, places], path.name, start)


def _rows_at_once(width: int) -> int:
    return max(1, BYTES_AT_ONCE // 4 // max(1, width))


def _to_finite(
    given: npt.NDArray[Any], file: str, start: int, names: Sequence[str] | None = None
) -> Array:
    """The values as float32. The first that is NaN, infinite or too large is an error."""
    with np.errstate(over="ignore"):
        values = given.astype(np.float32)
    good = np.isfinite(values)
    if good.all():
        return values
    row, *place = (int(i) for i in np.argwhere(~good)[0])
    element = f", column {place[0]}" if len(place) == 1 else f", element {place}" if place else ""
    column = f", column {names[place[0]]!r}" if names else element
    raise DataError(
        f"{file}, row {start + row}{column} (counted from 0): {given[(row, *place)]} is no finite "
        "number."
    )


def _read_parquet(path: Path, columns: Columns) -> Iterator[Array]:
    pyarrow, parquet = import_pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            schema, start = file.schema_arrow, 0
            places = choose_columns(columns, schema.names, len(schema.names), path.name)
            names = [schema.names[place] for place in places]
            _require_numbers(pyarrow.types, schema, names, path.name)
            unique = list(dict.fromkeys(names))
            for batch in file.iter_batches(_rows_at_once(len(names)), columns=unique):
                table = [to_numpy(batch.column(name)) for name in names]
                piece = np.stack(table, axis=1)
                yield _to_finite(piece, path.name, start, names)
                start += len(piece)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path.name} cannot be read as Parquet: {error}") from error


def _require_numbers(types: Any, schema: Any, names: Sequence[str], file: str) -> None:
    for name in names:
        held = schema.field(name).type
        if not (types.is_integer(held) or types.is_floating(held) or types.is_boolean(held)):
            raise DataError(
                f"{file}, column {name!r} holds {held}, no numbers. Choose columns with --columns."
            )


def _read_sound(path: Path, columns: Columns) -> Iterator[Array]:
    """Sound of any rate, width and number of channels: (instants, channels) from −1 to 1."""
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, read = file.getnchannels(), file.getsampwidth(), 0
            places = choose_columns(columns, None, channels, path.name)
            while content := file.readframes(_rows_at_once(channels)):
                values = _to_float(content, width).reshape(-1, channels)
                read += len(values)
                yield values[:, places]
            if read != file.getnframes():
                raise DataError(f"{path} ends after {read} of {file.getnframes()} samples.")
    except (OSError, wave.Error, EOFError, RuntimeError, ValueError) as error:
        reason = str(error) or "it ends too soon"
        raise DataError(f"{path} cannot be read as WAV: {reason}.") from error


def _to_float(content: bytes, width: int) -> Array:
    """Whole numbers of 1 to 4 bytes. A single byte counts from 0 to 255, and 128 is silence."""
    if width == 1:
        return np.asarray(np.frombuffer(content, np.uint8) / 128 - 1, np.float32)
    # As the upper bytes of a 32-bit number: the sign is then in its place.
    padded = np.zeros((len(content) // width, 4), np.uint8)
    padded[:, 4 - width :] = np.frombuffer(content, np.uint8).reshape(-1, width)
    return np.asarray(padded.view("<i4")[:, 0] / 2.0**31, np.float32)

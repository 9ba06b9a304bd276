"""Convolution, of one value or of a mean and a variance that share their weights.

A few rows of the input at a time are copied into a strip, padded with zeros and sorted by the
stride, so that the taps of a kernel always read neighbours; where nothing is padded and the stride
is 1 the input is read in place. Then four filters at once run over the strip, for the mean and
for the variance, whose weights are squared four filters at a time into scratch memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from onesigma.exporters.c.conv_driver import (
    CONV,
    PLAIN,
    SLACK,
    SPAN,
    STRIP,
    STRUCTS,
)
from onesigma.exporters.c.conv_kernels import kernel
from onesigma.exporters.c.lanes import BLOCK, layer
from onesigma.exporters.c.render import File, filled, renders
from onesigma.exporters.c.values import Node

# A strip has so many columns at least, for squared weights and overlapping rows to be used often;
# a kernel of one row, and no squares, needs no more than a row.
_STRIP_COLUMNS = 64


@dataclass(frozen=True)
class Geometry:
    """Sizes of a convolution in two dimensions, each pair (rows, columns)."""

    channels: int
    filters: int
    groups: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    out: tuple[int, int]
    in_place: bool = False

    def simplest(self, padded: bool) -> Geometry:
        """The same with one long row where the rows have nothing to do with one another."""
        pointwise = self.kernel == (1, 1) and self.stride == (1, 1) and not padded
        upright = self.size[1] == self.kernel[1] == self.out[1] == 1 and self.before[1] == 0
        result = self
        if upright:
            pairs = {name: getattr(self, name)[::-1] for name in ("size", "kernel", "stride")}
            pairs |= {name: getattr(self, name)[::-1] for name in ("dilation", "before", "out")}
            result = replace(self, **pairs)
        elif pointwise:
            long = (1, self.size[0] * self.size[1])
            result = replace(self, size=long, out=long)
        return replace(result, in_place=not padded and result.stride[1] == 1)

    @property
    def phase(self) -> int:
        """Columns of a strip that are a stride apart."""
        return self.out[1] + (self.kernel[1] - 1) * self.dilation[1] // self.stride[1]

    @property
    def row_pitch(self) -> int:
        return self.size[1] if self.in_place else self.phase * self.stride[1]

    @property
    def taps(self) -> int:
        """Weights of one filter."""
        return self.channels // self.groups * self.kernel[0] * self.kernel[1]

    def strip(self, squares: bool) -> tuple[int, int]:
        """Output rows at once, and the rows of the strip that these need."""
        if self.in_place:
            return self.out[0], 0
        enough = -(-_STRIP_COLUMNS // self.out[1]) if squares or self.kernel[0] > 1 else 1
        rows = min(self.out[0], enough)
        return rows, (rows - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1

    def numbers(self, squares: bool) -> dict[str, int]:
        """The members of ``struct conv``."""
        strip, strip_height = self.strip(squares)
        pitch = self.row_pitch * (self.size[0] if self.in_place else strip_height)
        return {
            "groups": self.groups,
            "channels": self.channels // self.groups,
            "filters": self.filters // self.groups,
            **dict(zip(("height", "width"), self.size, strict=True)),
            **dict(zip(("top", "left"), self.before, strict=True)),
            **dict(zip(("rows", "columns"), self.out, strict=True)),
            **dict(zip(("row_stride", "stride"), self.stride, strict=True)),
            "taps": self.taps,
            "strip": strip,
            "strip_height": strip_height,
            "phase": self.phase,
            "row_pitch": self.row_pitch,
            "kernel_pitch": self.row_pitch * self.dilation[0],
            "channel_pitch": pitch,
        }


def _has_squares(node: Node) -> bool:
    return any(lane.attributes["power"] == 2 for lane in node.attributes["lanes"])


def scratch(node: Node, int8: bool) -> int:
    """Floats for the strips of all lanes, and for four filters that are squared or unpacked."""
    g: Geometry = node.attributes["lanes"][0].attributes["geometry"]
    squares = _has_squares(node)
    numbers = g.numbers(squares)
    strips = len(node.reads) * numbers["channels"] * numbers["channel_pitch"] + SLACK
    of_weights = BLOCK * g.taps if squares or int8 else 0
    return (strips if numbers["strip_height"] else 0) + of_weights


@renders("Conv", scratch)
def render(node: Node, file: File) -> list[str]:
    g: Geometry = node.attributes["lanes"][0].attributes["geometry"]
    parts = layer(node, g.groups, file)
    file.function("struct conv", STRUCTS)
    file.function("fill_strip", filled(STRIP, slack=SLACK))
    file.function("conv", filled(CONV, span=SPAN, plain="" if file.int8 else PLAIN))
    each = g.filters // g.groups
    sizes = (BLOCK if each >= BLOCK else 1, 1 if each % BLOCK else BLOCK)
    four, one = (file.function(*kernel(g.kernel, g.stride[1], g.dilation[1], n)) for n in sizes)
    members = [f".{name} = {n}" for name, n in g.numbers(_has_squares(node)).items()]
    return [
        "static const struct conv shape = {",
        *(f"    {', '.join(members[i : i + 6])}," for i in range(0, len(members), 6)),
        "};",
        *parts.lanes,
        f"conv(&shape, {parts.weights}, lanes, {len(node.reads)}, {four}, {one}, {file.scratch});",
    ]

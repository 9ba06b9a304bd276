"""Linear layers: four outputs at once, mean and variance in the same loop."""

from __future__ import annotations

from onesigma.exporters.c.lanes import BLOCK, layer
from onesigma.exporters.c.render import File, filled, renders
from onesigma.exporters.c.values import Node

_DENSE = """\
static void @name@(const weight *w, int inputs, int outputs, int rows, const struct lane *lanes)
{
    const int blocks = outputs - outputs % 4;
    for (int row = 0; row < rows; ++row) {
        const weight *v = w;
@four@
@one@
    }
}
"""

_BLOCK = """\
        for (int o = @first@; o < @last@; o += @n@) {
@starts@
            for (int i = 0; i < inputs; ++i, v += @n@) {
@sums@
            }
@stores@
        }"""


@renders("Dense")
def render(node: Node, file: File) -> list[str]:
    lane = node.attributes["lanes"][0]
    outputs, inputs = lane.attributes["weight"].shape
    parts = layer(node, 1, file)
    name = "dense_" + "".join(map(str, parts.powers))
    file.function("lane_sum", _LANE_SUM)
    blocks = {
        "four": _block(BLOCK, "0", "blocks", parts.powers),
        "one": _block(1, "blocks", "outputs", parts.powers),
    }
    file.function(name, filled(_DENSE, name=name, **blocks))
    rows = lane.attributes["geometry"]
    return [*parts.lanes, f"{name}({parts.weights}, {inputs}, {outputs}, {rows}, lanes);"]


_LANE_SUM = """\
static inline float lane_sum(const struct lane *lane, int filter, float sum)
{
    if (lane->factor)
        sum *= lane->factor[filter];
    return lane->bias ? sum + lane->bias[filter] : sum;
}
"""


def _block(n: int, first: str, last: str, powers: tuple[int, ...]) -> str:
    outputs, lanes = range(n), range(len(powers))
    starts = [f"            const float *x{a} = lanes[{a}].x + row * inputs;" for a in lanes]
    starts += [f"            float *y{a} = lanes[{a}].y + row * outputs;" for a in lanes]
    starts += [f"            float {', '.join(f's{a}{k} = 0.0f' for k in outputs)};" for a in lanes]
    sums = [f"                const float e{a} = x{a}[i];" for a in lanes]
    for k in outputs:
        sums.append(f"                const float w{k} = (float)v[{k}];")
        for a in lanes:
            factor = f"w{k}" if powers[a] == 1 else f"(w{k} * w{k})"
            sums.append(f"                s{a}{k} += {factor} * e{a};")
    stores = [
        f"            y{a}[o + {k}] = lane_sum(&lanes[{a}], o + {k}, s{a}{k});"
        for a in lanes
        for k in outputs
    ]
    lines = {"starts": starts, "sums": sums, "stores": stores}
    parts = {name: "\n".join(each) for name, each in lines.items()}
    return filled(_BLOCK, n=n, first=first, last=last, **parts)

"""Write docs/supported-ops.md from the tables of rules and of ONNX ops; a test holds it current.

python tools/ops_page.py
"""

from collections.abc import Iterable
from pathlib import Path

import onnx

from onesigma.importers.onnx.module import OPS  # with those of recurrent layers
from onesigma.importers.onnx.quantised import QUANTISED
from onesigma.rules import RULES, Assumption, Rule
from onesigma.rules.table import ALWAYS_APPROXIMATE, Op, Reach
from onesigma.storage.atomic import replacing

PAGE = Path(__file__).resolve().parents[1] / "docs" / "supported-ops.md"

HEAD = """\
# Supported ops

<!-- Written by tools/ops_page.py; do not edit. -->

What `convert` can carry uncertainty through, by the names that PyTorch's exported graphs use:
`nn.Conv1d` and `F.conv1d` are both `conv1d`. {rules} ops have a rule. An op that no dropout reaches
needs none. `convert` names all ops that it cannot convert at once, with the line of your code. To
[add a rule](../src/onesigma/rules/README.md) takes a few lines. `fit` needs no rules for its
[students](forms.md).

*Exact* is about mean and variance. `converted.report` says at every op of your network whether its
assumption holds, and `onesigma.audit` says how much is lost where it does not.
"""
# In the order of the page. A family without a line here is an error, not a gap.
FAMILIES = {
    "dropout": "Dropout: where the uncertainty comes from",
    "linear": "Linear in the input: weights squared for the variance",
    "passthrough": "Moves, copies or drops elements: mean and variance move alike",
    "elementwise": "Functions of each element",
    "maximum": "Maxima",
    "norm": "Normalisation",
    "softmax": "Softmax inside the network (a final one is averaged by the head)",
    "sum": "Sums and differences",
    "product": "Products",
    "choice": "Choices by a certain condition",
    "refuse": "Known and refused",
}
ONNX = """\
## ONNX ops that are read

For [files of any framework](onnx.md#onnx-in): {count} ops of the standard domain, opsets 9 and up.

{names}

[Quantised files](onnx.md#quantised-files) are read as float. Of their ops, the last ones are of
ONNX Runtime's own domain:

{quantised}
"""


def page() -> str:
    by_family: dict[str, list[tuple[Op, Rule]]] = {family: [] for family in FAMILIES}
    for op, rule in RULES.items():
        by_family[rule.family].append((op, rule))
    carried = {name(op) for op, rule in RULES.items() if not rule.refuses}
    # The others are our own, put together from what exporters write in parts.
    read = sorted(each for each in OPS if onnx.defs.has(each) and each not in QUANTISED)
    quantised = sorted(QUANTISED, key=lambda each: (not onnx.defs.has(each), each))
    return "\n".join(
        [
            HEAD.format(rules=len(carried)),
            *(section(family, rules) for family, rules in by_family.items()),
            ONNX.format(count=len(read), names=quoted(read), quantised=quoted(quantised)),
        ]
    )


def quoted(ops: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in ops)


def section(family: str, rules: Iterable[tuple[Op, Rule]]) -> str:
    """A table: one line for all ops of the family that are treated alike."""
    alike: dict[tuple[str, str], list[Op]] = {}
    for op, rule in rules:
        alike.setdefault((exactness(rule), remark(rule)), []).append(op)
    if family == "refuse":
        head = "| ops | why, and what to do |\n|---|---|"
        rows = [f"| {names(ops)} | {note} |" for (_, note), ops in alike.items()]
    else:
        head = "| ops | exact if | note |\n|---|---|---|"
        rows = [f"| {names(ops)} | {exact} | {note} |" for (exact, note), ops in alike.items()]
    return "\n".join([f"## {FAMILIES[family]}", "", head, *rows, ""])


def exactness(rule: Rule) -> str:
    if ALWAYS_APPROXIMATE in rule.assumes:
        return "never"
    held = [assumption.value for assumption in Assumption if assumption in rule.assumes]
    return ", ".join(held) or "always"


def remark(rule: Rule) -> str:
    return rule.note or ("elements of the output share noise" if rule.reach is Reach.COPIES else "")


def name(op: Op) -> str:
    """`conv1d` for all of its overloads."""
    packet = getattr(op, "overloadpacket", op)
    return str(packet.__name__)


def names(ops: Iterable[Op]) -> str:
    return ", ".join(f"`{each}`" for each in dict.fromkeys(map(name, ops)))


if __name__ == "__main__":
    with replacing(PAGE) as temporary:
        temporary.write_text(page(), encoding="utf-8")

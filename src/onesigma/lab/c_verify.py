"""Compile what was generated, run it on this machine or an emulated one, and compare.

The tools are looked up on the path and never installed: ``Target.missing`` says which are absent.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from onesigma.errors import ExportError
from onesigma.exporters.c import BOARD
from onesigma.exporters.c.elementwise import literal
from onesigma.exporters.c.emit import identifier as _c
from onesigma.exporters.c.generator import Generated
from onesigma.exporters.c.nodes import Array
from onesigma.exporters.c.text import fill
from onesigma.runtime.comparison import checking_runtime, mismatch

Sample = Mapping[str, Array]
WARNINGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0")


@dataclass(frozen=True)
class Target:
    """A machine: its compiler, the compiler's flags, and what runs the result."""

    compiler: str
    flags: tuple[str, ...] = ()
    emulator: tuple[str, ...] = ()
    counts: bool = False  # whether the emulator counts instructions

    @property
    def missing(self) -> str | None:
        """Which tools are absent, in words, or None."""
        tools = [self.compiler, *self.emulator[:1]]
        absent = [tool for tool in tools if shutil.which(tool) is None]
        return f"{' and '.join(absent)} not found" if absent else None


_M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard")
_BARE = ("-ffunction-sections", "-fdata-sections", "-nostartfiles", "--specs=rdimon.specs")
_ICOUNT = ("-nographic", "-semihosting", "-icount", "shift=6,sleep=off")
TARGETS = {
    "host": Target("gcc", ("-O2",)),
    "aarch64": Target("aarch64-linux-gnu-gcc", ("-O2", "-static"), ("qemu-aarch64",)),
    "cortex-m4": Target(
        "arm-none-eabi-gcc",
        # Fused multiply-adds, which -std=c99 alone would forbid: one instruction instead of two.
        (*_M4, "-O2", "-ffp-contract=fast", *_BARE, f"-T{BOARD / 'link.ld'}", "-Wl,--gc-sections"),
        ("qemu-system-arm", "-M", "mps2-an386", *_ICOUNT, "-kernel"),
        counts=True,
    ),
}


@dataclass(frozen=True)
class RunResult:
    """What a run returned and, on an emulated microcontroller, what it took.

    Attributes:
        outputs: the fields of the struct, for each sample.
        instructions: executed for the first sample; None if they are not counted.
        steps: the same step by step, if asked for.
    """

    outputs: tuple[dict[str, Array], ...]
    instructions: int | None
    steps: tuple[int, ...] = ()


def run(
    generated: Generated,
    samples: Sequence[Sample],
    target: str = "host",
    *,
    flags: Sequence[str] = (),
    profile: bool = False,
) -> RunResult:
    """Compile with all warnings as errors, and run on samples (inputs by name).

    Raises:
        ExportError: it does not compile, or it fails when it runs; the tool's message is in it.
    """
    machine = TARGETS[target]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.c").write_text(_main(generated, samples, machine.counts))
        sources = [generated.source, folder / "main.c"]
        options = [*WARNINGS, *machine.flags, *flags, f"-I{generated.source.parent}", f"-I{BOARD}"]
        if machine.counts:
            sources.append(BOARD / "startup.c")
            if profile:
                (folder / "mark.h").write_text("void mark(int step);\n")
                prefix = generated.source.stem.upper()
                options += [f"-D{prefix}_STEP(n)=mark(n)", "-include", str(folder / "mark.h")]
        _call([machine.compiler, *options, *map(str, sources), "-o", f"{folder}/program", "-lm"])
        lines = _call([*machine.emulator, f"{folder}/program"]).split("\n")
    return _parse(lines, generated, len(samples), machine.counts)


def _call(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise ExportError(f"{command[0]} failed ({done.returncode}):\n{done.stderr[:4000]}")
    return done.stdout


def flash(generated: Generated, target: str = "cortex-m4") -> int:
    """Bytes of code, weights and tables, as compiled, without the library's own functions."""
    machine = TARGETS[target]
    with tempfile.TemporaryDirectory() as folder:
        object_file = f"{folder}/model.o"
        options = [flag for flag in machine.flags if not flag.startswith(("-T", "-Wl"))]
        _call([machine.compiler, *options, "-c", str(generated.source), "-o", object_file])
        table = _call([machine.compiler.replace("gcc", "size"), object_file])
    text, data = table.split("\n")[1].split()[:2]
    return int(text) + int(data)


_MAIN = """\
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "@name@.h"
@board@
static struct @name@_prediction out;
@inputs@
static void show(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    printf("%08lx ", (unsigned long)bits);
}

int main(void)
{
    for (int sample = 0; sample < @count@; ++sample) {
        begin();
        const int failed = @name@_predict(@arguments@, &out);
        end(sample);
        if (failed)
            return 1;
        @shows@
        printf("\\n");
    }
    return 0;
}
"""

_NOT_COUNTING = "static void begin(void) {}\nstatic void end(int sample) { (void)sample; }"

_COUNTING = """\
#include "board.h"
static uint32_t before, steps[@steps@ + 1];
void mark(int step);
void mark(int step) { steps[step] = instructions(); }
static void begin(void) { before = instructions(); }
static void end(int sample)
{
    const uint32_t after = instructions();
    steps[@steps@] = after;
    if (sample)
        return;
    printf("%lu", (unsigned long)(after - before));
    for (int i = 0; i < @steps@; ++i)
        printf(" %lu", (unsigned long)(steps[i] ? steps[i + 1] - steps[i] : 0));
    printf("\\n");
}
"""


def _main(generated: Generated, samples: Sequence[Sample], counts: bool) -> str:
    inputs = []
    for name, size in generated.inputs.items():
        rows = [",\n".join(literal(float(x)) for x in np.ravel(s[name])) for s in samples]
        body = ",\n".join(f"{{{row}}}" for row in rows)
        inputs.append(f"static const float in_{_c(name)}[{len(samples)}][{size}] = {{\n{body}}};")
    shows = []
    for name, (_, size) in generated.outputs.items():
        element = f"out.{_c(name)}[i]" if size > 1 else f"out.{_c(name)}"
        shows.append(f"for (int i = 0; i < {size}; ++i) show((float){element});")
    counting = fill(_COUNTING, steps=len(generated.steps))
    return fill(
        _MAIN,
        name=generated.source.stem,
        board=counting if counts else _NOT_COUNTING,
        inputs=inputs,
        count=len(samples),
        arguments=", ".join(f"in_{_c(name)}[sample]" for name in generated.inputs),
        shows=shows,
    )


def _parse(lines: Sequence[str], generated: Generated, samples: int, counts: bool) -> RunResult:
    rows = [line.split() for line in lines if line.strip()]
    numbers = [int(n) for n in rows.pop(0)] if counts else []
    ends = np.cumsum([size for _, size in generated.outputs.values()])
    outputs = []
    for row in rows[:samples]:
        floats = np.array([int(word, 16) for word in row], dtype=np.uint32).view(np.float32)
        outputs.append(dict(zip(generated.outputs, np.split(floats, ends[:-1]), strict=True)))
    return RunResult(tuple(outputs), numbers[0] if counts else None, tuple(numbers[1:]))


def largest_mismatch(model: onnx.ModelProto, result: RunResult, samples: Sequence[Sample]) -> float:
    """How far a run is from ONNX Runtime, by the measure of ``runtime/comparison.py``."""
    session, worst = checking_runtime()[1](model.SerializeToString()), 0.0
    for sample, fields in zip(samples, result.outputs, strict=True):
        expected = session.run(list(fields), dict(sample))
        for (name, found), wanted in zip(fields.items(), expected, strict=True):
            flat = np.ravel(wanted)
            worst = max(worst, mismatch(name, found.astype(wanted.dtype), flat))
    return worst

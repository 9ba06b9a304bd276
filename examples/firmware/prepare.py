"""Write everything the firmware is built from into a folder: model, two windows, board files.

    python prepare.py build

The model is the one that the package ships: seven shoulder exercises from a smartwatch, with the
uncertainty of one pass and a rule for when to act, fitted on people it was not trained on.
The windows are a recorded one of a third group of people, and what a drifting sensor would give.
"""

import argparse
import shutil
from pathlib import Path

from torch import Tensor

import onesigma
from onesigma.exporters.c import BOARD
from onesigma.exporters.c.elementwise import literal
from onesigma.lab import checkpoint
from onesigma.lab.datasets import watch
from onesigma.lab.datasets.noise import random_walk
from onesigma.lab.datasets.split import Splits

RISK = 0.05  # of all windows, at most this share is to be acted on and answered wrongly

HEADER = """\
/* The windows come from the recordings of the package seglearn (BSD-3), or from a random walk. */
#ifndef WINDOWS_H
#define WINDOWS_H

#include "model.h"

static const struct window {
    const char *name;
    float samples[MODEL_INPUT_SIZE];
} windows[] = {
@rows@
};

#endif
"""


def model(data: Splits) -> onesigma.Converted:
    """The shipped network, converted, with its rule for acting and abstaining."""
    network = checkpoint.load().network
    converted = onesigma.convert(network, data.train.inputs[:2])
    seen = converted(data.validation.inputs)
    return converted.with_abstain(onesigma.threshold(seen, data.validation.labels, risk=RISK))


def windows(data: Splits) -> dict[str, Tensor]:
    first = watch.CLASS_NAMES[int(data.test.labels[0])]
    (drift,) = random_walk(1, watch.INPUT_SHAPE)
    return {f"recorded {first}": data.test.inputs[0], "drifting sensor": drift}


def header(examples: dict[str, Tensor]) -> str:
    rows = []
    for name, window in examples.items():
        numbers = [literal(float(x)) for x in window.flatten()]
        lines = [", ".join(numbers[i : i + 8]) for i in range(0, len(numbers), 8)]
        rows.append(f'{{"{name}", {{\n' + ",\n".join(lines) + "}},")
    return HEADER.replace("@rows@", "\n".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    data = watch.load()
    written = onesigma.export(model(data), folder, class_names=watch.CLASS_NAMES)
    print(written)
    (folder / "windows.h").write_text(header(windows(data)))
    for file in BOARD.iterdir():
        shutil.copy(file, folder)


if __name__ == "__main__":
    main()

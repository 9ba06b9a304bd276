"""Write everything the firmware with exits is built from into a folder.

    python prepare_exits.py build/exits

The network is that of ``prepare.py`` after ``onesigma.fit``: it takes raw sensor values. Its exits
are trained on the windows of one person, and may cost 5 % more wrong answers. The windows are of
others: some that leave early, and some that do not.
"""

import argparse
import shutil
from pathlib import Path

import torch
from prepare import header
from torch import Tensor

import onesigma
from onesigma.exporters.c import BOARD
from onesigma.lab.datasets import watch
from onesigma.lab.datasets.split import Splits
from onesigma.lab.demo.figures import raw
from onesigma.lab.demo.playback import FITTED

EACH = 2  # windows for each exit


def model(data: Splits) -> onesigma.EarlyExit:
    labelled = raw(data, data.validation.inputs), data.validation.labels
    ready = onesigma.load(FITTED)
    return onesigma.early_exit(ready, labelled=labelled, at=[0.1, 0.5], excess_risk=0.05)


@torch.no_grad()
def windows(exits: onesigma.EarlyExit, data: Splits) -> dict[str, Tensor]:
    """A few that leave at each exit, of those that somebody recorded."""
    inputs = raw(data, data.test.inputs)
    left, found = exits(inputs).exit, dict[str, Tensor]()
    for place in range(len(exits.costs)):
        for row in torch.nonzero(left == place).flatten()[:EACH].tolist():
            name = watch.CLASS_NAMES[int(data.test.labels[row])]
            found[f"window {row}, {name}"] = inputs[row]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    folder.parent.mkdir(exist_ok=True)
    data = watch.load()
    exits = model(data)
    print(onesigma.export(exits, folder, class_names=watch.CLASS_NAMES), exits.rule, sep="\n")
    (folder / "windows.h").write_text(header(windows(exits, data)))
    for file in BOARD.iterdir():
        shutil.copy(file, folder)


if __name__ == "__main__":
    main()

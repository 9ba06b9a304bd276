"""What to keep of a run: ``python -m onesigma.lab.paper.publish OUT docs/results --asset ZIP``.

The repository keeps one page for all tasks, README.md, and the pictures on it. All else that
``onesigma reproduce`` wrote, except networks and trials, goes to the asset of a release. The part
of the README below MARKER is written anew; what a person wrote above it is kept.
"""

from __future__ import annotations

import argparse
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from onesigma.errors import InputError
from onesigma.lab.paper import pictures, tables
from onesigma.lab.paper.results_page import TITLES, command, duration
from onesigma.lab.paper.summary import Goal, Result, goals, tally
from onesigma.lab.paper.trial import read_json
from onesigma.storage.atomic import replacing, write_text

MARKER = "<!-- Written by onesigma.lab.paper.publish from here on. -->"
# The pictures on the page, and what they show.
SHOWN = {"noise": "As the noise grows", "foreign": "Spotting foreign input"}
FILES = (tables.RESULTS, "results.txt", "table1.csv", "labelled.csv", "foreign.csv", "goals.csv")


def publish(output: Path, folder: Path, asset: Path | None = None) -> list[Path]:
    """Write the page of the full runs in `output` to `folder`, and the asset if it is named.

    Returns:
        The files written.

    Raises:
        InputError: there is no finished full run in `output`.
    """
    found = [task for task in TITLES if (output / task / tables.RESULTS).is_file()]
    if not found:
        raise InputError(f"No finished run in {output}: run onesigma reproduce first.")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for task in found:
        for name in SHOWN:
            written.append(folder / f"{task}-{name}.png")
            with replacing(written[-1]) as temporary:
                shutil.copyfile(output / task / f"{name}.png", temporary)
    readme = folder / "README.md"
    above = readme.read_text(encoding="utf-8") if readme.is_file() else "# Results\n\n"
    results = [read_json(output / task / tables.RESULTS) for task in found]
    write_text(readme, above.split(MARKER)[0] + MARKER + "\n\n" + markdown(results))
    if asset is not None:
        _pack(output, found, asset)
        written.append(asset)
    return [readme, *written]


def _pack(output: Path, tasks: Sequence[str], asset: Path) -> None:
    """Tables, figures and reports; networks and single answers stay."""
    figures = [f"{name}.{kind}" for name in pictures.CAPTIONS for kind in ("png", "svg")]
    names = [Path(task) / name for task in tasks for name in (*FILES, *figures)]
    reports = [Path("report.html"), *(Path(f"report-{task}.html") for task in tasks)]
    with replacing(asset) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_LZMA) as file:
        for name in [*names, *(report for report in reports if (output / report).is_file())]:
            file.write(output / name, name)


def markdown(results: Sequence[Result]) -> str:
    """The runs, the goals and the paper's table of each task."""
    return (
        "\n\n".join(
            ["## The runs", _runs(results), "## The goals", _goals(results)]
            + [part for result in results for part in _task(result)]
        )
        + "\n"
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def _runs(results: Sequence[Result]) -> str:
    rows = [
        ["task", "data", "train / validation / test", "trials, networks", "wall-clock", "command"]
    ]
    for result in results:
        sizes = " / ".join(f"{count:,}" for count in result["sizes"].values())
        pool = f"{result['plan']['trials']}, {result['plan']['members']}"
        time = duration(result["about"]["seconds of this run"])
        name = result["task"]
        rows.append([name, result["data"], sizes, pool, time, f"`{command(result)}`"])
    about = results[0]["about"]
    versions = ", ".join(f"{key} {about[key]}" for key in ("onesigma", "torch", "numpy", "python"))
    seeds = "Noise and masks have the seed that the command names, else 0; network i has seed i."
    return f"{_table(rows)}\n\n{versions}; {about['machine']}. {seeds}"


def _goals(results: Sequence[Result]) -> str:
    """Per goal and task, on how many of the inputs it holds."""
    found = [goals(result) for result in results]
    kinds = list(dict.fromkeys(_kind(goal) for each in found for goal in each))
    rows = [["input", "goal for ours", "compared with", *(result["task"] for result in results)]]
    for kind in kinds:
        of_kind = ([goal.holds for goal in each if _kind(goal) == kind] for each in found)
        rows.append([*kind, *(f"{holds.count(True)} of {len(holds)}" for holds in of_kind)])
    rows.append(["**all**", "", "", *(f"**{tally(each)}**" for each in found)])
    return _table(rows)


def _kind(goal: Goal) -> tuple[str, str, str]:
    return goal.part, goal.claim, goal.rival.split(",")[0]


def _task(result: Result) -> Iterator[str]:
    name, data = result["task"], result["data"]
    yield f"## {TITLES[name]}: {data}"
    yield " ".join(tables.header(result))
    head, *rows = tables.table_1(result)
    yield _table([["clean test input", *head[2:]], *([row[0], *row[2:]] for row in rows)])
    for picture, caption in SHOWN.items():
        yield f"![{caption}]({name}-{picture}.png)"
    lines = [[goal.verdict, *tables.goal_cells(goal)] for goal in goals(result)]
    yield _table([["verdict", *tables.GOAL_COLUMNS], *lines])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="onesigma.lab.paper.publish", description=__doc__)
    parser.add_argument("output", type=Path, help="the folder that onesigma reproduce wrote to")
    parser.add_argument("folder", type=Path, help="where the page goes")
    parser.add_argument("--asset", type=Path, help="pack everything else to this .zip file")
    options = parser.parse_args(arguments)
    for path in publish(options.output, options.folder, options.asset):
        print(path)


if __name__ == "__main__":
    main()

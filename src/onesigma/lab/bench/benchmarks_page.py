"""Measure all that docs/benchmarks.md says and write its tables anew: one command, an idle machine.

    python -m onesigma.lab.bench.benchmarks_page --data-root ../shared/data

What is between `<!-- name -->` and `<!-- end -->` on that page was measured; the rest of it stays.
The figures are kept as JSON in the folder --output; with --only, a part of them is measured.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from onesigma.lab.bench.result import show_ratio
from onesigma.lab.bench.runtimes import runtime
from onesigma.storage.atomic import write_text

PAGE = Path("docs") / "benchmarks.md"  # in the checkout where this is run
Figures = dict[str, Any]


def commands(options: argparse.Namespace) -> dict[str, list[str]]:
    """What is run for each part; every one of them keeps its figures as JSON in the folder."""
    out: Path = options.output
    python, room = [sys.executable, "-m"], "onesigma.lab.bench"
    root = [] if options.data_root is None else ["--data-root", str(options.data_root)]
    main = "import sys; from onesigma.cli.main import main; sys.exit(main())"
    return {
        "overhead": [*python, f"{room}.overhead", *root, "--output", f"{out}/overhead.json"],
        "bench": [sys.executable, "-c", main, "bench", "--output", str(out)],
        "peers": [*python, f"{room}.peers", "--output", f"{out}/peers.json"],
    }


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def where(figures: Figures) -> str:
    machine = figures["machine"]
    versions = ", ".join(machine.get("runtimes", {}).values())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']:.1f} at the start"
        f"{'; ' * bool(versions)}{versions}."
    )


def overhead(figures: Figures) -> str:
    rows = [
        [
            runtime(row["runtime"]).title,
            row["form"].removeprefix("one pass, "),
            show_ratio(row["ratio"], row["noise"]),
            show_ratio(row["cpu_ratio"]),
            "" if row["bar"] is None else f"≤ {row['bar']:g}: {'yes' if row['met'] else '**no**'}",
            "" if row["mc30_over_this"] is None else f"{row['mc30_over_this']:.0f}×",
        ]
        for row in figures["ratios"]
    ]
    header = ("runtime", "form", "×", "cpu ×", "bar", "MC-30 over this")
    return f"{where(figures)}\n\n{table(header, rows)}"


def footprints(figures: Figures) -> str:
    rows = [
        [
            each["contender"],
            f"{each['file'] / 1e3:.0f}",
            f"{each['file_ratio']:.3f}",
            "–" if each["over_plain"] is None else f"{each['over_plain'] / 1e6:+.1f}",
        ]
        for each in figures["footprints"]
    ]
    return table(("ONNX Runtime", "file, kB", "× plain", "peak over plain, MB"), rows)


def fidelity(figures: Figures) -> str:
    """A column of divergences and one of spreads for each network."""
    found = figures.get("fidelity")
    if not found:
        return "Not measured."
    words = [f"{f['network']}: {f['inputs']} test inputs, noise {f['noise']:.5f}" for f in found]
    header = ["", *(f"{f['network']}, {what}" for f in found for what in ("KL", "std / MC std"))]
    rows = []
    for across in zip(*(f["rows"] for f in found), strict=True):
        ratios = ["" if r["std_ratio"] is None else f"{r['std_ratio']:.2f}" for r in across]
        cells = [c for r, s in zip(across, ratios, strict=True) for c in (f"{r['kl']:.4f}", s)]
        rows.append([across[0]["method"], *cells])
    return f"{'; '.join(words)}.\n\n{table(header, rows)}"


def profiles(figures: Figures) -> str:
    if not figures["profiles"]:
        return "No bar was missed."
    tables = []
    for name, ops in figures["profiles"].items():
        rows = [[op["op"], str(op["nodes"]), f"{op['microseconds']:.0f}"] for op in ops[:8]]
        tables.append(f"{name}:\n\n{table(('op', 'nodes', 'µs'), rows)}")
    return "\n\n".join(tables)


def bench(figures: Figures) -> str:
    """Ratios at batch 1 and one thread, a column per runtime."""
    rows = [row for row in figures["rows"] if (row["threads"], row["batch"]) == (1, 1)]
    names = list(dict.fromkeys(row["runtime"] for row in rows))
    found = {(row["contender"], row["runtime"]): row for row in rows}
    lines = []
    for contender in dict.fromkeys(row["contender"] for row in rows):
        cells = [found.get((contender, name)) for name in names]
        lines.append(
            [contender, *("–" if c is None else show_ratio(c["cpu_ratio"]) for c in cells)]
        )
    return f"{where(figures)}\n\n{table(('', *(runtime(n).title for n in names)), lines)}"


def batches(figures: Figures) -> str:
    """ONNX Runtime: a column for each number of threads and batch."""
    rows = [row for row in figures["rows"] if row["runtime"] == "onnxruntime"]
    settings = list(dict.fromkeys((row["threads"], row["batch"]) for row in rows))
    found = {(row["contender"], row["threads"], row["batch"]): row for row in rows}
    lines = []
    for contender in dict.fromkeys(row["contender"] for row in rows):
        cells = [found.get((contender, *each)) for each in settings]
        lines.append([contender, *("–" if c is None else show_ratio(c["ratio"]) for c in cells)])
    header = [f"threads {threads}, batch {batch}" for threads, batch in settings]
    return table(("", *header), lines)


def peers(figures: Figures) -> str:
    rows = [
        [name, f"{1e3 * row['p50']:.1f}", show_ratio(row["cpu_ratio"])]
        for name, row in figures["rows"].items()
    ]
    return f"{where(figures)}\n\n{table(('', 'ms (median)', 'cpu ×'), rows)}"


def read(folder: Path, name: str) -> Figures | None:
    """The figures of that name; of runs in other environments, in folders below, the rows too.

    ExecuTorch and LiteRT need environments of their own: `onesigma bench --output FOLDER/litert`
    there adds a column to the table of runtimes.
    """
    files = [folder / name, *sorted(folder.glob(f"*/{name}"))]
    found = [json.loads(file.read_text()) for file in files if file.is_file()]
    if not found:
        return None
    first: Figures = found[0]
    for other in found[1:]:
        first["rows"] += other["rows"]
        first["machine"]["runtimes"] |= other["machine"]["runtimes"]
    return first


# Section of the page → the file its figures are in, and how they are written.
SECTIONS: dict[str, tuple[str, Callable[[Figures], str]]] = {
    "overhead": ("overhead.json", overhead),
    "footprints": ("overhead.json", footprints),
    "fidelity": ("overhead.json", fidelity),
    "profiles": ("overhead.json", profiles),
    "bench": ("bench.json", bench),
    "batches": ("bench.json", batches),
    "peers": ("peers.json", peers),
}


def fill(page: str, folder: Path) -> str:
    """The page with every section anew whose figures are in the folder."""
    for name, (file, write) in SECTIONS.items():
        figures = read(folder, file)
        if figures is not None:
            section = f"<!-- {name} -->\n{write(figures)}\n<!-- end -->"
            pattern = rf"<!-- {name} -->.*?<!-- end -->"
            page, count = re.subn(pattern, lambda _: section, page, flags=re.DOTALL)  # noqa: B023
            if count != 1:
                raise ValueError(f"{PAGE.name} needs one section '{name}', it has {count}.")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, help="folder of the prepared datasets")
    parser.add_argument("--output", type=Path, default=Path("out") / "figures", metavar="FOLDER")
    parts = ("overhead", "bench", "peers")
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name, command in commands(options).items():
        if name in options.only:
            print(f"Measuring {name}", file=sys.stderr, flush=True)
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    write_text(PAGE, fill(PAGE.read_text(encoding="utf-8"), options.output))
    print(f"Written: {PAGE}")


if __name__ == "__main__":
    main()

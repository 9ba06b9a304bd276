"""Makes an environment for the peers and runs ``measure.py`` in it.

They need packages that must not come near the product's environment, so they get one of their own,
made here the first time (about 2 GB).

    python -m onesigma.lab.bench.peers --output out/peers.json
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

import onesigma

HERE = Path(__file__).resolve().parent


def make_environment(folder: Path) -> Path:
    """The Python of an environment with the peers; made anew if what it needs has changed."""
    requirements = HERE / "requirements.txt"
    stamp = folder / ".installed"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"Installing the peers in {folder}: some minutes.", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", str(requirements)], check=True)
        stamp.write_text(wanted)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environment", type=Path, default=Path("out") / "peers-venv")
    parser.add_argument("--repeats", type=int, default=100, help="rounds of timing")
    parser.add_argument("--output", type=Path, help="write the JSON there as well")
    options = parser.parse_args()
    command = [str(make_environment(options.environment)), str(HERE / "measure.py")]
    source = str(Path(onesigma.__file__).parents[1])
    paths = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [*command, "--repeats", str(options.repeats)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(found.stdout)
    print(found.stdout)


if __name__ == "__main__":
    main()

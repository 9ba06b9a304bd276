"""Write which packages are installed: an SBOM (CycloneDX 1.6) and a list of licences.

python tools/sbom.py FOLDER    writes FOLDER/sbom.cdx.json and FOLDER/licences.csv
"""

import csv
import json
import sys
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageMetadata, distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
UNKNOWN = "UNKNOWN"
LONGEST = 80  # characters; some packages put the whole text of their licence into the field


def pins(text: str) -> dict[str, str]:
    """The pinned version of each package."""
    lines = [line.split("==") for line in text.splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in lines}


def installed(pinned: dict[str, str]) -> dict[str, Distribution]:
    """Every package of this environment, pinned or not, without ourselves.

    Exits if another version is installed than the pinned one: make setup did not make this.
    """
    found: dict[str, Distribution] = {
        canonicalize_name(each.name): each for each in distributions()
    }
    for name in pinned.keys() & found:
        version = found[name].version.split("+")[0]  # torch 2.13.0+cpu is a build of 2.13.0
        if version != pinned[name]:
            sys.exit(f"{name} {version} is installed, {pinned[name]} is pinned: run make setup.")
    return {name: found[name] for name in sorted(found.keys() - {"onesigma"})}


def licence(metadata: PackageMetadata) -> str:
    """As the package states it: an SPDX expression, a short text, or its classifiers."""
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    text = metadata["License"].strip() if "License" in metadata else ""
    if text and text.upper() != UNKNOWN and "\n" not in text and len(text) <= LONGEST:
        return text
    classifiers = metadata.get_all("Classifier") or []
    stated = [each.split(" :: ")[-1] for each in classifiers if each.startswith("License :: ")]
    return " and ".join(stated) or UNKNOWN


def component(name: str, package: Distribution) -> dict[str, Any]:
    stated = licence(package.metadata)
    is_expression = "License-Expression" in package.metadata
    return {
        "type": "library",
        "bom-ref": reference(name, package.version),
        "name": name,
        "version": package.version,
        "purl": reference(name, package.version),
        "licenses": [{"expression": stated} if is_expression else {"license": {"name": stated}}],
    }


def reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version.replace('+', '%2B')}"


def needs(package: Distribution) -> set[str]:
    """The packages that it needs on this machine, without its extras."""
    wanted = [Requirement(text) for text in package.requires or ()]
    here = [each for each in wanted if not each.marker or each.marker.evaluate({"extra": ""})]
    return {canonicalize_name(each.name) for each in here}


def bom(packages: dict[str, Distribution], root: Distribution) -> dict[str, Any]:
    everything = packages | {"onesigma": root}
    refs = {name: reference(name, package.version) for name, package in everything.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": component("onesigma", root),
        },
        "components": [component(name, package) for name, package in packages.items()],
        "dependencies": [
            {"ref": refs[name], "dependsOn": [refs[n] for n in sorted(needs(p) & refs.keys())]}
            for name, p in everything.items()
        ],
    }


def write(folder: Path, packages: dict[str, Distribution]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(bom(packages, distribution("onesigma")), indent=2) + "\n"
    (folder / "sbom.cdx.json").write_text(text, encoding="utf-8")
    with (folder / "licences.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(("name", "version", "licence"))
        table.writerows((n, p.version, licence(p.metadata)) for n, p in packages.items())


def say(packages: dict[str, Distribution], pinned: dict[str, str]) -> None:
    print(f"{len(packages)} packages.")
    unknown = [name for name, package in packages.items() if licence(package.metadata) == UNKNOWN]
    for names, what in (
        (unknown, "UNKNOWN licence, read it yourself"),
        (packages.keys() - pinned, "Installed but NOT pinned, listed"),
        (pinned.keys() - packages, "Pinned but NOT installed, so not listed"),
    ):
        if names:
            print(f"{what}: {', '.join(sorted(names))}.")


if __name__ == "__main__":
    pinned = pins(CONSTRAINTS.read_text(encoding="utf-8"))
    packages = installed(pinned)
    write(Path(sys.argv[1]), packages)
    say(packages, pinned)

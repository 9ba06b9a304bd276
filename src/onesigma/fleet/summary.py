"""``Summary``: a fleet in a few figures, recording by recording, with all that went wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from onesigma.answer import BROKEN, UNFAMILIAR, UNSURE
from onesigma.errors import DataError
from onesigma.fleet.job import FALSE_ALARMS, Course, Outcome
from onesigma.text_table import printable, text_table

_RATE = 0.1  # more of the usual rate is another one
_SHOWN = 20  # recordings in the printed table


@dataclass(frozen=True)
class Summary:
    """What came of a job.

    Attributes:
        parts: how many there are.
        skipped: how many of them an earlier run had done.
        failed: the parts that were not scored, and why.
        group_by: what tells recordings apart.
        devices: the recordings, the oddest first.
    """

    parts: int
    skipped: int
    failed: Mapping[str, str]
    group_by: tuple[str, ...]
    devices: Sequence[Course]

    @staticmethod
    def of(outcomes: Iterable[Outcome], group_by: tuple[str, ...]) -> Summary:
        found = sorted(outcomes, key=lambda each: each.part)
        courses: dict[tuple[str, ...], list[Course]] = {}
        for outcome in found:
            for course in outcome.courses:
                courses.setdefault(course.key, []).append(course)
        devices = [Course.join(each) for each in courses.values()]
        return Summary(
            len(found),
            sum(each.skipped for each in found),
            {each.part: each.error for each in found if each.error},
            group_by,
            sorted(devices, key=_oddness),
        )

    @property
    def windows(self) -> int:
        return sum(device.windows for device in self.devices)

    @property
    def reasons(self) -> dict[str, float]:
        """The share of each, the commonest first."""
        counts: Counter[str] = Counter()
        for device in self.devices:
            counts.update(device.reasons)
        return {name: count / self.windows for name, count in counts.most_common() if name}

    @property
    def coverage(self) -> float | None:
        """The share of windows acted on."""
        known = [each for each in self.devices if each.acted is not None]
        windows = sum(each.windows for each in known)
        return sum(each.acted or 0 for each in known) / windows if windows else None

    @property
    def drifting(self) -> list[Course]:
        return [device for device in self.devices if device.alarms]

    @property
    def usual_rate(self) -> float | None:
        rates = [device.rate for device in self.devices if device.rate is not None]
        return median(rates) if rates else None

    @property
    def remarks(self) -> list[str]:
        """What a person should look at, a sentence each."""
        found = [f"{part} was not scored: {error}" for part, error in self.failed.items()]
        usual = self.usual_rate
        for device in self.devices:
            if device.alarms:
                found.append(f"{device.name} drifts since {device.drift_at}.")
            if usual and device.rate and abs(device.rate / usual - 1) > _RATE:
                rate = f"{device.rate:.3g} rows per second, most have {usual:.3g}"
                found.append(f"{device.name} has another rate: {rate}.")
            if device.backwards:
                many = count(device.backwards, "time")
                found.append(f"{device.name}: time does not go on, {many}; no window crosses that.")
            if not device.windows:
                found.append(
                    f"{device.name} has no window: {device.rows} rows, {device.gaps} gaps."
                )
        return found

    @property
    def verdict(self) -> str:
        """One line."""
        acts = "" if self.coverage is None else f", acts on {100 * self.coverage:.1f} %"
        odd = [f"{name} {100 * self.reasons.get(name, 0):.1f} %" for name in (UNFAMILIAR, BROKEN)]
        many = count(len(self.devices), "recording")
        drift = f"; {len(self.drifting)} of them drift" if self.drifting else ""
        lost = (
            f"; {len(self.failed)} of {count(self.parts, 'part')} not scored" if self.failed else ""
        )
        return f"{count(self.windows, 'window')} of {many}{acts}; {', '.join(odd)}{drift}{lost}"

    @property
    def guarantee(self) -> str:
        """What an alarm means."""
        return (
            "Drift is an alarm of the monitor, which looks at novelty, for each recording anew in "
            "every part. On windows that are independent and like the known ones there is on "
            f"average at most one false alarm in {1 / FALSE_ALARMS:,.0f} windows. Neighbours are "
            "alike, so there are more; sort by it, and look."
        )

    def require_all(self) -> None:
        """Raise if a part was not scored.

        Raises:
            DataError: names the first ones, and why.
        """
        if self.failed:
            first = "\n  ".join(f"{part}: {error}" for part, error in [*self.failed.items()][:5])
            more = f"\n  and {len(self.failed) - 5} more" if len(self.failed) > 5 else ""
            raise DataError(
                f"{len(self.failed)} of {count(self.parts, 'part')} not scored; the others were. "
                f"Mend these and start again, which skips what is done:\n  {first}{more}"
            )

    def to_dict(self) -> dict[str, Any]:
        devices = [
            vars(each) | {"key": dict(zip(self.group_by, each.key, strict=True))}
            for each in self.devices
        ]
        return {
            "parts": self.parts,
            "skipped": self.skipped,
            "windows": self.windows,
            "coverage": self.coverage,
            "reasons": self.reasons,
            "failed": dict(self.failed),
            "remarks": self.remarks,
            "devices": devices,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1)

    def table(self, devices: Sequence[Course]) -> tuple[list[str], list[list[str]]]:
        """Head and rows of a table of recordings."""
        head = [", ".join(self.group_by) or "recording", "windows", "acted on", UNSURE, UNFAMILIAR]
        head += [BROKEN, "gaps", "rate", "drift"]
        rows = []
        for each in devices:
            shares = [None if each.acted is None else each.acted / max(1, each.windows)]
            shares += [each.share(reason) for reason in (UNSURE, UNFAMILIAR, BROKEN)]
            cells = ["" if share is None else f"{100 * share:.1f} %" for share in shares]
            rate = "" if each.rate is None else f"{each.rate:.3g} Hz"
            drift = "" if not each.alarms else f"since {each.drift_at}"
            rows.append([each.name, str(each.windows), *cells, str(each.gaps), rate, drift])
        return head, rows

    def __str__(self) -> str:
        head, rows = self.table(self.devices[:_SHOWN])
        more = len(self.devices) - _SHOWN
        text = f"{self.verdict}\n\n{text_table(head, rows, numbers=True)}"
        text += f"\n… and {more} more" if more > 0 else ""
        return text + "".join(f"\n! {printable(remark)}" for remark in self.remarks[:_SHOWN])


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"


def _oddness(device: Course) -> tuple[Any, ...]:
    """The oddest first."""
    odd = device.share(BROKEN) + device.share(UNFAMILIAR)
    return not device.alarms, -odd, device.key

"""The report: per node, the rule used, whether it is exact there, and what it assumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import fx

from onesigma.graph.capture import rate_of
from onesigma.graph.flow import Flow, Step, adds_noise
from onesigma.graph.locate import module_path, op_name, source_line
from onesigma.rules.table import RULES, RuleTable
from onesigma.text_table import printable, text_table

SILENT = (
    "WARNING: every dropout has the rate p = 0, so there is no uncertainty: the variance is 0. Set "
    "p to the rate of the training."
)


@dataclass(frozen=True)
class Site:
    """One dropout: where it is and how much it drops."""

    node: str
    op: str
    module: str
    source: str
    rate: float


@dataclass(frozen=True)
class Entry:
    """One op. ``status`` is certain, noise, exact or approximate; ``note`` says why."""

    node: str
    op: str
    module: str
    source: str
    rule: str
    status: str
    note: str


@dataclass(frozen=True)
class Closeness:
    """How close a form is to Monte Carlo on held-out inputs of one kind, clean or corrupted.

    Attributes:
        kind: clean, or the name of the corruption.
        kl: distance of its probabilities to those of Monte Carlo, in nats.
        passes: how many passes of Monte Carlo are as close.
        error: the standard error of ``passes``, over the inputs.
        std_ratio: its standard deviation of the logits over Monte Carlo's, median.
    """

    kind: str
    kl: float
    passes: float
    error: float
    std_ratio: float


@dataclass(frozen=True)
class Candidate:
    """A form that ``fit`` tried; ``cost`` is its time over the plain network's, in PyTorch."""

    form: str
    cost: float
    kinds: tuple[Closeness, ...]
    chosen: bool = False

    @property
    def worst(self) -> Closeness:
        """The kind of input on which it is worth fewest passes."""
        return min(self.kinds, key=lambda each: each.passes)

    def is_worth(self, passes: int, errors: float = 0) -> bool:
        """Whether it is as close as so many passes on each kind, by so many standard errors."""
        return all(each.passes - errors * each.error >= passes for each in self.kinds)

    @staticmethod
    def from_dict(content: dict[str, Any]) -> Candidate:
        kinds = tuple(Closeness(**each) for each in content["kinds"])
        return Candidate(**{**content, "kinds": kinds})


@dataclass(frozen=True)
class Report:
    """What conversion did. Print it, or take it as a dict.

    Attributes:
        sites: where noise comes in.
        entries: each op with its rule, and whether that is exact there.
        notes: what else there is to know; ``calibrate`` adds what it chose, and what that brought.
        candidates: the forms that ``fit`` tried, the cheapest first.
    """

    sites: tuple[Site, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]
    candidates: tuple[Candidate, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(content: dict[str, Any]) -> Report:
        return Report(
            tuple(Site(**site) for site in content["sites"]),
            tuple(Entry(**entry) for entry in content["entries"]),
            tuple(content["notes"]),
            tuple(Candidate.from_dict(each) for each in content.get("candidates", ())),
        )

    def with_head(self, form: str, note: str) -> Report:
        """Behind ops that run as in the plain network, a head that is approximate as a whole."""
        head = Entry("head", "head", "head", "", form, "approximate", note)
        return replace(self, entries=(*self.entries, head))

    @property
    def is_silent(self) -> bool:
        """Whether there is dropout, and all of its rates are 0."""
        return SILENT in self.notes

    @property
    def approximate(self) -> tuple[Entry, ...]:
        return tuple(e for e in self.entries if e.status == "approximate")

    def __str__(self) -> str:
        uncertain = [e for e in self.entries if e.status != "certain"]
        counts = [f"{len(self.sites)} noise sites", f"{len(self.entries)} ops"]
        counts += [
            f"{sum(e.status == status for e in self.entries)} {status}"
            for status in ("certain", "exact", "approximate")
        ]
        rows = [(e.module or e.node, e.source, e.op, e.rule, e.status, e.note) for e in uncertain]
        text = ["onesigma report: " + ", ".join(counts), ""]
        text.append(text_table(("where", "source", "op", "rule", "status", "why"), rows))
        if self.candidates:
            text += ["", _candidate_table(self.candidates)]
        if self.notes:
            text += ["", *(f"note: {note}" for note in self.notes)]
        return printable("\n".join(text))


def _candidate_table(candidates: Sequence[Candidate]) -> str:
    """Each form on each kind of input: how far from Monte Carlo, and how many passes that is."""
    kinds = [each.kind for each in candidates[0].kinds]
    header = ("form", "cost", *(f"{kind}: KL (passes)" for kind in kinds), "std ratio, clean")
    rows = [
        (
            f"{each.form}{' (chosen)' if each.chosen else ''}",
            f"{each.cost:.2f}×",
            *(f"{kind.kl:.4f} ({kind.passes:.0f} ± {kind.error:.0f})" for kind in each.kinds),
            f"{each.kinds[0].std_ratio:.2f}",
        )
        for each in candidates
    ]
    return text_table(header, rows)


def make_report(
    module: fx.GraphModule, flow: Flow, rules: RuleTable, notes: Sequence[str]
) -> Report:
    """The report of a network through which the noise was followed."""
    sites, entries = [], []
    for node in module.graph.nodes:
        if node.op != "call_function" or "val" not in node.meta:
            continue
        place = (node.name, op_name(node), module_path(node), source_line(node))
        rule = rules.get(node.target)
        if rule is not None and rule.adds_noise:
            sites.append(Site(*place, rate_of(node)))
        step = flow.steps.get(node)
        if step is None:
            entries.append(Entry(*place, rule="", status="certain", note=""))
        else:
            entries.append(_entry(place, step, adds_noise(node, rules)))
    unused = [f"{s.module or s.node}: rate 0, adds no noise" for s in sites if s.rate == 0]
    if len(unused) == len(sites) > 0:
        unused.append(SILENT)
    return Report(tuple(sites), tuple(entries), (*notes, *unused))


def plain_report(module: fx.GraphModule, notes: Sequence[str]) -> Report:
    """Of a network whose ops run as they are: only its noise sites are told apart."""
    report = make_report(module, Flow(), RULES, notes)
    rates = {site.node: site.rate for site in report.sites}
    entries = [
        replace(each, status="noise", note=f"p = {rates[each.node]:g}")
        if rates.get(each.node)
        else each
        for each in report.entries
    ]
    return replace(report, entries=tuple(entries))


def _entry(place: tuple[str, str, str, str], step: Step, source: bool) -> Entry:
    rule = step.rule
    assert rule is not None
    if source:
        rate = f"p = {rate_of(step.node):g}"
        return Entry(*place, rule.family, "noise", _sentence(rate, rule.note))
    assumed = [f"assumes {a.value}" for a in step.broken if a.value]
    if step.broken:
        return Entry(*place, rule.family, "approximate", _sentence(*assumed, rule.note))
    method = rule.note if rule.bends else ""
    return Entry(*place, rule.family, "exact", method)


def _sentence(*parts: str) -> str:
    return "; ".join(part for part in parts if part)

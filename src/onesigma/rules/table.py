"""The one table of rules, and the few words it is written in.

A rule has the signature of its op; where the op takes a ``Tensor``, the rule may meet a
``Gaussian``. It returns what the op returns, made of ordinary torch ops, so that every target
gets it for free. Pick a family before you write a function:

    passthrough(op, …)          moves elements around: mean and var move alike
    linear(op, …)               op(m, w, b) and op(v, w², no bias)
    elementwise(op, moments)    a function of each element alone
    composed(op, function)      by simpler ops, each with its own rule
    refuse(op, why)             no honest rule exists; say what to do instead
    @rule(op, …)                anything else
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeVar

from torch import Tensor

from onesigma.values.gaussian import Gaussian

Op: TypeAlias = Callable[..., Any]
RuleFunction: TypeAlias = Callable[..., Any]
RuleT = TypeVar("RuleT", bound=Callable[..., Any])
MomentFunction: TypeAlias = Callable[..., tuple[Tensor, Tensor]]


class Assumption(Enum):
    """What must hold of an input for a rule to be exact."""

    INDEPENDENT = "elements independent of each other"
    NORMAL = "input normally distributed"
    SEPARATE = "inputs share no noise"
    ALWAYS_APPROXIMATE = ""


INDEPENDENT, NORMAL = Assumption.INDEPENDENT, Assumption.NORMAL
SEPARATE, ALWAYS_APPROXIMATE = Assumption.SEPARATE, Assumption.ALWAYS_APPROXIMATE


@dataclass(frozen=True)
class Rule:
    """How one op treats uncertain inputs.

    Attributes:
        function: called like the op.
        family: the word it was registered by.
        assumes: what makes it exact; with ``ALWAYS_APPROXIMATE`` in it, nothing does.
        note: how it approximates, or why it refuses.
        source: True if it makes uncertain what was certain (dropout).
        shared: True if elements of its output share noise (channel dropout, copies).
    """

    function: RuleFunction
    family: str
    assumes: frozenset[Assumption] = frozenset()
    note: str = ""
    source: bool = False
    shared: bool = False

    @property
    def refuses(self) -> bool:
        return self.family == "refuse"


RuleTable: TypeAlias = Mapping[Op, Rule]
RULES: dict[Op, Rule] = {}


def register(op: Op, rule: Rule, *, replace: bool = False) -> None:
    """Put a rule into the table. A second rule for an op is an error unless it says so."""
    if op in RULES and not replace:
        raise ValueError(f"{op} has a rule already; pass replace=True to put yours in its place.")
    RULES[op] = rule


def rule(
    *ops: Op,
    family: str = "own",
    assumes: tuple[Assumption, ...] = (),
    note: str = "",
    source: bool = False,
    shared: bool = False,
    replace: bool = False,
) -> Callable[[RuleT], RuleT]:
    """Register the decorated function as the rule of one or more ops.

    The function has the op's own signature. Where the op takes a tensor it may be handed a
    ``Gaussian`` (fields ``mean`` and ``var``), and it is called only if at least one is.

    Args:
        ops: torch ops as they appear in exported graphs, e.g. ``torch.ops.aten.sin.default``.
        family: the word the report shows for it.
        assumes: what makes the rule exact (see ``Assumption``); shown in the report.
        note: one line for the report: how the rule approximates.
        source: the op makes certain input uncertain, so call the rule for certain input too.
        shared: neighbouring elements share the noise it adds (channel dropout).
        replace: put this rule in the place of an existing one.

    Example:
        >>> @onesigma.rule(torch.ops.aten.sin.default, note="first order")
        ... def sin(x):
        ...     return onesigma.Gaussian(torch.sin(x.mean), torch.cos(x.mean) ** 2 * x.var)
    """

    def add(function: RuleT) -> RuleT:
        entry = Rule(function, family, frozenset(assumes), note, source, shared)
        for op in ops:
            register(op, entry, replace=replace)
        return function

    return add


def passthrough(*ops: Op, copies: bool = False) -> None:
    """Ops that only move, copy or drop elements: the same op on mean and on var. Exact."""
    for op in ops:
        register(op, Rule(_passthrough(op), "passthrough", shared=copies))


def _passthrough(op: Op) -> RuleFunction:
    def apply(x: Gaussian, *args: Any, **kwargs: Any) -> Any:
        full = x.expanded()
        return pair(op(full.mean, *args, **kwargs), op(full.var, *args, **kwargs))

    return apply


def pair(mean: Any, var: Any) -> Any:
    """Zip the results of an op on means and on variances; split and chunk return lists."""
    if isinstance(mean, list | tuple):
        return [Gaussian(m, v) for m, v in zip(mean, var, strict=True)]
    return Gaussian(mean, var)


def linear(*ops: Op, weight: int = 1, bias: int | None = 2) -> None:
    """Ops linear in their first argument, with explicit weights.

        E[y] = op(m, w, b),   Var[y] = op(v, w², no bias)
    Exact if the elements of the input are independent. v → 0 gives op(m), 0.
    """
    for op in ops:
        entry = Rule(_linear(op, weight, bias), "linear", frozenset({INDEPENDENT}))
        register(op, entry)


def _linear(op: Op, weight: int, bias: int | None) -> RuleFunction:
    def apply(x: Gaussian, *rest: Any, **kwargs: Any) -> Gaussian:
        squared = [x.var, *rest]
        squared[weight] = squared[weight] * squared[weight]
        if bias is not None and len(squared) > bias:
            squared[bias] = None
        return Gaussian(op(x.mean, *rest, **kwargs), op(*squared, **kwargs))

    return apply


def elementwise(op: Op, moments: MomentFunction, *, note: str = "closed form") -> None:
    """A non-linear function of each element alone.

    ``moments(op, mean, var, *args)`` returns the output's mean and variance for a normal input.
    """

    def apply(x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
        return Gaussian(*moments(op, x.mean, x.var, *args, **kwargs))

    register(op, Rule(apply, "elementwise", frozenset({NORMAL}), note))


def composed(op: Op, function: RuleFunction, *, assumes: tuple[Assumption, ...] = ()) -> None:
    """An op written by other rules."""
    register(op, Rule(function, "composed", frozenset(assumes)))


def refuse(*ops: Op, why: str) -> None:
    """Ops for which no honest rule is known. Conversion stops and shows ``why``."""

    def stop(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("the engine refuses before it calls")

    for op in ops:
        register(op, Rule(stop, "refuse", note=why))

"""The one table of rules, and the few words it is written in.

A rule has the signature of its op; where the op takes a ``Tensor``, the rule may meet an
``Uncertain`` value. It returns what the op returns, made of ordinary torch ops, so that every
target gets it free. Pick a family before you write a function:

    passthrough(op, …)          moves elements around: mean and var move alike
    linear(op, …)               op(m, w, b) and op(v, w², no bias)
    elementwise(op, moments)    a function of each element alone
    refuse(op, why)             no honest rule exists; say what to do instead
    @rule(op, …)                anything else
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

from torch import Tensor

from onesigma.errors import UnsupportedOp
from onesigma.registry import Registry
from onesigma.rules.corrections import Correction, Gain, constant
from onesigma.values.gaussian import Gaussian, Uncertain

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


class Reach(Enum):
    """Which elements of the input an element of the output depends on."""

    EACH = "the one at its own place"
    MOVES = "one, and no other output depends on that one"
    COPIES = "one, which other outputs may depend on too"
    GROUPS = "a group of its own"
    MIXES = "any"


# Where it depends on the arguments: called with those of the op, tensors without their values.
ReachFunction: TypeAlias = Callable[..., Reach]


@dataclass(frozen=True)
class Rule:
    """How one op treats uncertain inputs. Passes and calibration ask for its traits.

    Attributes:
        function: called like the op; None refuses it.
        family: the word it was registered by, for the report. Nothing decides by it.
        assumes: what makes it exact; with ``ALWAYS_APPROXIMATE`` in it, nothing does.
        note: how it approximates, or why it refuses.
        accepts: the kinds of correction that it can be given, in the order they are fitted.
        adds_noise: it makes uncertain what was certain (dropout).
        two_valued: of a certain input it makes one of two values, element by element.
        reach: which input elements an output element depends on. ``MIXES`` is always true, and
            proves nothing.
        moves_only: it only moves, copies or drops elements.
        certain: its output depends on the shape of its input alone.
        linear_in_variance: op(v, w²) with the weight as second argument.
        bends: it is not linear: what is normal comes out not normal.
        multiplies: two uncertain inputs are multiplied, which bends too.
        is_maximum: the largest of several members.
        same_twice: it stays exact if both inputs are one and the same value.
    """

    function: RuleFunction | None
    family: str
    assumes: frozenset[Assumption] = frozenset()
    note: str = ""
    accepts: tuple[type[Correction], ...] = ()
    reach: Reach | ReachFunction = Reach.MIXES
    adds_noise: bool = False
    two_valued: bool = False
    moves_only: bool = False
    certain: bool = False
    linear_in_variance: bool = False
    bends: bool = False
    multiplies: bool = False
    is_maximum: bool = False
    same_twice: bool = False

    def reach_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Reach:
        return self.reach if isinstance(self.reach, Reach) else self.reach(*args, **kwargs)

    @property
    def refuses(self) -> bool:
        return self.function is None

    def apply(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        corrections: tuple[Correction, ...] = (),
    ) -> Any:
        """Call the function; corrections are keywords, and a gain multiplies the variance."""
        if self.function is None:
            raise UnsupportedOp(self.note)
        keywords = {each.keyword: each for each in corrections if each.keyword}
        try:
            value = self.function(*args, **kwargs, **keywords)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError) as error:
            raise UnsupportedOp(
                f"its rule does not take these arguments ({' '.join(str(error).split())[:80]}). "
                "Often something other than its first input is uncertain, a weight or a condition: "
                "keep dropout off that, or add a rule of your own (rules/README.md)."
            ) from error
        for each in corrections:
            if isinstance(each, Gain) and isinstance(value, Uncertain):
                value = value.scaled(constant(each.factor, value.mean), value.mean)
        return value


# Asked for the target of any node of a graph: what is no op has no rule.
RuleTable: TypeAlias = Mapping[Any, Rule]
RULES: Registry[Any, Rule] = Registry()


class RuleOptions(TypedDict, total=False):
    """Fields of ``Rule`` that ``rule`` takes as keywords."""

    family: str
    assumes: tuple[Assumption, ...]
    note: str
    accepts: tuple[type[Correction], ...]
    reach: Reach | ReachFunction
    adds_noise: bool
    two_valued: bool
    moves_only: bool
    bends: bool
    multiplies: bool
    is_maximum: bool
    same_twice: bool


def rule(
    *ops: Op, replace: bool = False, **options: Unpack[RuleOptions]
) -> Callable[[RuleT], RuleT]:
    """Register the decorated function as the rule of one or more ops.

    The function has the op's own signature. Where the op takes a tensor it may get an uncertain
    value (``mean`` and ``var``), and it is called only if at least one input is uncertain.

    Args:
        ops: torch ops as they appear in exported graphs, e.g. ``torch.ops.aten.sinh.default``.
        replace: put this rule in the place of an existing one.
        options: what else is known of it, by the names of ``Rule``'s attributes: ``assumes`` what
            makes it exact, a ``note`` for the report, ``bends=True`` if it is not linear,
            ``reach`` which input elements an output element depends on. What is not said cannot
            be proved, and the report then calls what follows approximate.

    Example:
        >>> @onesigma.rule(torch.ops.aten.sinh.default, note="first order", bends=True)
        ... def sinh(x):
        ...     return onesigma.Gaussian(torch.sinh(x.mean), torch.cosh(x.mean) ** 2 * x.var)
    """
    given: dict[str, Any] = {"family": "own", **options}
    given["assumes"] = frozenset(given.get("assumes", ()))

    def register(function: RuleT) -> RuleT:
        RULES.add(*ops, replace=replace)(Rule(function, **given))
        return function

    return register


def passthrough(*ops: Op, copies: bool = False) -> None:
    """Ops that only move, copy or drop elements: the same op on mean and on var. Exact."""
    for op in ops:
        reach = Reach.COPIES if copies else Reach.MOVES
        RULES.add(op)(Rule(_passthrough(op), "passthrough", reach=reach, moves_only=True))


def _passthrough(op: Op) -> RuleFunction:
    def apply(x: Uncertain, *args: Any, **kwargs: Any) -> Any:
        full = x.expanded()
        mean, var = op(full.mean, *args, **kwargs), op(full.var, *args, **kwargs)
        if isinstance(mean, list | tuple):  # split and chunk return lists
            return [Gaussian(m, v) for m, v in zip(mean, var, strict=True)]
        return Gaussian(mean, var)

    return apply


def linear(*ops: Op) -> None:
    """Ops linear in their first argument, whose weight and bias come next.

        E[y] = op(m, w, b),   Var[y] = op(v, w², no bias)
    Exact if the elements of the input are independent. v → 0 gives op(m), 0.
    """
    for op in ops:
        RULES.add(op)(linear_rule(_linear(op), linear_in_variance=True))


def linear_rule(
    function: RuleFunction,
    *,
    reach: Reach | ReachFunction = Reach.MIXES,
    linear_in_variance: bool = False,
) -> Rule:
    """A sum of elements with fixed weights: it takes them as independent, and a gain mends that."""
    return Rule(
        function,
        "linear",
        frozenset({INDEPENDENT}),
        accepts=(Gain,),
        reach=reach,
        linear_in_variance=linear_in_variance,
    )


def _linear(op: Op) -> RuleFunction:
    def apply(x: Uncertain, weight: Tensor, *rest: Any, **kwargs: Any) -> Gaussian:
        squared, unbiased = weight * weight, (None, *rest[1:])[: len(rest)]
        mean = op(x.mean, weight, *rest, **kwargs)
        return Gaussian(mean, op(x.var, squared, *unbiased, **kwargs))

    return apply


def elementwise(
    op: Op, moments: MomentFunction, *, note: str = "closed form", assumes: Assumption = NORMAL
) -> None:
    """A non-linear function of each element alone.

    ``moments(op, mean, var, *args)`` returns the output's mean and variance for a normal input.
    """

    def apply(x: Uncertain, *args: Any, **kwargs: Any) -> Gaussian:
        return Gaussian(*moments(op, x.mean, x.var, *args, **kwargs))

    entry = Rule(apply, "elementwise", frozenset({assumes}), note, reach=Reach.EACH, bends=True)
    RULES.add(op)(entry)


def refuse(*ops: Op, why: str, reach: Reach = Reach.MIXES) -> None:
    """Ops for which no honest rule is known. Conversion stops and shows ``why``.

    With ``Reach.EACH`` they are still applied by cases, to what is one of two values.
    """
    RULES.add(*ops)(Rule(None, "refuse", note=why, reach=reach))

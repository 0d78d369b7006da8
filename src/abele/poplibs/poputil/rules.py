"""Rules of the arguments of library functions, from the annotations of their parameters.

A rule is made from the annotation *object*, as ``typing.get_type_hints`` resolves it, so an alias means what it stands
for and a parameter is guarded under whatever name its module gives to the type. It answers two questions that differ on
purpose. ``fits`` is strict and looks at the kind alone: it tells one order of arguments from another (is this the
program already, or still an operand?), and there a ``True`` is no whole number. ``check`` refuses in words: it takes
whatever Python would take in that place (a NumPy integer, ``True`` for 1), and looks inside: tensors are of the graph
that the call is about, also those in lists and in the fields of parameter objects.

Every call of a library comes through here. For tensors, numbers and programs the class of a value settles what becomes
of it, so each parameter remembers by class (:meth:`Rule.checker`), and only what has not been seen yet goes through the
rules.

What was tried: deciding by the text of annotations. It was as fast, but an alias that no table named went unguarded
(``popops.add``'s operands, ``float | None``), and a table of texts knows nothing of types that are defined later.
"""

from __future__ import annotations

import numbers
import operator
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from abele.counts import is_whole
from abele.errors import AbeleError, InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import ComputeSet, Graph, Program, Sequence, Tensor
from abele.graph.expect import described
from abele.numerics import ElementType, as_element_type
from abele.poplibs.poputil.kinds import Fits, are_whole, is_boolean, is_real, is_type

# Checks of operands and programs: errors in words where they are something else.


def check_operand(what: str, role: str, value: Any, graph: Graph) -> None:
    """``value`` is a tensor of ``graph``.

    Raises:
        TypeMismatchError: It is no tensor.
        TensorError: It is one of another graph.
    """
    if not isinstance(value, Tensor):
        raise TypeMismatchError(
            f"{what}: {role} must be a tensor, got {described(value)}",
            remedy="graph.constant(type, shape, values) makes a tensor of numbers",
        )
    if value.graph is not graph.top_level:
        raise TensorError(
            f"{what}: {role} {value!r} belongs to another graph",
            remedy="make it in the graph that the function is given, or clone it there",
        )


def is_number(value: Any) -> bool:
    """True if ``value`` is a number of Python's or NumPy's."""
    return isinstance(value, (int, float, np.number, np.bool_))


def check_program(what: str, role: str, value: Any, graph: Graph) -> None:
    """``value`` is a sequence.

    Raises:
        TypeMismatchError: It is none.
    """
    if not isinstance(value, Sequence):
        raise TypeMismatchError(
            f"{what}: {role} must be the Sequence that steps are appended to, got {described(value)}",
            remedy="look at the order of the arguments",
        )


Check = Callable[[str, str, Any, Graph], None]


@dataclass(frozen=True)
class Rule:
    """Values that one type of parameter takes.

    Attributes:
        words: Description of the values, as in "a whole number".
        fits: True if a value is of this kind; tells orders of arguments apart.
        takes: True if a value will do; never less than ``fits``.
        inside: A further check of a value that will do, or None.
        error: Kind of the error for other values.
        none_fits: True if ``None`` is of this kind where the parameter is optional. It stands for an operand or an
            object that there is not; a number is left out instead.
        parts: Alternatives of a union, in the order in which a value is tried.
    """

    words: str
    fits: Fits
    takes: Fits
    inside: Check | None = None
    error: type[AbeleError] = TypeMismatchError
    none_fits: bool = False
    parts: tuple[Rule, ...] = ()

    def check(self, what: str, role: str, value: Any, graph: Graph) -> None:
        """Refuse a value that the rule does not take.

        Args:
            what: Name of the call in errors.
            role: The argument.
            value: Argument that was given.
            graph: The graph that the call is about.

        Raises:
            AbeleError: ``value`` is something else, or holds a tensor of another graph.
        """
        if not self.takes(value):
            raise self.error(f"{what}: {role} must be {self.words}, got {described(value)}")
        if self.inside is not None:
            self.inside(what, role, value, graph)

    def inside_of(self, value: Any) -> Check | None:
        """Further check of ``value``, which fits."""
        if value is None or not self.parts:
            return None if value is None and self.takes is not _anything else self.inside
        part = next((p for p in self.parts if p.accepts(value)), None)
        return part.inside_of(value) if part is not None else None

    def accepts(self, value: Any) -> bool:
        """True if a value that may be of several kinds is of this one."""
        return self.fits(value) if self.takes is _anything else self.takes(value)

    def checker(self) -> Check:
        """The same as :meth:`check`, with a memory of classes that passed."""
        if self.takes is _anything and self.inside is not None:
            return self.inside
        known: dict[type, Check | None] = {}

        def check(what: str, role: str, value: Any, graph: Graph) -> None:
            kind = type(value)
            if kind in known:
                inside = known[kind]
                if inside is not None:
                    inside(what, role, value, graph)
                return
            self.check(what, role, value, graph)
            if issubclass(kind, _SETTLED_BY_CLASS):
                known[kind] = self.inside_of(value)

        return check


_SETTLED_BY_CLASS = (Tensor, Program, ComputeSet, int, float, type(None))
"""Classes for which a rule's answer about one object holds for all."""


def _anything(value: Any) -> bool:
    return True


def _is_instance(*kinds: type) -> Fits:
    return lambda value: isinstance(value, kinds)


def _is_number(value: Any) -> bool:
    """True if ``value`` counts as one number: also a NumPy scalar, and an object that converts itself."""
    if isinstance(value, numbers.Real):
        return True
    return not isinstance(value, (str, Tensor)) and hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0


def _is_true_or_false(value: Any) -> bool:
    return is_boolean(value) or isinstance(value, numbers.Integral)


def _are_indices(value: Any) -> bool:
    """True if ``value`` is a list of whole numbers, or an iterator, which is left to the function."""
    if isinstance(value, abc.Iterator):
        return True
    try:
        return not isinstance(value, str) and all(operator.index(n) == n for n in value)
    except TypeError:
        return False


def _check_type(what: str, role: str, value: Any, graph: Graph) -> None:
    try:
        as_element_type(value)
    except AbeleError as error:
        message = f"{what}: {role} must be an element type: {error.message}"
        raise type(error)(message, because=error.because, remedy=error.remedy) from None


ANY = Rule("anything", _anything, _anything)
_TENSOR = Rule("a tensor", _is_instance(Tensor), _anything, check_operand, none_fits=True)
_NUMBER = Rule("a number", is_real, _is_number)
_SCALAR = Rule("a number", _is_instance(numbers.Real), _is_number)
_FUNCTION = Rule("a function", callable, callable)
_TEXT = Rule("text", _is_instance(str), _is_instance(str))
_INDICES = Rule("whole numbers, as in (0, 1)", are_whole, _are_indices, error=TensorError)

_OPTIONS = Rule(
    "a mapping from names to values",
    _is_instance(Mapping),
    lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
    error=InvalidOptionError,
    none_fits=True,
)

_PLAIN: dict[Any, Rule] = {
    Any: ANY,
    Tensor: _TENSOR,
    Sequence: Rule("the Sequence that steps are appended to", _is_instance(Program), _anything, check_program),
    ComputeSet: Rule("a compute set", _is_instance(ComputeSet), _is_instance(ComputeSet)),
    ElementType: Rule("an element type", is_type, _anything, _check_type),
    int: Rule("a whole number", is_whole, _is_instance(numbers.Integral)),
    float: _NUMBER,
    bool: Rule("True or False", is_boolean, _is_true_or_false),
    str: _TEXT,
    typing.TextIO: Rule("a text stream", lambda v: hasattr(v, "write"), lambda v: hasattr(v, "write")),
}
"""Rules of types that stand for themselves."""

_ITEMS = (abc.Sequence, abc.Iterable, list)


@cache
def rule_of(annotation: Any) -> Rule:
    """Rule of a resolved annotation; :data:`ANY` where it has nothing to check."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _union(parts)
    if origin is typing.Literal:  # the function says which names there are
        return Rule("a name", _is_instance(str, Enum), _is_instance(str, Enum))
    if origin is abc.Callable:
        return _FUNCTION
    if origin is abc.Mapping:
        return _OPTIONS
    if origin is tuple:
        return _INDICES if set(parts) <= {int, ...} else _tuple_of(parts)
    if origin in _ITEMS:
        return _INDICES if parts == (int,) else _list_of(rule_of(parts[0]), is_list=parts[0] is not ComputeSet)
    if isinstance(annotation, type):
        return _instance_of(annotation)
    return ANY


def _instance_of(kind: type) -> Rule:
    """An object of a class; the tensors in a dataclass's fields are of the graph.

    Enumerations are also named by text, which the function reads: it says which names there are.
    """
    if issubclass(kind, Enum):
        return Rule(kind.__name__, _is_instance(kind), _is_instance(kind, str), none_fits=True)
    holds = _check_fields if is_dataclass(kind) else None
    return Rule(kind.__name__, _is_instance(kind), _is_instance(kind), holds, none_fits=True)


def _check_fields(what: str, role: str, value: Any, graph: Graph) -> None:
    for name, part in vars(value).items() if hasattr(value, "__dict__") else ():
        if isinstance(part, Tensor):
            check_operand(what, f"{role}.{name}", part, graph)


def _list_of(item: Rule, *, is_list: bool) -> Rule:
    """Rule of items. Where order matters any list or tuple is of this kind, unless it is one of compute sets."""

    def check_items(what: str, role: str, value: Any, graph: Graph) -> None:
        for n, element in enumerate(value):
            item.check(what, f"{role}[{n}]", element, graph)

    def fits(value: Any) -> bool:
        if item is _TENSOR or not is_list:
            return isinstance(value, (list, tuple)) and all(map(item.fits, value))
        return isinstance(value, (list, tuple))

    def takes(value: Any) -> bool:
        return isinstance(value, abc.Iterable) and not isinstance(value, (str, Tensor))

    words = "a list of tensors" if item is _TENSOR else "a list"
    if item is ANY:
        return Rule(words, fits, takes)
    # an iterator can be walked only once: the function does
    return Rule(words, fits, takes, lambda w, r, v, g: None if isinstance(v, abc.Iterator) else check_items(w, r, v, g))


def _tuple_of(parts: tuple[Any, ...]) -> Rule:
    """One value for each of ``parts``, in their order."""
    rules = tuple(map(rule_of, parts))

    def check_parts(what: str, role: str, value: Any, graph: Graph) -> None:
        for n, (rule, part) in enumerate(zip(rules, value, strict=True)):
            rule.check(what, f"{role}[{n}]", part, graph)

    def takes(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and len(value) == len(rules)

    return Rule(f"{len(rules)} values", _is_instance(list, tuple), takes, check_parts)


def _union(parts: tuple[Any, ...]) -> Rule:
    """One of several rules, or None where that is among them."""
    optional = type(None) in parts
    rules = tuple(dict.fromkeys(map(rule_of, _without_twins(parts))))
    if len(rules) > 1:  # beside a tensor, True is a number as any other
        rules = tuple(_SCALAR if rule is _NUMBER else rule for rule in rules)
    one = rules[0] if len(rules) == 1 else _one_of(rules)
    return _or_none(one) if optional else one


def _without_twins(parts: tuple[Any, ...]) -> list[Any]:
    """``parts`` without None, ``int`` and ``bool`` beside ``float``, and text beside types that have names."""
    kept = [part for part in parts if part is not type(None)]
    if float in kept:
        kept = [part for part in kept if part not in (int, bool)]
    if ElementType in kept:
        kept = [part for part in kept if part is not str]
    return kept


def _one_of(rules: tuple[Rule, ...]) -> Rule:
    """Rule that takes the values of any of ``rules``. A tensor is checked as a tensor, a list as a list."""

    def takes(value: Any) -> bool:
        return any(rule.accepts(value) for rule in rules)

    def check_it(what: str, role: str, value: Any, graph: Graph) -> None:
        rule = next((rule for rule in rules if rule.accepts(value)), None)
        if rule is not None and rule.inside is not None:
            rule.inside(what, role, value, graph)

    words = " or ".join(rule.words for rule in rules)
    error: type[AbeleError] = TypeMismatchError
    if _FUNCTION in rules and _SCALAR in rules:
        words, error = "one expression", InvalidOptionError
    if _INDICES in rules:
        error = TensorError
    return Rule(
        words,
        lambda value: any(rule.fits(value) for rule in rules),
        takes,
        check_it if any(rule.inside is not None for rule in rules) else None,
        error=error,
        none_fits=all(rule.none_fits for rule in rules),
        parts=rules,
    )


def _or_none(rule: Rule) -> Rule:
    """``rule``, or None."""
    inside = rule.inside
    return Rule(
        rule.words,
        (lambda value: value is None or rule.fits(value)) if rule.none_fits else rule.fits,
        lambda value: value is None or rule.takes(value),
        None if inside is None else (lambda w, r, v, g: None if v is None else inside(w, r, v, g)),
        rule.error,
        none_fits=rule.none_fits,
        parts=(rule,),
    )

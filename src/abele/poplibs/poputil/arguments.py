"""Putting the arguments of a call into our order, and errors of those that do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_type_hints

from abele.errors import AbeleError, InvalidOptionError, TensorError, TypeMismatchError, nearest
from abele.graph import Graph, Tensor
from abele.graph.debug_context import DebugContext, DebugNameAndId
from abele.graph.expect import described
from abele.poplibs.poputil.kinds import KINDS, Fits, PlanningCache, debug_name, is_debug_name
from abele.poplibs.poputil.record_calls import arguments_record
from abele.poplibs.poputil.rules import ANY, Check, rule_of
from abele.words import counted

# PopLibs' own orders of arguments, recognised by the kind of each argument that a C++ program passes by position.
#
# A function has parameters of ours, and *forms*: orders in which PopLibs' header takes the same things. A form is
# text, one word per argument after the graph, as in ``"tensor out_type dims *params:ReduceParams prog"``:
#
# - ``tensor`` is a parameter of ours; its annotation says what fits it.
# - ``tensor?`` may be left out.
# - ``=type`` is an argument of that kind which changes nothing here, such as the type of partial sums of a norm.
# - ``^`` at the beginning: the graph is not the first argument; it is found among the others, or is that of a tensor.
# - ``*params:ReduceParams`` is an object of that class whose fields are parameters of ours.
#
# After the last word, a call may go on with a debug name, options and a planning cache, in any order and each at most
# once. A form fits a call when every argument fits its word, words that may be left out being passed over; arguments
# that are named keep their names. What fits is decided by kind alone, and the words of a form differ in kind wherever
# one may be left out, so at most one reading of a call exists.
#
# Example: in ``sum(graph, x, FLOAT, {0, 1}, params, prog)``, ``x`` fits ``tensor``, ``FLOAT`` fits ``out_type`` and
# ``{0, 1}`` fits ``dims``. No one of them fits the word of another.

Call = Callable[..., Any]


@dataclass(frozen=True)
class Word:
    """One argument of a form.

    Attributes:
        name: Parameter that it sets; empty where it changes nothing.
        fits: True for a value that it takes.
        optional: True if it may be left out.
        spread: True if its fields are the parameters.
        skipped: True if others may follow where it is left out, as where a header has an overload without it.
    """

    name: str
    fits: Fits
    optional: bool = False
    spread: bool = False
    skipped: bool = True

    def skipped_for(self, value: Any) -> bool:
        """True if ``value`` is the next argument because this one is left out."""
        return self.optional and not self.fits(value) and (self.skipped or isinstance(value, DebugContext))


@dataclass(frozen=True)
class Form:
    """One order of arguments.

    Attributes:
        target: The function that is called.
        words: The arguments after the graph.
        text: Text that the form was made from.
        has_graph: True if the graph comes first; otherwise it comes later, or is that of a tensor.
        parameters: Names of all parameters of the target.
    """

    target: Call
    words: tuple[Word, ...]
    text: str = ""
    has_graph: bool = True
    parameters: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class CallReading:
    """Arguments of a call as a form reads them.

    Attributes:
        given: Values by the names of our parameters, where everything fits.
        fitted: Arguments that fitted before the first that did not.
        wanted: Name of the word that the next argument should have been.
    """

    given: dict[str, Any] | None
    fitted: int
    wanted: str = ""


def make_form(target: Call, text: str | None = None) -> Form:
    """The form that ``text`` describes; without it the order of the function's own positional parameters."""
    signature = inspect.signature(target).parameters
    hints = hints_of(target)
    words = _own_words(signature) if text is None else text.removeprefix("^").split()
    made = tuple(_word(word, target, hints, skipped=text is not None) for word in words)
    return Form(target, made, " ".join(words), not (text or "").startswith("^"), frozenset(signature))


def hints_of(function: Call) -> dict[str, Any]:
    """Annotations of a function, or of an object that can be called, as types."""
    plain = _plain(function)
    return get_type_hints(arguments_record(plain) or plain)


def _plain(function: Call) -> Call:
    plain = inspect.unwrap(function)
    return plain if inspect.isroutine(plain) else type(plain).__call__


def read_call(form: Form, args: Sequence[Any], named: Mapping[str, Any]) -> CallReading:
    """Match the arguments after the graph with the words of ``form``.

    Raises:
        InvalidOptionError: Options by position of a function that has none.
        TensorError: Fields of an object that the function does not take.
    """
    given: dict[str, Any] = {}
    rest = [last for last in _TAIL if all(word.name != last.name for word in form.words)]
    at = 0
    for n, value in enumerate(args):
        while at < len(form.words) and form.words[at].skipped_for(value):
            at += 1
        if at < len(form.words):
            word = form.words[at]
            if not word.fits(value):
                return CallReading(None, n, word.name)
            _take(form, word, value, given)
            at += 1
            continue
        if value is None or (isinstance(value, (Mapping, set, list, tuple)) and not value):
            continue  # ``{}`` and ``nullptr`` stand for any default.
        last = next((word for word in rest if word.fits(value)), None)
        if last is None:
            return CallReading(None, n)
        rest.remove(last)
        _take_last(form, last.name, value, given)
    missing = next((w.name for w in form.words[at:] if not w.optional and not w.spread and w.name not in named), None)
    if missing is not None or any(name in given or name not in form.parameters for name in named):
        return CallReading(None, len(args), missing or "")
    return CallReading({**given, **named}, len(args))


def _take(form: Form, word: Word, value: Any, given: dict[str, Any]) -> None:
    if word.spread:
        for name, part in vars(value).items():
            if name in form.parameters:
                given[name] = part
            elif part is True or part not in (None, False, 1.0):
                raise TensorError(f"{_name(form)}: {type(value).__name__} with {name}={part!r} needs an output")
    elif word.name in ("name", "options"):
        _take_last(form, word.name, value, given)
    elif word.name:
        given[word.name] = value


def _take_last(form: Form, name: str, value: Any, given: dict[str, Any]) -> None:
    if name == "name":
        text = debug_name(value)
        if text and "name" in form.parameters:
            given["name"] = text
    elif name == "options" and value:
        if "options" not in form.parameters:
            raise InvalidOptionError(f"{_name(form)} has no options, got {dict(value)}")
        given["options"] = value
    elif name == "cache" and "cache" in form.parameters:
        given["cache"] = value


def _name(form: Form) -> str:
    return str(getattr(form.target, "__name__", "call"))


_TAIL = (
    Word("name", is_debug_name),
    Word("options", lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value)),
    Word("cache", lambda value: isinstance(value, PlanningCache)),
)


def _own_words(signature: Mapping[str, inspect.Parameter]) -> list[str]:
    """The positional parameters after the graph, without those that any call may end with."""
    words = []
    for name, parameter in list(signature.items())[1:]:
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD or name in ("name", "options"):
            continue
        words.append(name if parameter.default is inspect.Parameter.empty else f"{name}?")
    return words


def _word(word: str, target: Call, hints: Mapping[str, Any], *, skipped: bool) -> Word:
    plain = word.rstrip("?")
    optional = plain != word
    if plain.startswith("="):
        return Word("", KINDS[plain[1:]], optional)
    if plain.startswith("*"):
        name, _, kind = plain[1:].partition(":")
        return Word(name, rule_of(vars(inspect.getmodule(target))[kind]).fits, optional, spread=True)
    name, _, kind = plain.partition(":")
    return Word(name, KINDS[kind] if kind else rule_of(hints[name]).fits, optional, skipped=skipped)


Order = str | tuple[str, Callable[..., Any]]
"""An order of arguments, and another function that takes the call if it is in that order."""
Forms = Mapping[str, tuple[Order, ...]]
"""PopLibs' orders of arguments by our names of functions."""


class Arguments:
    """Checks and order of the arguments of one function."""

    def __init__(
        self,
        function: Callable[..., Any],
        orders: tuple[Order, ...] = (),
        called: str = "",
    ) -> None:
        parameters = inspect.signature(function).parameters
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.function, self.orders = function, orders
        self.called = called or str(getattr(function, "__name__", ""))
        self.names = tuple(n for n, p in parameters.items() if p.kind in by_place)
        self.takes_more = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())
        self.takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        self.parameters = frozenset(parameters)
        self.required = tuple(
            n
            for n, p in parameters.items()
            if p.default is inspect.Parameter.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        )

    @cached_property
    def checks(self) -> dict[str, Check]:
        """Checks of the arguments after the graph. Made at the first call: annotations take time to resolve."""
        hints = hints_of(self.function)
        rules = {name: rule_of(hints.get(name, Any)) for name in self.parameters if name != "graph"}
        return {name: rule.checker() for name, rule in rules.items() if rule is not ANY}

    @cached_property
    def by_place(self) -> tuple[Check | None, ...]:
        """Checks of the arguments by position."""
        return tuple(map(self.checks.get, self.names))

    @cached_property
    def fewest(self) -> int:
        """Fewest arguments by position with which none is missing; beyond all where a name is needed."""
        needed = [self.names.index(n) + 1 if n in self.names else len(self.names) + 1 for n in self.required]
        return max(needed, default=0)

    @cached_property
    def free(self) -> tuple[frozenset[str], ...]:
        """For each number of arguments by position: the parameters that may still be named."""
        return tuple(self.parameters.difference(self.names[:n]) for n in range(len(self.names) + 1))

    @cached_property
    def forms(self) -> list[Form]:
        """Orders of arguments: PopLibs', then ours with the arguments that any call may end with."""
        made = [
            make_form(self.function, order) if isinstance(order, str) else make_form(order[1], order[0])
            for order in self.orders
        ]
        return [*made, make_form(self.function)]

    def graph_first(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments of an order of PopLibs that does not begin with the graph, the graph first; others as they are."""
        if all(form.has_graph for form in self.forms):
            return args
        found = next((item for item in args if isinstance(item, Graph)), None)
        if found is not None:
            return (found, *(item for item in args if item is not found))
        tensor = next((item for item in args if isinstance(item, Tensor)), None)
        return args if tensor is None else (tensor.graph, *args)

    def refusal(self, args: tuple[Any, ...], named: dict[str, Any]) -> Refusal | None:
        """First argument that does not fit our order; debug contexts given by name become names."""
        graph = args[0] if args else named.get("graph")
        if isinstance(named.get("name"), (DebugContext, DebugNameAndId)):
            named["name"] = debug_name(named["name"])
        what = str(named.get("name") or self.called)
        if not isinstance(graph, Graph):
            raise TypeMismatchError(f"{what}: the first argument is the graph, got {described(graph)}")
        at = -1
        try:
            for parameter, check, value in zip(self.names, self.by_place, args, strict=False):
                at += 1
                if check is not None:
                    check(what, parameter, value, graph)
            for parameter, value in named.items():
                at += 1
                check = self.checks.get(parameter)
                if check is not None:
                    check(what, parameter, value, graph)
        except AbeleError as error:
            return Refusal(error, at - 1)
        if self.fewest <= len(args) <= len(self.names) and (not named or self.free[len(args)].issuperset(named)):
            return None
        return self._number_of(args, named, what)

    def _number_of(self, args: tuple[Any, ...], named: dict[str, Any], what: str) -> Refusal | None:
        """Error of arguments that are too many, missing, or of unknown names."""
        if len(args) > len(self.names) and (self.orders or not self.takes_more):
            error = TypeMismatchError(
                f"{what}: {counted(len(args), 'argument')} by position, at most {len(self.names)} are taken",
                remedy=self._order(),
            )
            return Refusal(error, len(self.names) - 1)
        missing = [n for n in self.required if n not in named and n not in self.names[: len(args)]]
        if missing:
            error = TypeMismatchError(f"{what}: {' and '.join(missing)} must be given", remedy=self._order())
            return Refusal(error, len(args) - 1)
        unknown = [n for n in named if n not in self.parameters or n in self.names[: len(args)]]
        if not unknown or self.takes_any:
            return None
        close = nearest(unknown[0], self.parameters)
        twice = "is given twice" if unknown[0] in self.parameters else "is no argument"
        return Refusal(
            TypeMismatchError(
                f"{what}: {unknown[0]} {twice}",
                remedy=f"did you mean {close!r}?" if close and "no" in twice else self._order(),
            ),
            len(args) - 1,
        )

    def _order(self) -> str:
        return "the order is " + ", ".join(self.names)

    def in_another_order(
        self, args: tuple[Any, ...], named: dict[str, Any], refusal: Refusal
    ) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The function to be called, and its arguments by name.

        Raises:
            AbeleError: The arguments fit no order. The error is that of the order in which most of them fit.
        """
        if not args:
            raise refusal.error
        nearest_miss = CallReading(None, refusal.fitted)
        for form in self.forms:
            reading = read_call(form, args[1:], named)
            if reading.given is None:
                nearest_miss = max(nearest_miss, reading, key=lambda r: r.fitted)
                continue
            again = self._of(form.target).refusal(args[:1], reading.given)
            if again is not None:
                raise again.error
            return form.target, reading.given
        raise refusal.error if nearest_miss.fitted <= refusal.fitted else self._misfit(nearest_miss, args, named)

    def _of(self, target: Callable[..., Any]) -> Arguments:
        return self if target is self.function else Arguments(target, called=self.called)

    def _misfit(self, miss: CallReading, args: tuple[Any, ...], named: dict[str, Any]) -> AbeleError:
        """Error of the first argument that does not fit the nearest order of PopLibs."""
        what, place = str(named.get("name") or self.called), miss.fitted + 1
        if place >= len(args):
            return TypeMismatchError(f"{what}: {miss.wanted or 'an argument'} must be given", remedy=self._order())
        check = self.checks.get(miss.wanted)
        try:
            if check is not None:
                check(what, miss.wanted, args[place], args[0])
        except AbeleError as error:
            return error
        wanted = f"must be {miss.wanted}" if miss.wanted else "has no meaning"
        return TypeMismatchError(
            f"{what}: argument {place + 1}, {described(args[place])}, {wanted}", remedy=self._order()
        )


@dataclass(frozen=True)
class Refusal:
    """Reason for which a call is not in our order.

    Attributes:
        error: Error that names it.
        fitted: Arguments after the graph that fit.
    """

    error: AbeleError
    fitted: int

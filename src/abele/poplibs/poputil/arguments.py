"""Putting the arguments of a call into our order, and errors of those that do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from abele.errors import AbeleError, TypeMismatchError, nearest
from abele.graph import Graph, Tensor
from abele.graph.debug_context import DebugContext, DebugNameAndId
from abele.graph.expect import described
from abele.poplibs.poputil.forms import CallReading, Form, hints_of, make_form, read_call
from abele.poplibs.poputil.kinds import debug_name
from abele.poplibs.poputil.rules import ANY, Check, rule_of
from abele.words import counted

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

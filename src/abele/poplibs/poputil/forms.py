"""PopLibs' own orders of arguments, recognised by the kind of each argument that a C++ program passes by position.

A function has parameters of ours, and *forms*: orders in which PopLibs' header takes the same things. A form is text,
one word per argument after the graph, as in ``"tensor out_type dims *params:ReduceParams prog"``:

- ``tensor`` is a parameter of ours; its annotation says what fits it.
- ``tensor?`` may be left out.
- ``=type`` is an argument of that kind which changes nothing here, such as the type of partial sums of a norm.
- ``^`` at the beginning: the graph is not the first argument; it is found among the others, or is that of a tensor.
- ``*params:ReduceParams`` is an object of that class whose fields are parameters of ours.

After the last word, a call may go on with a debug name, options and a planning cache, in any order and each at most
once. A form fits a call when every argument fits its word, words that may be left out being passed over; arguments that
are named keep their names. What fits is decided by kind alone, and the words of a form differ in kind wherever one may
be left out, so at most one reading of a call exists.

Example: in ``sum(graph, x, FLOAT, {0, 1}, params, prog)``, ``x`` fits ``tensor``, ``FLOAT`` fits ``out_type`` and ``{0,
1}`` fits ``dims``. No one of them fits the word of another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from abele.errors import InvalidOptionError, TensorError
from abele.graph.debug_context import DebugContext
from abele.poplibs.poputil.kinds import KINDS, Fits, PlanningCache, debug_name, is_debug_name
from abele.poplibs.poputil.record_calls import arguments_record
from abele.poplibs.poputil.rules import rule_of

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

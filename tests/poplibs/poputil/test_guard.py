"""Every public function of the libraries looks at its arguments, and refuses in words that name them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pytest
from poplibs_kit import system_of

from abele.errors import AbeleError, InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import ComputeSet, Graph, Sequence, Tensor
from abele.numerics import ElementType, f32
from abele.poplibs import gcl, poplin, popnn, popops, poprand, poputil
from abele.poplibs.poplin import ConvParams, linalg, multiconv
from abele.poplibs.popnn import ctc, ctc_infer, gru, lstm, rnn
from abele.poplibs.popops import embedding, rearrange
from abele.poplibs.poputil.arguments import hints_of
from abele.poplibs.poputil.guard import guarded
from abele.poplibs.poputil.rules import ANY, rule_of

LIBRARIES = (
    *(gcl, poplin, linalg, multiconv, popnn, ctc, ctc_infer, gru, lstm, rnn),
    *(popops, embedding, rearrange, poprand, poputil),
)


def functions(library: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions of a library that work on a graph, PopLibs' camelCase names among them."""
    for name, value in vars(library).items():
        is_camel = name.isidentifier() and "_" not in name and name != name.lower()
        if not (name in library.__all__ or is_camel) or isinstance(value, type) or not callable(value):
            continue
        if not getattr(value, "__module__", "").startswith("abele.poplibs"):
            continue
        if "graph" in list(inspect.signature(value).parameters)[:1]:
            yield name, value


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__.removeprefix("abele.poplibs."))
def test_functions__on_a_graph__are_guarded(library: ModuleType) -> None:
    assert [name for name, function in functions(library) if not hasattr(function, "__wrapped__")] == []


def by_name(function: Callable[..., Any]) -> list[str]:
    """Parameters that can be given by name, without the graph and the name of the call."""
    more = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    signature = inspect.signature(function).parameters
    return [name for name, p in signature.items() if name not in ("graph", "name") and p.kind not in more]


Errors = type[AbeleError] | tuple[type[AbeleError], ...]

WRONG: dict[Any, tuple[Any, Errors]] = {
    Sequence: ("prog", TypeMismatchError),
    int: ("three", TypeMismatchError),
    float: ("three", TypeMismatchError),
    bool: ("yes", TypeMismatchError),
    str: (3, TypeMismatchError),
    ElementType: ("f99", AbeleError),
}


def wrong_values(annotation: Any, stranger: Tensor) -> list[tuple[Any, Errors]]:
    """Values that a parameter of this type must refuse, each with its error."""
    rule = rule_of(annotation)
    found: list[tuple[Any, Errors]] = []
    if rule is ANY:
        return found
    if rule.fits(stranger):
        found.append((stranger, TensorError))
    if rule.takes(stranger) or rule.fits(stranger):
        found.append((np.ones(3) if not rule.fits([0, 1]) else object(), (TypeMismatchError, TensorError)))
    if annotation in WRONG:
        found.append(WRONG[annotation])
    if rule.words.startswith("a mapping"):
        found += [(5, InvalidOptionError), ({1: 2}, InvalidOptionError)]
    if not found:
        found.append((object(), AbeleError))
    return found


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__.removeprefix("abele.poplibs."))
def test_arguments__of_the_wrong_kind__are_refused_by_name(library: ModuleType) -> None:
    """Each alone and by name, so that nothing of the call but this argument can be what is refused."""
    graph, stranger = Graph(system_of(4)), Graph(system_of(4)).variable("f32", (4,), name="stranger").map(0)
    tried = 0
    for name, function in functions(library):
        hints = hints_of(function)
        for parameter in by_name(function):
            annotation = hints[parameter]
            for wrong, kind in wrong_values(annotation, stranger):
                with pytest.raises(kind) as caught:
                    function(graph, **{parameter: wrong})
                assert parameter in caught.value.message, f"{library.__name__}.{name}({parameter}={wrong!r})"
                tried += 1
    assert tried >= len(list(functions(library)))


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__.removeprefix("abele.poplibs."))
def test_graph__something_else__is_refused(library: ModuleType) -> None:
    for _, function in functions(library):
        with pytest.raises(TypeMismatchError, match="graph"):
            function("graph")


def test_add__and_its_kin__name_the_operand() -> None:
    graph, prog = Graph(system_of(4)), Sequence()
    x = graph.variable("f32", (4,), name="x").map(0)
    stranger = Graph(system_of(4)).variable("f32", (4,), name="stranger").map(0)
    with pytest.raises(TypeMismatchError, match=r"^add: y must be a tensor or a number, got ndarray of shape \[4\]"):
        popops.add(graph, x, np.ones(4), prog)
    with pytest.raises(TensorError, match=r"^mul_in_place: y .*'stranger'.* belongs to another graph"):
        popops.mul_in_place(graph, x, stranger, prog)
    with pytest.raises(TypeMismatchError, match=r"^exp_with_output: out must be a tensor, got None"):
        popops.exp_with_output(graph, x, None, prog)
    with pytest.raises(InvalidOptionError, match=r"^add: options must be a mapping from names to values, got list"):
        popops.add(graph, x, x, prog, options=["fast"])


Shapes = tuple[int, ...]
Either = float | Tensor | None


def sample(graph: Graph, size: Shapes, factor: Either, kind: Literal["a", "b"], into: list[ComputeSet]) -> str:
    """A function whose annotations are aliases of this module."""
    return "taken"


def test_guard__annotations_that_are_aliases__means_what_they_stand_for() -> None:
    graph, call = Graph(system_of(4)), guarded(sample)
    good = {"size": (1, 2), "factor": None, "kind": "a", "into": [graph.compute_set("c")]}
    assert call(graph, **good) == "taken"
    assert call(graph, **good | {"size": np.array([1, 2]), "factor": np.float32(2)}) == "taken"
    for name, wrong in (("size", (1.5,)), ("factor", "2"), ("kind", 3), ("into", [Sequence()])):
        with pytest.raises(AbeleError, match=f"^sample: {name}"):
            call(graph, **good | {name: wrong})


def test_guard__parameter_objects__looks_at_the_tensors_in_them() -> None:
    graph, other = Graph(system_of(4)), Graph(system_of(4))
    state = lstm.LstmState(*(other.variable("f32", (2, 5), name=n).map(0) for n in ("output", "cell")))
    with pytest.raises(TensorError, match=r"^lstm_fwd: state\.\w+ .* belongs to another graph"):
        lstm.lstm_fwd(graph, state=state)


@pytest.mark.parametrize(
    ("annotation", "value", "fits", "takes"),
    [
        (int, True, False, True),
        (int, np.int64(3), True, True),
        (int, 3.0, False, False),
        (float, np.float32(3), True, True),
        (float, np.ones(3), False, False),
        (Tensor | float, True, True, True),
        (bool, 1, False, True),
        (float | None, None, False, True),
        (ConvParams | None, None, True, True),
        (ElementType | str, f32, True, True),
        (tuple[int, ...], [1, 2], True, True),
        (list[Tensor] | None, [1], False, True),
        (dict, {}, True, True),
    ],
)
def test_rule__of_an_annotation__tells_kinds_apart(annotation: Any, value: Any, fits: bool, takes: bool) -> None:
    rule = rule_of(annotation)
    assert (rule.fits(value), rule.takes(value)) == (fits, takes)

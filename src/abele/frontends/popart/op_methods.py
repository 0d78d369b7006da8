"""Methods of a builder by operator: ``builder.aiOnnx.conv([x, w], pads=[1, 1, 1, 1])``.

Those of ONNX follow from its own schemas: names in lower case, inputs as a list, attributes that are needed before
those that are not, each of these in the order of the alphabet. Those of PopART's own domain are a table.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

from abele.frontends.popart.errors import popart_exception
from abele.frontends.popart.graphcore import SIGNATURES, Own
from abele.frontends.popart.tensor_info import code_of

if TYPE_CHECKING:
    from abele.frontends.popart.builder import Builder

DOMAINS = {"ai.onnx": "", "ai.graphcore": "ai.graphcore"}
OLDEST_OPSET, NEWEST_OPSET = 6, 11
_PYTHON_NAMES = {
    "And": "logical_and",
    "Or": "logical_or",
    "Not": "logical_not",
    "Xor": "logical_xor",
    "If": "logical_if",
}
"""Operators whose lower-case name is a word of Python, or would look like one."""
_TYPES = ("to", "dtype")
"""Attributes that name a type: PopART takes its name."""
_PLAIN: dict[int, Callable[[Any], Any]] = {AttributeProto.FLOAT: float, AttributeProto.INT: int}
_LAST = ("auto_pad",)
"""Attributes that PopART's methods lack: they come last, so that places of the others are as there."""


class Opset:
    """The operators of a domain in a version, as methods of a builder.

    Args:
        builder: The builder.
        domain: ``ai.onnx`` or ``ai.graphcore``.
        version: Version of its operators.
    """

    def __init__(self, builder: Builder, domain: str, version: int) -> None:
        self._builder, self._domain, self._version = builder, domain, version
        table = _onnx_methods(version) if domain == "ai.onnx" else _own_methods()
        for name, make in table.items():
            setattr(self, name, make(builder))

    @property
    def version(self) -> int:
        """Version of the operators."""
        return self._version

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(sorted(n for n in vars(self) if not n.startswith("_")))
        raise AttributeError(f"{self._domain} {self._version} has no operator {name!r}; it has {known}")


Maker = Callable[["Builder"], Callable[..., Any]]


@functools.cache
def _onnx_methods(version: int) -> dict[str, Maker]:
    names = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == "" and not s.deprecated}
    made: dict[str, Maker] = {}
    for name in sorted(names):
        try:
            schema = onnx.defs.get_schema(name, version, "")
        except onnx.defs.SchemaError:
            continue
        if schema.deprecated:
            continue
        method = _PYTHON_NAMES.get(name, name.lower())
        made[method] = functools.partial(_method, name=name, method=method, schema=schema)
    made |= {"constant": lambda builder: functools.partial(_constant, builder)}
    made |= {"logical_if": lambda builder: functools.partial(_logical_if, builder)}
    made |= {"loop": lambda builder: functools.partial(_loop, builder), "scan": lambda b: functools.partial(_scan, b)}
    return made


def _method(builder: Builder, *, name: str, method: str, schema: Any) -> Callable[..., Any]:
    attributes = sorted(
        schema.attributes.items(), key=lambda entry: (not entry[1].required, entry[0] in _LAST, entry[0])
    )
    several = schema.max_output != schema.min_output
    parameters = [inspect.Parameter("args", inspect.Parameter.POSITIONAL_OR_KEYWORD)] if schema.max_input else []
    if several:
        parameters.append(inspect.Parameter("num_outputs", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None))
    for attribute, _ in attributes:
        parameters.append(inspect.Parameter(attribute, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None))
    parameters.append(inspect.Parameter("debugContext", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=""))
    signature = inspect.Signature(parameters)
    kinds = {a: v.type for a, v in schema.attributes.items()}

    def call(*given: Any, **named: Any) -> Any:
        values = bound(signature, method, given, named)
        context, inputs = values.pop("debugContext"), values.pop("args", ())
        count = values.pop("num_outputs", None)
        if not isinstance(inputs, str) and not schema.min_input <= len(inputs) <= schema.max_input:
            allowed = " to ".join(str(n) for n in dict.fromkeys((schema.min_input, schema.max_input)))
            raise popart_exception(f"{name} has {len(inputs)} inputs, its definition has {allowed}")
        held = {a: _typed(a, v, kinds[a]) for a, v in values.items() if not (v is None or _is_default(name, a, v))}
        made = builder.append(name, "", inputs, count or schema.min_output, held, context)
        return made if count is not None or schema.min_output > 1 else made[0]

    call.__name__ = method
    call.__doc__ = f"ONNX's {name}."
    return call


def _is_default(operator: str, name: str, value: Any) -> bool:
    """True for an empty list, which stands for what an operator does without it; reductions take it as it is."""
    is_reduced = operator.startswith("Reduce") and name == "axes"
    return isinstance(value, (list, tuple)) and not value and not is_reduced


def bound(signature: inspect.Signature, method: str, given: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a method by name.

    Raises:
        TypeError: They are not those of the method.
    """
    try:
        arguments = signature.bind(*given, **named)
    except TypeError as error:
        shown = ", ".join(str(p) for p in signature.parameters.values())
        raise TypeError(
            f"{method}(): incompatible function arguments. {error}. The following argument types are supported: "
            f"{method}({shown})"
        ) from None
    arguments.apply_defaults()
    return dict(arguments.arguments)


def _typed(name: str, value: Any, kind: Any) -> Any:
    """An attribute in the type that its operator has."""
    if name in _TYPES and isinstance(value, str):
        return code_of(value)
    plain = _PLAIN.get(int(kind.value) if hasattr(kind, "value") else int(kind))
    if plain is not None:
        return plain(value)
    if isinstance(value, np.ndarray):
        return numpy_helper.from_array(np.ascontiguousarray(value))
    return list(value) if isinstance(value, (tuple, list)) else value


def _constant(builder: Builder, value: Any, is_value_sparse: bool = False, debugContext: Any = "") -> str:
    """A constant with the elements of an array."""
    array = np.ascontiguousarray(value)
    made: str = builder.append("Constant", "", (), 1, {"value": numpy_helper.from_array(array)}, debugContext)[0]
    return made


def _logical_if(
    builder: Builder,
    args: Sequence[str],
    num_outputs: int,
    else_branch: Builder,
    then_branch: Builder,
    debugContext: Any = "",
) -> list[str]:
    """One of two graphs, by a condition."""
    graphs = {"else_branch": else_branch.graph(), "then_branch": then_branch.graph()}
    return builder.append("If", "", args, num_outputs, graphs, debugContext)


def _loop(builder: Builder, args: Sequence[str], num_outputs: int, body: Builder, debugContext: Any = "") -> list[str]:
    """A graph several times."""
    return builder.append("Loop", "", args, num_outputs, {"body": body.graph()}, debugContext)


def _scan(
    builder: Builder,
    args: Sequence[str],
    num_outputs: int,
    body: Builder,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
    debugContext: Any = "",
) -> list[str]:
    """A graph for each row of inputs."""
    lists = {
        "scan_input_axes": scan_input_axes,
        "scan_input_directions": scan_input_directions,
        "scan_output_axes": scan_output_axes,
        "scan_output_directions": scan_output_directions,
    }
    held = {"body": body.graph(), "num_scan_inputs": num_scan_inputs, **{n: list(v) for n, v in lists.items() if v}}
    return builder.append("Scan", "", args, num_outputs, held, debugContext)


# --- PopART's own domain ----------------------------------------------------------------------------------------------


@functools.cache
def _own_methods() -> dict[str, Maker]:
    return {name: functools.partial(_own_method, method=name, own=own) for name, own in SIGNATURES.items()}


def _own_method(builder: Builder, *, method: str, own: Own) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        # `lambda` is a word of Python: it comes by its place, or in a mapping.
        renamed = {f"{n}_" if n == "lambda" else n: v for n, v in named.items()}
        values = bound(own.signature, method, given, renamed)
        context, inputs = values.pop("debugContext"), values.pop("args", ())
        count = values.pop("num_outputs", own.results(inputs))
        for inner in ("callee", "callback"):
            if inner in values:
                values[inner] = values[inner].graph()
        held = {name.rstrip("_"): own.plain(name, v) for name, v in values.items() if v is not None}
        made = builder.append(own.name, "ai.graphcore", own.flat(inputs), count, held, context)
        if not count and own.outputs == 0:
            return None
        return made if "num_outputs" in own.signature.parameters or own.results(inputs) > 1 else made[0]

    call.__name__ = method
    call.__doc__ = f"PopART's {own.name}."
    return call


def check_domain(domain: str) -> str:
    """A domain in ONNX's spelling.

    Raises:
        popart_exception: There is none of that name.
    """
    if domain not in DOMAINS:
        raise popart_exception(f"there is no domain {domain!r} of operators", remedy=", ".join(DOMAINS))
    return DOMAINS[domain]

"""Non-linearities and their gradients."""

from __future__ import annotations

from abele.errors import InvalidOptionError, TensorError, UnsupportedOpError, nearest
from abele.expr import NONLINEARITIES as NON_LINEARITIES
from abele.expr import Nonlinearity
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn import softmax
from abele.poplibs.popops.elementwise.map import map, map_with_output
from abele.poplibs.popops.expr import Op, PlaceHolder

__all__ = [
    "NON_LINEARITIES",
    "find_non_linearity",
    "leaky_relu",
    "leaky_relu_input_gradient",
    "non_linearity",
    "non_linearity_in_place",
    "non_linearity_input_gradient",
]


SOFTMAXES = ("softmax", "softmax_stable", "softmax_scaled")
"""Names of the softmax, which is stable always; ``softmax_scaled`` is multiplied by
:func:`~abele.poplibs.popnn.softmax.softmax_scaling`."""


def find_non_linearity(kind: str) -> Nonlinearity:
    """The element-wise non-linearity called ``kind``, in capitals or small letters.

    Raises:
        InvalidOptionError: There is none.
    """
    name = kind.lower()
    if name not in NON_LINEARITIES:
        names = [*NON_LINEARITIES, *SOFTMAXES]
        close = nearest(name, names)
        raise InvalidOptionError(
            f"no non-linearity {kind!r}", remedy=f"did you mean {close!r}?" if close else ", ".join(names)
        )
    return NON_LINEARITIES[name]


def non_linearity(graph: Graph, kind: str, tensor: Tensor, prog: Sequence, name: str = "") -> Tensor:
    """A non-linearity of ``tensor`` as a new tensor.

    Args:
        graph: Graph in which vertices and the result are made.
        kind: relu, sigmoid, tanh, gelu (its tanh approximation), gelu_erf, swish, hard_sigmoid, or softmax,
            softmax_stable, softmax_scaled (over the innermost dimension); in capitals too.
        tensor: The activations.
        prog: Sequence that the step is appended to.
        name: Name of the step; the kind by default.

    Raises:
        InvalidOptionError: No such non-linearity.
        TypeMismatchError: Elements that are no floats, for all but relu.
    """
    if kind.lower() == "softmax_scaled":
        return softmax.scaled_softmax_stable(graph, tensor, prog, name or "softmax_scaled")[0]
    if kind.lower() in SOFTMAXES:
        return softmax.softmax(graph, tensor, prog, name or "softmax")
    found = find_non_linearity(kind)
    return map(graph, Op(found.op, PlaceHolder(1)), [tensor], prog, name or found.name)


def non_linearity_in_place(graph: Graph, kind: str, tensor: Tensor, prog: Sequence, name: str = "") -> None:
    """Overwrite ``tensor`` with a non-linearity of it; see :func:`non_linearity`.

    Raises:
        InvalidOptionError: No such non-linearity.
        TypeMismatchError: As for :func:`non_linearity`.
        ConstantWriteError: ``tensor`` cannot be written.
    """
    if kind.lower() == "softmax_scaled":
        softmax.scaled_softmax_stable_in_place(graph, tensor, prog, name or "softmax_scaled")
        return
    if kind.lower() in SOFTMAXES:
        softmax.softmax_in_place(graph, tensor, prog, name or "softmax")
        return
    found = find_non_linearity(kind)
    map_with_output(graph, Op(found.op, PlaceHolder(1)), [tensor], tensor, prog, name or found.name)


def non_linearity_input_gradient(
    graph: Graph, kind: str, activation: Tensor, out_gradient: Tensor, prog: Sequence, name: str = ""
) -> Tensor:
    """Gradient of a non-linearity's input.

    Args:
        graph: Graph in which vertices and the result are made.
        kind: As in :func:`non_linearity`.
        activation: The *output* of the non-linearity; for gelu, gelu_erf and swish its *input*.
        out_gradient: Gradient of the output.
        prog: Sequence that the step is appended to.
        name: Name of the step.

    Raises:
        InvalidOptionError: No such non-linearity.
        TensorError: The shapes differ.
    """
    if activation.shape != out_gradient.shape:
        raise TensorError(
            f"gradient of {kind}: the activation {activation!r} has shape {list(activation.shape)}, "
            f"the output gradient {list(out_gradient.shape)}"
        )
    if kind.lower() == "softmax_scaled":
        raise UnsupportedOpError(
            "no gradient of softmax_scaled",
            because="its output is not a probability",
            remedy="take the gradient of softmax, on the output over its scale",
        )
    if kind.lower() in SOFTMAXES:
        return softmax.softmax_input_gradient(graph, activation, out_gradient, prog, name or "softmax_gradient")
    found = find_non_linearity(kind)
    gradient = Op(found.gradient, PlaceHolder(1), PlaceHolder(2))
    return map(graph, gradient, [activation, out_gradient], prog, name or f"{found.name}_gradient")


def leaky_relu(graph: Graph, tensor: Tensor, slope: float, prog: Sequence, name: str = "leaky_relu") -> Tensor:
    """``tensor`` where it is positive, ``slope`` times it elsewhere.

    Raises:
        TypeMismatchError: The elements cannot be multiplied by ``slope``: truth values, or integers by a fraction.
    """
    x = PlaceHolder(1)
    return map(graph, Op("select", x, x * slope, x > 0.0), [tensor], prog, name)


def leaky_relu_input_gradient(
    graph: Graph,
    activation: Tensor,
    out_gradient: Tensor,
    slope: float,
    prog: Sequence,
    name: str = "leaky_relu_gradient",
) -> Tensor:
    """Gradient of the input of :func:`leaky_relu` from its input, or its output where the slope is positive.

    Raises:
        TensorError: The shapes do not broadcast.
        TypeMismatchError: Elements that cannot be multiplied by ``slope``.
    """
    x, g = PlaceHolder(1), PlaceHolder(2)
    return map(graph, Op("select", g, g * slope, x > 0.0), [activation, out_gradient], prog, name)

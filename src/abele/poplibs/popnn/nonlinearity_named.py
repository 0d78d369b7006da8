"""The non-linearities by name: ``relu(graph, tensor, prog)`` and ``relu_in_place``."""

from __future__ import annotations

from typing import Protocol

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.nonlinearity import non_linearity, non_linearity_in_place

__all__ = [
    "gelu",
    "gelu_erf",
    "gelu_erf_in_place",
    "gelu_in_place",
    "hard_sigmoid",
    "hard_sigmoid_in_place",
    "relu",
    "relu_in_place",
    "sigmoid",
    "sigmoid_in_place",
    "softmax_stable",
    "softmax_stable_in_place",
    "swish",
    "swish_in_place",
    "tanh",
    "tanh_in_place",
]


class _Fresh(Protocol):
    def __call__(self, graph: Graph, tensor: Tensor, prog: Sequence, name: str = "") -> Tensor: ...


class _InPlace(Protocol):
    def __call__(self, graph: Graph, tensor: Tensor, prog: Sequence, name: str = "") -> None: ...


def _named(kind: str) -> tuple[_Fresh, _InPlace]:
    def fresh(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "") -> Tensor:
        return non_linearity(graph, kind, tensor, prog, name)

    def in_place(graph: Graph, tensor: Tensor, prog: Sequence, name: str = "") -> None:
        non_linearity_in_place(graph, kind, tensor, prog, name)

    fresh.__name__, in_place.__name__ = kind, f"{kind}_in_place"
    fresh.__doc__ = f"{kind} of ``tensor``, as a new tensor; see :func:`non_linearity`."
    in_place.__doc__ = f"Overwrite ``tensor`` with its {kind}; see :func:`non_linearity`."
    return fresh, in_place


relu, relu_in_place = _named("relu")
sigmoid, sigmoid_in_place = _named("sigmoid")
tanh, tanh_in_place = _named("tanh")
gelu, gelu_in_place = _named("gelu")
gelu_erf, gelu_erf_in_place = _named("gelu_erf")
swish, swish_in_place = _named("swish")
hard_sigmoid, hard_sigmoid_in_place = _named("hard_sigmoid")
softmax_stable, softmax_stable_in_place = _named("softmax_stable")

"""Parameters of LSTM and GRU layers: their sizes, types, options."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import Any, TypeVar

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Tensor
from abele.numerics import ElementType, as_element_type, f16, f32
from abele.poplibs.popnn.kinds import NonLinearityType
from abele.poplibs.popnn.nonlinearity import NON_LINEARITIES
from abele.poplibs.popnn.recurrent.product import ProductTypes
from abele.poplibs.poputil.names import camel_case
from abele.poplibs.poputil.options import PROPORTION, Option, Options, choice, element_type, flag, integer, read_options
from abele.words import counted

LSTM_CELLS = ("forget", "input", "cell", "output")
"""Gates of an LSTM in the order in which weights hold them."""
GRU_CELLS = ("reset", "update", "cell")
"""Gates of a GRU in the order in which weights hold them."""
_OF_OUTPUT = tuple(n.name for n in NON_LINEARITIES.values() if n.gradient_takes == "output")

OPTIONS: dict[str, Option] = {
    "inferenceOnly": flag(False),
    "partialsType": element_type(f32),
    "weightAccumulatorsType": element_type(None),
    "preCalcWeights": flag(False),
    "recomputationMode": choice("none", "cellAndTanh", "full"),
    "rnnCodeReuse": flag(False),
    "rnnStepsPerWU": integer(1, 1),
    "numShards": integer(1, 1, 1),
    "availableMemoryProportion": PROPORTION,
}
"""Options of recurrent layers. ``rnnCodeReuse`` changes nothing: the steps are one loop, whose code is there once."""


_Params = TypeVar("_Params", bound=type)


def with_poplibs_fields(cls: _Params) -> _Params:
    """``cls`` with its fields under PopLibs' names too, which may be set: ``params.outputFullSequence = False``."""
    ours = {camel_case(f.name): f.name for f in fields(cls) if camel_case(f.name) != f.name}

    def assign(self: Any, name: str, value: Any) -> None:
        if name not in ours:
            raise TensorError(
                f"{self.kind}: {name} cannot be set once the parameters are made",
                remedy="give it when they are made; what may be set is " + ", ".join(ours),
            )
        checked = replace(self, **{ours[name]: value})
        object.__setattr__(self, ours[name], getattr(checked, ours[name]))

    for theirs, name in ours.items():
        setattr(cls, theirs, property(operator.attrgetter(name)))
    setattr(cls, "__setattr__", assign)  # noqa: B010  The class is frozen otherwise.
    return cls


@dataclass(frozen=True)
class RecurrentParams:
    """A recurrent layer.

    Attributes:
        dtype: Type of inputs, states and weights: f16 or f32.
        batch: Samples.
        time_steps: Steps, or the most steps where ``lengths`` says how many there are.
        layer_sizes: Input size and hidden units.
        lengths: Steps of each sample, u32[batch] or u32[1], or None: all. Later outputs are 0, and states stay.
        activation: Non-linearity of the candidate and of the state.
        recurrent_activation: Non-linearity of the gates.
        output_full_sequence: True for an output of all steps, False for that of the last alone.
        do_input_weight_calc: True if the input is multiplied by weights; otherwise it holds the products already.
        calc_input_gradients: True if the backward pass makes the gradient of the input.
        preserve_final_state: True if the layer's final state is asked for; it is always returned.
        cell_order: Order of the gates in weights and biases; empty for the layer's own.
    """

    dtype: ElementType
    batch: int
    time_steps: int
    layer_sizes: tuple[int, int]
    lengths: Tensor | None = None
    activation: str = "tanh"
    recurrent_activation: str = "sigmoid"
    output_full_sequence: bool = True
    do_input_weight_calc: bool = True
    calc_input_gradients: bool = True
    preserve_final_state: bool = False
    cell_order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_element_type(self.dtype))
        self._read_poplibs_order()
        if not isinstance(self.layer_sizes, Iterable):
            raise TensorError(f"{self.kind}: layer sizes {self.layer_sizes!r}", remedy="(input size, hidden units)")
        object.__setattr__(self, "layer_sizes", tuple(self.layer_sizes))
        if self.dtype not in (f16, f32):
            raise TypeMismatchError(f"{self.kind}: data type {self.dtype}; f16 and f32 are supported")
        sizes = (self.batch, self.time_steps, *self.layer_sizes)
        if not all(isinstance(n, Integral) for n in sizes):
            raise TensorError(f"{self.kind}: batch, steps and layer sizes {list(sizes)} must be whole numbers")
        if len(self.layer_sizes) != 2 or min(sizes) < 1:
            raise TensorError(
                f"{self.kind}: batch {self.batch}, {self.time_steps} steps and layer sizes {list(self.layer_sizes)}",
                remedy="all at least 1, and two layer sizes: input size, hidden units",
            )
        for name in (self.activation, self.recurrent_activation):
            if name.lower() not in _OF_OUTPUT:
                raise InvalidOptionError(
                    f"{self.kind}: activation {name!r}",
                    because="its gradient must follow from its output",
                    remedy=", ".join(_OF_OUTPUT),
                )
        order = self.cell_order or self.cells
        if sorted(order) != sorted(self.cells):
            raise InvalidOptionError(
                f"{self.kind}: cell order {', '.join(order)}", remedy="a permutation of " + ", ".join(self.cells)
            )
        object.__setattr__(self, "cell_order", tuple(order))
        self._check_lengths()

    def _read_poplibs_order(self) -> None:
        """PopLibs' constructors have the steps of sequences before the layer sizes, or the non-linearities after."""
        if isinstance(self.layer_sizes, Tensor):
            sizes, lengths = self.lengths, self.layer_sizes
            object.__setattr__(self, "layer_sizes", sizes)
            object.__setattr__(self, "lengths", lengths)
        elif isinstance(self.lengths, str):
            given = isinstance(self.activation, NonLinearityType) or self.activation != "tanh"
            if given:
                object.__setattr__(self, "recurrent_activation", self.activation)
            object.__setattr__(self, "activation", self.lengths)
            object.__setattr__(self, "lengths", None)

    def _check_lengths(self) -> None:
        if self.lengths is not None and (self.lengths.dtype.kind != "uint" or self.lengths.size not in (1, self.batch)):
            raise TensorError(
                f"{self.kind}: lengths are u32 of 1 or {counted(self.batch, 'element')}, got {self.lengths!r}"
            )

    @property
    def kind(self) -> str:
        """Name of the layer, for errors."""
        return "recurrent layer"

    @property
    def cells(self) -> tuple[str, ...]:
        """Its gates."""
        return ()

    @property
    def input_size(self) -> int:
        """Columns of the input."""
        return self.layer_sizes[0]

    @property
    def hidden(self) -> int:
        """Hidden units."""
        return self.layer_sizes[1]

    @property
    def updates_in_backward_loop(self) -> bool:
        """True if the gradients of the weights are made in the backward loop, False for a loop of their own.

        Turned weights live through the backward loop, gradients of the gates of all steps from there to a loop of its
        own: the fewer elements decide, as in PopLibs (``interleavedWUIsBeneficial`` of Lstm.cpp and Gru.cpp). Both
        have as many elements for each gate and hidden unit.
        """
        return sum(self.layer_sizes) <= self.batch * self.time_steps

    def check(self, what: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
        """Raise a typed error unless ``tensor`` has this shape and the layer's type.

        Raises:
            TensorError: Another shape.
            TypeMismatchError: Another type.
        """
        if tensor.shape != shape:
            raise TensorError(f"{self.kind}: {what} {tensor!r} has shape {list(tensor.shape)}, needs {list(shape)}")
        if tensor.dtype != self.dtype:
            raise TypeMismatchError(f"{self.kind}: {what} {tensor!r} is of {tensor.dtype}, the layer of {self.dtype}")


@with_poplibs_fields
@dataclass(frozen=True)
class LstmParams(RecurrentParams):
    """An LSTM layer; gates are ``forget``, ``input``, ``cell`` (the candidate) and ``output``."""

    @property
    def kind(self) -> str:
        """Name of the layer, for errors."""
        return "lstm"

    @property
    def cells(self) -> tuple[str, ...]:
        """Its gates."""
        return LSTM_CELLS


@with_poplibs_fields
@dataclass(frozen=True)
class GruParams(RecurrentParams):
    """A GRU layer; gates are ``reset``, ``update`` and ``cell`` (the candidate).

    Attributes:
        reset_after: True if the reset gate multiplies the product of the state, with a bias of its own, rather than
            the state.
    """

    reset_after: bool = field(default=False)

    @property
    def kind(self) -> str:
        """Name of the layer, for errors."""
        return "gru"

    @property
    def cells(self) -> tuple[str, ...]:
        """Its gates."""
        return GRU_CELLS


@dataclass(frozen=True)
class RecurrentOptions:
    """Options of one call; see :data:`OPTIONS`."""

    inference_only: bool
    recomputation: str
    steps_per_update: int
    pre_calc: bool
    types: ProductTypes


def recurrent_options(params: RecurrentParams, given: Options) -> RecurrentOptions:
    """The options of a call of this layer.

    Raises:
        InvalidOptionError: One that there is not, or a value that it does not take.
    """
    values: dict[str, Any] = read_options(params.kind, given, OPTIONS)
    per_update = values["rnnStepsPerWU"]
    if params.time_steps % per_update:
        raise InvalidOptionError(
            f"{params.kind}: rnnStepsPerWU {per_update} does not divide the {counted(params.time_steps, 'step')}",
            remedy="a divisor of the steps",
        )
    types = ProductTypes(
        values["partialsType"],
        values["weightAccumulatorsType"] or params.dtype,
        values["availableMemoryProportion"],
    )
    mode = values["recomputationMode"]
    return RecurrentOptions(values["inferenceOnly"], mode, per_update, values["preCalcWeights"], types)

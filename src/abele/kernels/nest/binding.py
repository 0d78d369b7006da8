"""Input of a planner: kernels bound through strided views to buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from abele.arrays import Array
from abele.errors import TensorError, TypeMismatchError
from abele.kernels.nest.ir import HostKernel
from abele.kernels.target import HostTarget, host_target
from abele.layout import Modes, row_major
from abele.numerics import ElementType, u32

Factors = Modes
"""One dim of a view, outermost factor first: (extent, stride in elements) each; their extents multiply to the dim's."""


@dataclass(frozen=True)
class Buffer:
    """Storage that kernels read and write.

    Attributes:
        id: The caller's number for it.
        shape: Shape of the variable; its elements count in row-major order.
        type: Element type.
        pinned: True: storage is the caller's, row-major, valid before and after the plan runs. False: nothing reads it
            before the plan's first write nor after the plan's end, so the plan may lay it out as it likes, or drop it.
        name: For listings.
        elements: Contents, in any shape, if they never change.
    """

    id: int
    shape: tuple[int, ...]
    type: ElementType
    pinned: bool = True
    name: str = ""
    elements: Array | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class OperandBinding:
    """The view through which a kernel operand sees a buffer.

    Attributes:
        buffer: Id of the buffer.
        factors: For every dim of the operand its factors; a broadcast dim has stride 0, a reversed one a negative
            stride.
        offset: Element of the buffer at which the view's first element lies.
    """

    buffer: int
    factors: tuple[Factors, ...]
    offset: int = 0


@dataclass(frozen=True)
class BoundKernel:
    """A kernel with its inputs and outputs bound, in operand order; its temporaries belong to the plan.

    Attributes:
        kernel: Kernel to compute.
        bindings: Bindings of inputs, then outputs.
        name: For listings and profiles.
        origins: The caller's numbers of the calls that it carries out; every leaf names those that it has a part in.
        moves: True for a copy that planning itself put before or behind a call.

    Raises:
        TensorError: Number of bindings or the shape of a view does not fit the kernel.
    """

    kernel: HostKernel
    bindings: tuple[OperandBinding, ...]
    name: str = "call"
    origins: frozenset[int] = frozenset()
    moves: bool = False

    def __post_init__(self) -> None:
        wanted = self.kernel.num_inputs + self.kernel.num_outputs
        if len(self.bindings) != wanted:
            raise TensorError(f"{self.name}: kernel has {wanted} inputs and outputs, {len(self.bindings)} are bound")
        for number, binding in enumerate(self.bindings):
            shape = tuple(_extent(factors) for factors in binding.factors)
            if shape != self.kernel.shapes[number]:
                expected = list(self.kernel.shapes[number])
                raise TensorError(f"{self.name}: operand %{number} has shape {expected}, its view {list(shape)}")


@dataclass(frozen=True)
class StoreRounding:
    """Rounding of results to narrow floats, where it is not simply to nearest.

    Attributes:
        seed: Seed of random rounding, a u32[2]: id of a pinned buffer, later the number of its space; None where
            results are rounded to nearest.
        saturates: True if values too large become the largest number, rather than infinity.
    """

    seed: int | None = None
    saturates: bool = False


@dataclass(frozen=True)
class BoundCalls:
    """Straight run of calls, every buffer of theirs by id, and the CPU that will run them.

    Results are rounded to nearest where ``rounding`` does not say otherwise.
    """

    buffers: Mapping[int, Buffer]
    calls: tuple[BoundKernel, ...]
    target: HostTarget
    rounding: StoreRounding | None = None


def bind(buffer: Buffer) -> OperandBinding:
    """The view of a whole buffer in its own shape."""
    return OperandBinding(buffer.id, tuple((mode,) for mode in zip(buffer.shape, row_major(buffer.shape), strict=True)))


def bound_calls(
    buffers: Sequence[Buffer],
    calls: Sequence[BoundKernel],
    target: HostTarget | None = None,
    rounding: StoreRounding | None = None,
) -> BoundCalls:
    """``calls`` with the buffers that they are bound to, checked; for this CPU unless there is a ``target``.

    Raises:
        TensorError: A binding names no buffer or reaches outside it.
        TypeMismatchError: A buffer holds another type than the kernel wants.
    """
    known = {b.id: b for b in buffers}
    for call in calls:
        check_bindings(call, known)
    if rounding is not None and rounding.seed is not None:
        _check_seed(known, rounding.seed)
    return BoundCalls(known, tuple(calls), target or host_target(), rounding)


def _check_seed(buffers: Mapping[int, Buffer], seed: int) -> None:
    if seed not in buffers:
        raise TensorError(f"no buffer {seed}", at="the seed of random rounding")
    buffer = buffers[seed]
    if buffer.type != u32 or buffer.shape != (2,) or not buffer.pinned:
        raise TypeMismatchError(
            f"the seed of random rounding is a pinned u32[2], buffer {seed} is {buffer.type}{list(buffer.shape)}"
        )


def check_bindings(call: BoundKernel, buffers: Mapping[int, Buffer]) -> None:
    """Check that every binding of ``call`` names a buffer of the operand's type and stays inside it.

    Raises:
        TensorError: No such buffer, or a view that reaches outside it.
        TypeMismatchError: The buffer holds another element type.
    """
    for number, binding in enumerate(call.bindings):
        at = f"operand %{number} of {call.name}"
        if binding.buffer not in buffers:
            raise TensorError(f"no buffer {binding.buffer}", at=at)
        buffer = buffers[binding.buffer]
        if buffer.type != call.kernel.types[number]:
            raise TypeMismatchError(
                f"buffer {buffer.name or buffer.id} holds {buffer.type}, the kernel wants {call.kernel.types[number]}",
                at=at,
            )
        steps = [s * (n - 1) for factors in binding.factors for n, s in factors]
        # Reversed dims reach below the offset, others above it.
        low, high = binding.offset + sum(min(s, 0) for s in steps), binding.offset + sum(max(s, 0) for s in steps)
        size = _extent(tuple((n, 0) for n in buffer.shape))
        if low < 0 or high >= size:
            name = buffer.name or str(buffer.id)
            raise TensorError(f"view of buffer {name} runs from element {low} to {high}, it has {size}", at=at)


def _extent(factors: Factors) -> int:
    product = 1
    for extent, _ in factors:
        product *= extent
    return product

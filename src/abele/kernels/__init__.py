"""Host kernels: the computation of library calls as data, and native plans that run it fast.

``kernels.nest.ir`` holds the nest IR, ``kernels.nest.reference.evaluate`` its meaning in NumPy. A straight run of
library calls becomes native code in one call::

    plan = plan_native(buffers, calls)          # Sequence[Buffer], Sequence[BoundKernel] -> NativePlan

- ``Buffer(id, shape, type, pinned, name)``: a variable. Pinned: the caller owns row-major storage that is valid before
  and after (weights, stream targets, whatever tile supersteps or the host see). Not pinned: only the calls of this
  plan touch it, all written before read; it gets no storage from the caller and may not exist at all.
- ``BoundKernel(kernel, bindings, name)``: bindings for inputs, then outputs, each ``OperandBinding(buffer, factors,
  offset)`` with ``factors[dim] = ((extent, stride), ...)`` in elements of the buffer, outermost first, as
  ``Tensor.strided()`` gives.
  An in-place operand is bound twice, as input and as output. A copy between tensors is a call of
  ``copy_kernel(shape, type)``.
- ``plan.leaves``: run in order, a barrier after each. ``PlanLeaf.address`` is a native function
  ``void leaf(i64 begin, i64 end, void** args)`` over units [0, ``PlanLeaf.units``), split over the threads in any way
  (contiguous shares are best); results have the same bits for any split. ``PlanLeaf.args`` tells each pointer:
  ``LeafArgument("buffer", id)`` storage of a pinned buffer; ``("arena", byte)`` a place in one block of
  ``plan.arena_bytes`` that the caller allocates for the plan; ``("scratch", 0)`` the thread's own block of
  ``plan.scratch_bytes``; ``("address", value)`` a fixed pointer. Blocks are aligned to 64 bytes and need no initial
  contents. All but scratch are the same for every thread. Leaves expect flush-to-zero mode to be set by the thread.
- Keep ``plan`` alive as long as its leaves may run.
"""

from abele.kernels.nest.binding import BoundKernel, Buffer, OperandBinding, StoreRounding, bind
from abele.kernels.nest.copy_kernel import copy_kernel
from abele.kernels.nest.ir import HostKernel
from abele.kernels.nest.reference import evaluate
from abele.kernels.plan.native_plan import LeafArgument, NativePlan, PlanLeaf
from abele.kernels.plan.passes import dump_passes, plan_native

__all__ = [
    "BoundKernel",
    "Buffer",
    "HostKernel",
    "LeafArgument",
    "NativePlan",
    "OperandBinding",
    "PlanLeaf",
    "StoreRounding",
    "bind",
    "copy_kernel",
    "dump_passes",
    "evaluate",
    "plan_native",
]

"""Counts of small and large gradients: what an automatic scale of the loss is to know of them.

Counts are made where gradients are, also inside of functions, loops and branches, which then have them as one more
result; so no gradient is kept for them, and none is looked at that the backward pass does not make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from abele.errors import InvalidOptionError, nearest
from abele.network.automatic_scale import AutomaticLossScale, GradientTracking, modules_around
from abele.network.ir import BlockBuilder, NetworkBuilder, NetworkOp, Place, Stage, Value
from abele.network.ops import build
from abele.network.registry import Gradients
from abele.numerics import f16, f32

COUNTS = "gradients/counts"
"""Name of the accumulator that has the counts; that of further places begins with it."""

_WHOLE = frozenset({"reshape", "permute", "reverse", "transfer"})
"""Kinds of op whose result has the elements of the operand, each once."""

_VIEWS = _WHOLE | {"slice", "concat"}
"""Kinds of op whose results hold only elements of their operands."""

_PRODUCTS = frozenset({"linear", "matmul", "convolution", "convolution_group"})
"""Kinds of op that are matrix products and convolutions."""


@dataclass
class Tracking:
    """Gradients that are counted in a whole network.

    Attributes:
        scale: Choice of the gradients that count.
        types: Element types of the gradients that are to be counted, whether they are float16 or not.
        found: Names of the choice that match something.
        known: All names in the network.
    """

    scale: AutomaticLossScale
    types: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)

    def matches(self, name: str) -> bool:
        """True if gradients of the parameter or module of this name are counted."""
        self.known.update(modules_around(name))
        matching = self.scale.matching(name)
        self.found.update(matching)
        return bool(matching)

    def check(self, *, counted: bool) -> None:
        """Raise unless there is something to follow, of every name.

        Raises:
            InvalidOptionError: Nothing has a name that is given, or no gradient is in float16.
        """
        for name in self.scale.tensors:
            if name not in self.found:
                close = nearest(name, sorted(self.known))
                raise InvalidOptionError(
                    f"automatic loss scaling is to follow the gradients of {name!r}, and there are none",
                    because="no parameter that is trained and no module between them and the loss is called so",
                    remedy=f"did you mean {close!r}?" if close else None,
                )
        if not counted:
            found = ", ".join(sorted(self.types)) or "none at all"
            raise InvalidOptionError(
                "automatic loss scaling has no float16 gradients to follow",
                because=f"the gradients that it is to track are {found}: with none to count as too large, the scale "
                "would double for ever",
                remedy="train a float16 model (model.half()), track other gradients, or leave automatic loss "
                "scaling off",
            )


class BlockCounts:
    """Counts in one block: of the network, a function or a region.

    Args:
        net: Builder of the gradients.
        tracking: Choice of the gradients to count.
    """

    def __init__(self, net: BlockBuilder, tracking: Tracking) -> None:
        self._net = net
        self._method = tracking.scale.tracking
        self.tracking = tracking
        self._seen: set[Value] = set()
        self._made: dict[Place, list[Value]] = {}

    def tracks(self, op: NetworkOp) -> bool:
        """True if the whole gradients of the results of ``op`` are tracked."""
        module = op.debug.path.replace("/", ".")
        return self._method == GradientTracking.ALL or (
            self._method == GradientTracking.NAMED and bool(module) and self.tracking.matches(module)
        )

    def of_results(self, op: NetworkOp, gradients: Gradients) -> None:
        """Count the whole gradients of what ``op`` makes, if they are tracked; of loops :meth:`of_trip` does."""
        if op.kind != "loop" and self.tracks(op):
            for gradient in gradients:
                self._count(gradient)

    def of_trip(self, gradients: Gradients) -> None:
        """Count gradients of values made in a trip of a loop, as they enter its reverse block."""
        for gradient in gradients:
            if gradient is not None and self._is_of_use(gradient):
                self._take(gradient)

    def of_operands(self, op: NetworkOp, gradients: Gradients) -> None:
        """Count what ``op`` adds to the gradients of its operands, if that is tracked."""
        if self._method == GradientTracking.PRODUCTS and op.kind in _PRODUCTS:
            for value, gradient in zip(op.inputs, gradients, strict=True):
                # A bias is no operand of the product.
                self._count(gradient if value.ndim > 1 else None)

    def of_parameter(self, parameter: Value, gradient: Value) -> None:
        """Count the whole gradient of a parameter of the network, if it is tracked."""
        if self._method == GradientTracking.ALL or (
            self._method == GradientTracking.NAMED and self.tracking.matches(parameter.name)
        ):
            self._count(gradient)

    def pass_over(self, start: Value) -> None:
        """Leave out the gradient of the loss by itself, which is the scale."""
        self._seen.add(start)

    def add(self, counts: Value) -> None:
        """Add the counts of a block inside of this one."""
        self._made.setdefault(counts.place, []).append(counts)

    @property
    def all(self) -> list[Value]:
        """The sum of the counts of the block, all of which is at one place; empty if there are none."""
        every = [counts for made in self._made.values() for counts in made]
        return [self._summed(every)] if every else []

    def finish(self, made: NetworkBuilder) -> None:
        """Add the counts of the network to accumulators, one for each place.

        Raises:
            InvalidOptionError: There is nothing to follow.
        """
        self.tracking.check(counted=bool(self._made))
        # Each IPU, and each stage of a pipeline, counts what it makes.
        for number, (place, here) in enumerate(self._made.items()):
            counts = made.accumulator((2,), f32, f"{COUNTS}/{number}" if number else COUNTS)
            with made.at(made.origin.renamed("count_gradients"), stage=Stage.BACKWARD, place=place):
                made.updates[counts] = build.add_counts(made, counts, self._summed(here))
        self._move_up(made)

    def _move_up(self, made: NetworkBuilder) -> None:
        """Let each gradient be counted as soon as it is made: those of parameters need not wait for the others."""
        behind: dict[NetworkOp, list[NetworkOp]] = {}
        for op in made.ops:
            if op.kind == "magnitudes":
                behind.setdefault(made.makers[op.inputs[0]], []).append(op)
        made.ops[:] = [one for op in made.ops if op.kind != "magnitudes" for one in (op, *behind.get(op, ()))]

    def _summed(self, counts: Sequence[Value]) -> Value:
        return counts[0] if len(counts) == 1 else build.sum_counts(self._net, counts)

    def _is_of_use(self, gradient: Value) -> bool:
        self.tracking.types.add(str(gradient.dtype))
        return gradient.dtype == f16 and bool(gradient.size)

    def _count(self, gradient: Value | None) -> None:
        if gradient is not None and self._is_of_use(gradient) and not self._is_counted(gradient):
            self._take(gradient)

    def _take(self, gradient: Value) -> None:
        shown = gradient
        self._seen.add(shown)
        while (op := self._net.makers.get(shown)) is not None and op.kind in _WHOLE:
            shown = op.inputs[0]
            self._seen.add(shown)
        with self._net.at(place=gradient.place):
            self.add(build.magnitudes(self._net, gradient, self.tracking.scale.edge))

    def _is_counted(self, gradient: Value) -> bool:
        """True if all elements were counted, or are none: what enters a block was counted where it was made."""
        op = self._net.makers.get(gradient)
        if gradient in self._seen or op is None or op.kind == "constant":
            return True
        return op.kind in _VIEWS and all(map(self._is_counted, op.inputs))

"""Factors of gradients before updates read them: the loss scale is taken out, and long gradients are clipped.

Gradients are clipped by the norm of all of them, or of those of a *clipping set*: parameters whose optimisers have one
name in ``clipped_with``. Each set has a factor of its own.

Gradients in half precision lose values smaller than 2⁻²⁴. So the loss is multiplied by a scale, with which all
gradients grow, and updates multiply them by its inverse in f32. Both are scalars on the device where the scale may
change.

The **automatic** scale is S·f, of which f starts at 1 and moves at the end of each ``period`` of steps: the magnitudes
of float16 gradients of all micro-batches of its last step are counted below an edge and from there on; if more than a
share are above, f is halved, otherwise doubled. There is no clamp and no hysteresis, so that f hovers about the largest
scale that fits. A gradient that is no number counts as above. Which gradients, and the numbers, are those of an
:class:`~abele.network.automatic_scale.AutomaticLossScale`.

Source: the loss-scaling rule that Graphcore published with PopART.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence

from abele.errors import InvalidOptionError
from abele.graph import Graph, Steps, Tensor, concat
from abele.network.automatic_scale import AutomaticLossScale
from abele.network.optimisers import Group, Optimiser, climbs
from abele.numerics import f32
from abele.poplibs import gcl, popops
from abele.poplibs.gcl import CommGroup
from abele.poplibs.popops import ReduceParams, SingleReduceOp
from abele.poplibs.popops.elementwise.map import map_with_outputs
from abele.poplibs.popops.expr import Expr, ExprLike, Op, _1, _2, _3, _4, select

STEP = 2.0
"""Factor by which the scale rises or falls."""


def loss_scale_of(groups: Sequence[Group]) -> tuple[float, bool]:
    """The scale of the loss, which all groups share, and whether it may change.

    Raises:
        InvalidOptionError: Groups that differ.
    """
    scales = {g.optimiser.loss_scaling for g in groups} or {1.0}
    if len(scales) > 1:
        raise InvalidOptionError(
            f"groups of one optimiser have different loss scales: {', '.join(f'{s:g}' for s in sorted(scales))}",
            remedy="one loss_scaling for all",
        )
    return scales.pop(), any("loss_scaling" in g.optimiser.variable for g in groups)


def sign_of(groups: Sequence[Group]) -> float:
    """Sign of the gradient of the loss: negative where all updates climb, which then descend."""
    return -1.0 if climbs(groups) else 1.0


class GradientScale:
    """The device side of the scale.

    Args:
        graph: Graph of scalars and vertices.
        groups: Optimisers and their parameters.
        automatic: Rule by which the loss scale follows the gradients, if it does.

    Attributes:
        number: Factor of gradients.
        scalar: Further factor on the device, where it may change.
        loss: The scale of the loss on the device, where it may change.
        hyper: Scalars that the host writes, by name.
        state: Scalars that persist, by name.
    """

    def __init__(self, graph: Graph, groups: Sequence[Group], *, automatic: AutomaticLossScale | None = None) -> None:
        self.graph = graph
        self.groups = groups
        scale, changes = loss_scale_of(groups)
        self._scale = scale
        self._norms = _max_norms(groups)
        self.hyper: dict[str, Tensor] = {}
        self.state: dict[str, Tensor] = {}
        self.loss: Tensor | None = None
        self._factor: Tensor | None = None
        self._waited: Tensor | None = None
        self._automatic = automatic
        if changes:
            self.loss = self.hyper["loss_scaling"] = self._made("loss_scaling", scale)
        if automatic is not None:
            self._factor = self.state["loss_scaling/factor"] = self._made("factor", 1.0)
            if automatic.period > 1:
                self._waited = self.state["loss_scaling/steps"] = self._made("steps", 0.0)
            self.loss = self._made("loss_scale", scale)
        is_scalar = self.loss is not None or self.clips
        self.number = 1.0 if is_scalar else 1.0 / scale
        self._of_sets = {
            name: self._made(f"gradient_scale/{name}" if name else "gradient_scale", 1.0 / scale)
            for name in (self._norms if is_scalar else ())
        }
        self.scalar = next(iter(self._of_sets.values()), None)

    def of(self, optimiser: Optimiser) -> GradientScale:
        """The scale for the parameters of an optimiser: that of its clipping set."""
        other = copy.copy(self)
        other.scalar = self._of_sets.get(optimiser.clipped_with)
        return other

    def on(self, graph: Graph) -> GradientScale:
        """The scale for another IPU: a scalar of its own there, which the owner has to send."""
        other = copy.copy(self)
        if self.scalar is not None:
            other.graph = graph
            other.scalar = other._made("gradient_scale", 1.0 / self._scale)
        return other

    @property
    def clips(self) -> bool:
        """True if gradients are shrunk by the norm of several of them together."""
        return any(not math.isinf(norm) for norm in self._norms.values())

    @property
    def clipping_sets(self) -> list[str]:
        """Names of the sets of parameters whose gradients are shrunk together."""
        return [name for name, norm in self._norms.items() if not math.isinf(norm)]

    def _made(self, name: str, initial: float) -> Tensor:
        return self.graph.map(self.graph.variable(f32, (), name=f"gradients/{name}", initial=initial), 0)

    def begin(self, prog: Steps) -> None:
        """Append steps before the micro-batches of a step: the scale of the loss and its inverse."""
        scalars = list(self._of_sets.values())
        if self._factor is not None:
            assert self.loss is not None
            given = self.hyper.get("loss_scaling")
            operands = [self._factor] if given is None else [self._factor, given]
            scale: Expr = _1 * (self._scale if given is None else _2)
            inverses = [1.0 / scale] * len(scalars)
            map_with_outputs(self.graph, [scale, *inverses], operands, [self.loss, *scalars], prog, "scale_of_loss")
        elif self.loss is not None:
            map_with_outputs(self.graph, [1.0 / _1] * len(scalars), [self.loss], scalars, prog, "inverse_scale")

    def before_updates(
        self,
        gradients: Sequence[Tensor],
        share: float,
        prog: Steps,
        *,
        shards: Sequence[Tensor] = (),
        parts: Mapping[int, CommGroup] | None = None,
        clipping_set: str = "",
    ) -> None:
        """Append steps after the micro-batches: long gradients are clipped, as if they were one vector.

        Args:
            gradients: Of all parameters that replicas have whole.
            share: Factor in updates, to make a mean of a sum.
            prog: Sequence that the step is appended to.
            shards: The replica's shares of the others.
            parts: By number in ``gradients``, those that are parts, and the replicas that have all of them together.
            clipping_set: Name of the set that these are all gradients of.
        """
        if clipping_set not in self.clipping_sets or not (gradients or shards):
            return
        scalar, limit = self._of_sets[clipping_set], self._norms[clipping_set]
        # One sum of squares per tensor, all in one reduction.
        every = [*gradients, *shards]
        wanted = [SingleReduceOp(t, tuple(range(t.ndim)), ReduceParams("SQUARE_ADD"), f32, "square") for t in every]
        squares = popops.reduce_many(self.graph, wanted, prog, name="gradient_norms")
        # Parts of split layers add up over the replicas of their group.
        for group in dict.fromkeys((parts or {}).values()):
            own = [number for number, of in (parts or {}).items() if of == group]
            split = concat([squares[number].reshape((1,)) for number in own])
            total = gcl.all_reduce_cross_replica(self.graph, split, "add", prog, group, name="norms_of_parts")
            for place, number in enumerate(own):
                squares[number] = total[place]
        together = concat([s.reshape((1,)) for s in squares])
        # Shares add up over all replicas, whole gradients are the same on each.
        if shards:
            part = popops.reduce(self.graph, together[len(gradients) :], [0], "ADD", prog, name="square_of_shares")
            whole = gcl.all_reduce_cross_replica(self.graph, part, "add", prog, name="square_of_replicas")
            together = concat([together[: len(gradients)], whole.reshape((1,))])
        total = popops.reduce(self.graph, together, [0], "ADD", prog, name="square_of_norm")
        # The norm of the unscaled mean; the factor divides by it where it is above the limit.
        inverse: ExprLike = _1 if self.loss is not None else 1.0 / self._scale
        norm = Op("sqrt", _2) * inverse * share
        shrunk = inverse * (limit / Op("max", norm, limit))
        map_with_outputs(self.graph, [shrunk], [scalar, total], [scalar], prog, "clip_by_norm")

    def end(self, counts: Tensor | None, prog: Steps) -> None:
        """Append steps after the updates: the automatic scale moves.

        Args:
            counts: Gradients of the step below and from the edge on, f32[2]; None if there are none in float16.
            prog: Sequence that the step is appended to.
        """
        if self._factor is None or counts is None:
            return
        assert self._automatic is not None
        share, period = self._automatic.threshold_proportion, float(self._automatic.period)
        # The shares of both sides: a quotient would have none where all or nothing is allowed to be large.
        moved = select(_1 / STEP, _1 * STEP, _3 * (1.0 - share) > _2 * share)
        operands, outputs, after = [self._factor, counts[0], counts[1]], [self._factor], [moved]
        if self._waited is not None:
            is_last = _4 + 1.0 >= period
            after = [select(moved, _1, is_last), select(0.0, _4 + 1.0, is_last)]
            operands, outputs = [*operands, self._waited], [*outputs, self._waited]
        map_with_outputs(self.graph, after, operands, outputs, prog, "move_scale")


def _max_norms(groups: Sequence[Group]) -> dict[str, float]:
    """The norm that gradients of each clipping set together may have.

    Raises:
        InvalidOptionError: Groups of one set that differ.
    """
    found: dict[str, float] = {}
    for optimiser in (g.optimiser for g in groups):
        norm = found.setdefault(optimiser.clipped_with, optimiser.max_grad_norm)
        if norm != optimiser.max_grad_norm:
            raise InvalidOptionError(
                f"groups of one optimiser have different norms: {norm:g}, {optimiser.max_grad_norm:g}",
                because="gradients of all parameters are shrunk together",
                remedy="one max_grad_norm for all, or a name of each group in clipped_with",
            )
    return found or {"": math.inf}

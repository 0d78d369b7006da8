"""Reverse-mode differentiation: the gradients of the loss by parameters, as ops of the same network.

Reverse mode: from the last op to the first, each op whose results the loss depends on appends the gradients of its
operands (:meth:`~abele.network.registry.OpRule.backward`). Gradients that reach a value along several paths are added
in one op when the op that makes the value is reached. That is right because by then every reader has had its turn.
For the loss y² of y = w·x with w = 3 and x = 2, the square gives y the gradient 2y = 12; then the product gives w the
gradient 12x = 24, and x 12w = 36.

Control flow is differentiated as follows, so that nothing is unrolled:

* A **call** of ``f`` becomes a call of ``f.forward``, which also returns what the backward pass needs, and a call of
  ``f.backward`` on that. Both are made once, however often ``f`` is called.
* A **loop** also writes what its backward pass needs of each trip into a row of a table, and a loop over the trips in
  reverse reads the rows. What the body reads and never changes is not in tables; its gradient is summed over trips.
* A **branch** becomes a branch on the same operand in which each region computes its forward pass again and then its
  backward pass. Keeping the forward values of whichever region ran would need memory for those of all of them.
* A **checkpoint** becomes one that computes its forward pass again in the same way.
* A **while** loop is refused: how many rows its tables need is not known.

What a block's backward pass needs of its forward pass is found by writing the one as a region of the other: whatever
the region captures is what has to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from abele.errors import TensorError
from abele.expr import Const, derivative
from abele.network.autodiff.gradient_counts import BlockCounts, Tracking
from abele.network.autodiff.rebuild import RebuildRule, Recipes
from abele.network.autodiff.split_block import at_once, split
from abele.network.automatic_scale import AutomaticLossScale
from abele.network.ir import (
    HERE,
    SAME_ELEMENTS,
    BlockBuilder,
    FrozenDict,
    Network,
    NetworkBuilder,
    NetworkFunction,
    NetworkOp,
    OpBlock,
    RegionBuilder,
    Stage,
    Value,
    differentiable,
    needed,
)
from abele.network.ops import build
from abele.network.registry import Gradients, rule_of
from abele.numerics import f32, i32

Pending = dict[Value, list[Value]]
"""The gradients that have reached each value so far."""

_Wants = tuple[NetworkFunction, tuple[bool, ...], tuple[bool, ...]]
"""Key of a differentiated function: the function, True for each result with a gradient, True for each parameter to have
one.
"""


def differentiate(
    net: Network,
    wanted: Iterable[Value],
    *,
    scale: float = 1.0,
    variable_scale: float | None = None,
    counted: AutomaticLossScale | None = None,
    rebuilt_above: int | None = None,
) -> Network:
    """``net`` with the gradient of its loss by each of ``wanted``.

    Args:
        net: A network with a loss.
        wanted: Values that enter, usually parameters.
        scale: Gradient of the loss by itself.
        variable_scale: Initial value of a further factor, where that may change on the device.
        counted: Choice of gradients that are counted by magnitude, where an automatic scale follows them.
        rebuilt_above: Bytes of an activation above which it is made again of what is kept anyway; None to keep all.

    Raises:
        TensorError: The network has no loss.
        UnsupportedOpError: An op between them has no derivative.
        InvalidOptionError: Gradients are to be counted, and there are none in float16.
    """
    if net.loss is None:
        raise TensorError("the network has no loss to differentiate")
    made, sources = NetworkBuilder.of(net), list(wanted)
    with made.at(stage=Stage.BACKWARD):
        with made.at(place=net.loss.place):
            start = _start(made, net.loss, scale, variable_scale)
            pending: Pending = {net.loss: [start]}
        # A parameter that the model changed in place is that parameter still: its gradient counts as well, and goes no
        # further, since such changes have no derivative.
        changed = {v: net.updates[v] for v in sources if net.updates.get(v, v) is not v}
        # Gradients are made only for values between the loss and what is wanted.
        reached = differentiable(net.ops, [*sources, *changed.values()])
        counts = None if counted is None else BlockCounts(made, Tracking(counted))
        if counts is not None:
            counts.pass_over(start)
        ends = frozenset(changed.values())
        kept = dict.fromkeys(changed.values())
        rule = None if rebuilt_above is None else RebuildRule.of(net, rebuilt_above)
        reverse = _Reverse(made, kept=kept, ends=ends, counts=counts, rule=rule)
        reverse.run(needed(net.ops, [net.loss]), reached, pending)
        for parameter, value in changed.items():
            late = reverse.kept[value]
            parts = [late] if late is not None else pending.pop(value, [])
            if parts:
                pending.setdefault(parameter, []).extend(parts)
        for parameter in (v for v in sources if v in pending):
            with made.at(place=parameter.place):
                made.gradients[parameter] = _total(made, pending[parameter])
                if counts is not None:
                    counts.of_parameter(parameter, made.gradients[parameter])
        if counts is not None:
            counts.finish(made)
    made.loss = None
    return made.finish()


def _start(net: BlockBuilder, loss: Value, scale: float, variable_scale: float | None) -> Value:
    """The gradient of the loss by itself."""
    if variable_scale is None:
        return build.full(net, scale, loss.shape, loss.dtype)
    with net.at(place=HERE):  # Where the number is that the host writes.
        start = build.loss_scale(net, variable_scale, loss.dtype)
    if scale != 1:
        start = build.map_(net, derivative.arg(0) * Const(scale, loss.dtype), [start])
    return build.expand(net, start, loss.shape) if loss.shape else start


def gradients(
    net: BlockBuilder, results: Sequence[Value], given: Sequence[Value], sources: Sequence[Value]
) -> list[Value]:
    """The gradients of sources from those of results, appended as ops of the forward pass.

    What is appended is differentiated like any other op: derivatives of derivatives need nothing more.

    Args:
        net: Builder to extend; its ops make the results.
        results: Values that depend on the sources.
        given: The gradient of each result.
        sources: Values that enter or that ops make; zeros for those that the results do not depend on.

    Raises:
        UnsupportedOpError: An op between them has no derivative.
    """
    pending: Pending = {}
    for result, gradient in zip(results, given, strict=True):
        pending.setdefault(result, []).append(gradient)
    reverse = _Reverse(net, stage=Stage.FORWARD, kept=dict.fromkeys(sources))
    reverse.run(needed(net.ops, results), differentiable(net.ops, sources), pending)
    found = {v: _total(net, pending[v]) if v in pending else reverse.kept[v] for v in sources}
    return [found[v] or _zeros(net, v) for v in sources]


def _total(net: BlockBuilder, parts: list[Value]) -> Value:
    """The sum of gradients that reach one value along several paths, as one op."""
    return parts[0] if len(parts) == 1 else build.total(net, parts)


def _zeros(net: BlockBuilder, like: Value) -> Value:
    return build.full(net, 0.0, like.shape, like.dtype)


class _Reopened(BlockBuilder):
    """A block whose ops another block is about to read, and that can be given further results."""

    def __init__(self, block: OpBlock, root: NetworkBuilder) -> None:
        super().__init__()
        self._root = root
        self._defined.update(block.parameters)
        for op in block.ops:
            self.append(op)

    @property
    def root(self) -> NetworkBuilder:
        return self._root


class _BackwardRegion(RegionBuilder):
    """The backward pass of a block, which makes views of what it reads itself.

    So a forward pass keeps a tensor once, and not each of its shapes: of an attention's shares for instance
    [1, 16, 1024, 1024] for the gradient of softmax, and not [16, 1024, 1024] for that of the product as well.

    Args:
        forward: The block.
        at_hand: Values that the caller has in any case.
    """

    def __init__(self, forward: BlockBuilder, at_hand: Iterable[Value]) -> None:
        super().__init__(forward)
        self._at_hand = frozenset(at_hand)

    def _import(self, value: Value) -> Value:
        maker = self.outer.makers.get(value)
        if maker is None or maker.kind not in SAME_ELEMENTS or value in self._at_hand:
            return super()._import(value)
        made = replace(value, name="", stage=Stage.BACKWARD, place=self._place)
        self.append(replace(maker, inputs=(self.read(maker.inputs[0]),), outputs=(made,)))
        return made


_BY_WEIGHT = "convolution_grad_weight"
"""Kind of the gradients by weights that write their operands anew."""
_RECOMPUTED = "recomputed"
"""Begin of names of functions that a checkpoint's two passes call."""


@dataclass(frozen=True)
class _Linear:
    """A block taken apart into a forward and a backward block.

    Attributes:
        forward: The block, with what it is to keep as further results.
        kept: Number of results that are further ones.
        backward: Takes gradients of results, then ``needs``; gives gradients of parameters.
        needs: Parameters of the block, and results of ``forward``, that the backward block reads.
        gives: For each parameter, whether the backward block gives its gradient.
        counts: True if the last result of ``backward`` is how many gradients in it were small and large.
    """

    forward: OpBlock
    kept: int
    backward: OpBlock
    needs: tuple[Value, ...]
    gives: tuple[bool, ...]
    counts: bool = False


@dataclass
class _Reverse:
    """One backward pass over the ops of one block.

    Attributes:
        net: Builder that gradients are appended to; it can read the values of the ops.
        home: The builder that has the ops, for those that have to keep more than they did.
        functions: Forward and backward parts of functions, for the whole network.
        stage: Of what is appended.
        kept: Values whose gradients are asked for though ops make them; filled on the way.
        ends: Values through which nothing is differentiated.
        counts: Counts gradients by magnitude, where that is asked for.
        rule: Choice of the activations that are made again; None to keep all.
        recipes: Values that are made again, with the way.
        rebuilt: Values that were made again, with what took their places.
        there: Values that are not made again, since they are kept for others.
        remade: Ops that made values again, by value.
        by_weight: Gradients by weights so far, by operand.
    """

    net: BlockBuilder
    home: BlockBuilder | None = None
    functions: dict[_Wants, tuple[_Linear, NetworkFunction, NetworkFunction]] = field(default_factory=dict)
    stage: Stage = Stage.BACKWARD
    kept: dict[Value, Value | None] = field(default_factory=dict)
    ends: frozenset[Value] = frozenset()
    counts: BlockCounts | None = None
    rule: RebuildRule | None = None
    recipes: Recipes = field(default_factory=dict)
    rebuilt: dict[Value, Value] = field(default_factory=dict)
    there: frozenset[Value] = frozenset()
    remade: dict[Value, list[NetworkOp]] = field(default_factory=dict)
    by_weight: dict[Value, list[NetworkOp]] = field(default_factory=dict)

    def run(self, ops: Sequence[NetworkOp], reached: set[Value], pending: Pending) -> None:
        """Append the gradients of the operands of ``ops``.

        Args:
            ops: In order; all that lies between what is in ``pending`` and what is wanted.
            reached: Values whose gradients are of use.
            pending: Gradients of results; those of operands are added.
        """
        if self.rule is not None:
            recipes = self.rule.recipes(ops, reached, products=self._home is not self.net)
            self.recipes = {v: recipe for v, recipe in recipes.items() if v not in self.there}
        for op in reversed(ops):
            if any(v in pending for v in op.outputs) and reached.intersection(op.inputs):
                self._op(op, reached, pending)

    def _op(self, op: NetworkOp, reached: set[Value], pending: Pending) -> None:
        net, wanted = self.net, [v in reached for v in op.inputs]
        name = f"{op.debug.name}/grad" if op.debug.name else ""
        with net.at(op.debug.renamed(name), stage=self.stage, place=op.place, hint=op.hint):
            # Every reader of these results comes later in the network, so it has been here: the sum is complete.
            grads = [_total(net, pending.pop(v)) if v in pending else None for v in op.outputs]
            self.kept |= {v: g for v, g in zip(op.outputs, grads, strict=True) if v in self.kept}
            if self.counts is not None:
                self.counts.of_results(op, grads)
            if self.ends.issuperset(op.outputs):
                return
            special = {
                "call": self._call,
                "loop": self._loop,
                "cond": self._branch,
                "switch": self._branch,
                "checkpoint": self._again,
            }
            backward = special.get(op.kind)
            start = len(net.ops)
            with net.reading(self._again_made if self.recipes else None):
                gradients = backward(op, grads, wanted) if backward else rule_of(op).backward(net, op, grads, wanted)
            self._delay_weight_gradients(op, start)
            if self.counts is not None:
                self.counts.of_operands(op, gradients)
            for value, gradient in zip(op.inputs, gradients, strict=True):
                if gradient is not None and value in reached:
                    assert gradient.shape == value.shape, f"{op}: gradient {gradient} of {value}"
                    pending.setdefault(value, []).append(gradient)

    def _again_made(self, value: Value) -> Value:
        """``value``, or what is made here instead of keeping it; once, before its first reader."""
        recipe = self.recipes.get(value)
        if recipe is None:
            return value
        if value not in self.rebuilt:
            name, net = self._home.makers[value].debug, self.net
            start = len(net.ops)
            with net.reading(None), net.at(name.renamed(f"{name.name}/again") if name.name else name):
                self.rebuilt[value] = recipe.made(net, value, self._again_made)
            self.remade[value] = net.ops[start:]
        return self.rebuilt[value]

    def _delay_weight_gradients(self, op: NetworkOp, start: int) -> None:
        """Move gradients by weights that read what ``op`` made behind its own gradient, if that reads it as well.

        Gradients by weights write both operands anew. As the last readers they hold neither beside the copies: in
        convolution → norm → ReLU → convolution the output of the ReLU, and the gradient of what it became.
        """
        ops = self.net.ops
        emitted = ops[start:]
        for made in op.outputs:
            value = self.rebuilt.get(made, made)
            waiting = self.by_weight.get(value, [])
            if not waiting or not any(value in o.inputs for o in emitted):
                continue
            read = {v for o in ops for v in o.inputs}
            moved = [o for o in waiting if read.isdisjoint(o.outputs)]
            ops[:] = [*(o for o in ops if o not in moved), *moved]
            if made in self.rebuilt:
                # What was made again for them is made for the reader that is now the first.
                first = next(n for n, o in enumerate(ops) if value in o.inputs)
                made_by, before = self.remade[made], ops[:first]
                read = {v for o in before if o not in made_by for v in o.inputs}
                late = [o for o in made_by if read.isdisjoint(o.outputs)]
                ops[:first] = [*(o for o in before if o not in late), *late]
        for each in emitted:
            if each.kind == _BY_WEIGHT:
                for operand in each.inputs:
                    self.by_weight.setdefault(operand, []).append(each)

    @property
    def _home(self) -> BlockBuilder:
        return self.home or self.net

    def _inner(self, net: BlockBuilder, home: BlockBuilder) -> _Reverse:
        """The backward pass over the ops of a block inside of this one."""
        counts = None if self.counts is None else BlockCounts(net, self.counts.tracking)
        return _Reverse(net, home, self.functions, counts=counts, rule=self.rule)

    def _counted(self, made: Sequence[Value], *, has_counts: bool) -> Sequence[Value]:
        """Results of an op with blocks, without its counts at the end; these are added to the counts here."""
        if not has_counts:
            return made
        assert self.counts is not None
        self.counts.add(made[-1])
        return made[:-1]

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _linear(
        self,
        block: OpBlock,
        graded: Sequence[bool],
        wanted: Sequence[bool],
        there: frozenset[Value] = frozenset(),
    ) -> _Linear:
        """A block taken apart, for gradients of some results by some parameters; results ``there`` are kept anyway."""
        forward = _Reopened(block, self.net.root)
        backward = _BackwardRegion(forward, (*block.parameters, *block.results))
        pending: Pending = {}
        with backward.at(stage=Stage.BACKWARD):
            for result, has_gradient in zip(block.results, graded, strict=True):
                if has_gradient:
                    pending.setdefault(result, []).append(backward.parameter(result))
            sources = [p for p, want in zip(block.parameters, wanted, strict=True) if want]
            reached = differentiable(block.ops, sources)
            inner = self._inner(backward, forward)
            inner.there = there
            inner.run(needed(block.ops, pending), reached, pending)
            given = {p: _total(backward, pending[p]) for p in sources if p in pending}
            counts = [] if inner.counts is None else inner.counts.all
            made = backward.finish([*given.values(), *counts])
        needs = tuple(backward.captured)
        # Values that the caller has in any case need not be returned again.
        kept = [v for v in needs if v not in block.parameters and v not in block.results]
        whole = OpBlock(block.parameters, tuple(forward.ops), (*block.results, *kept))
        gives = tuple(p in given for p in block.parameters)
        return _Linear(whole, len(kept), made, needs, gives, counts=bool(counts))

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call(self, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        function = op.function
        assert function is not None
        linear, forward, backward = self._function(function, [g is not None for g in grads], wanted)
        known = dict(zip(function.body.parameters, op.inputs, strict=True))
        known |= zip(linear.forward.results, self._kept(op, forward, linear), strict=True)
        arguments = [*(g for g in grads if g is not None), *(known[v] for v in linear.needs)]
        types = [v.type for v in backward.body.results]
        attrs = {"path": op.attrs["path"], "random": op.attrs["random"]}
        results = self.net.emit_many("call", arguments, types, function=backward, **attrs)
        made = iter(self._counted(results, has_counts=linear.counts))
        return [next(made) if gives else None for gives in linear.gives]

    def _kept(self, op: NetworkOp, forward: NetworkFunction, linear: _Linear) -> tuple[Value, ...]:
        """Results of a call that keeps values for its backward pass, in place of the call without them."""
        if not linear.kept:
            return op.outputs
        made = linear.forward.results[len(op.outputs) :]
        kept = tuple(Value(v.shape, v.dtype, "", op.stage, op.outputs[0].place) for v in made)
        attrs = FrozenDict({**op.attrs, "function": forward})
        self._home.replace(op, NetworkOp(op.kind, op.inputs, (*op.outputs, *kept), attrs, op.debug))
        return (*op.outputs, *kept)

    def _function(
        self, function: NetworkFunction, graded: Sequence[bool], wanted: Sequence[bool]
    ) -> tuple[_Linear, NetworkFunction, NetworkFunction]:
        wants = (function, tuple(graded), tuple(wanted))
        if wants not in self.functions:
            linear = self._linear(function.body, graded, wanted)
            variants = sum(key[0] is function for key in self.functions)
            suffix = str(variants + 1) if variants else ""
            forward = NetworkFunction(f"{function.name}.forward{suffix}", linear.forward, function.num_random)
            backward = NetworkFunction(f"{function.name}.backward{suffix}", linear.backward, function.num_random)
            self.functions[wants] = linear, forward if linear.kept else function, backward
        return self.functions[wants]

    # --- loops --------------------------------------------------------------------------------------------------------

    def _loop(self, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        net, (body,) = self.net, op.regions
        num_carried, count = op.attrs["carried"], op.attrs["count"]
        # Carried values that depend on nothing wanted are not carried backwards.
        active = _active(body, wanted, num_carried)
        linear = self._linear(body, active, [False, *active, *wanted[num_carried:]])
        tables = self._tables(op, linear)
        # Values that all trips share need no table; their gradients are summed over the trips.
        outside = dict(zip(body.parameters[1 + num_carried :], op.inputs[num_carried:], strict=True))
        gives = linear.gives[1 + num_carried :]
        invariant = [v for v, given in zip(op.inputs[num_carried:], gives, strict=True) if given]
        carried = [v for v, is_active in zip(op.inputs, active, strict=False) if is_active]
        given = [g for g, is_active in zip(grads, active, strict=True) if is_active]
        # A carried value that nothing reads after the loop may still have a gradient from an earlier trip.
        starts = [g if g is not None else _zeros(net, v) for g, v in zip(given, carried, strict=True)]

        def trip_back(region: BlockBuilder, trip: Value, *now: Value) -> list[Value]:
            # Trips in reverse.
            index = build.map_(region, Const(count - 1, i32) - derivative.arg(0), [trip])

            def needed_value(value: Value) -> Value:
                if value is body.parameters[0]:
                    return index
                return outside[value] if value in outside else build.read_row(region, tables[value], index)

            # One trip back: gradients of the carried values after it, and the forward values that it needs.
            arguments = [*now[: len(carried)], *map(needed_value, linear.needs)]
            made = list(region.inline(linear.backward, [region.read(v) for v in arguments]))
            places = iter(made)
            # The first results are the carried gradients before the trip, the next ones add to the sums.
            by_carried = [next(places) if gives_it else None for gives_it in linear.gives[1 : 1 + num_carried]]
            after = [
                g if g is not None else _zeros(region, v)
                for g, v, is_active in zip(by_carried, op.inputs, active, strict=False)
                if is_active
            ]
            sums = [
                build.total(region, [s, g]) for s, g in zip(now[len(carried) :][: len(invariant)], places, strict=False)
            ]
            if not counting:
                return [*after, *sums]
            # Counts of magnitudes are carried along like one more sum.
            assert self.counts is not None
            here = BlockCounts(region, self.counts.tracking)
            for counts in (now[-1], *made[len(made) - linear.counts :]):
                here.add(counts)
            if entering:
                here.of_trip(now[: len(carried)])
            return [*after, *sums, *here.all]

        # The loop back carries gradients, then sums, then counts, and all but the gradients begin with zero.
        entering = self.counts is not None and self.counts.tracks(op)
        counting = linear.counts or entering
        sums_before = [*(_zeros(net, v) for v in invariant), *([build.full(net, 0.0, (2,), f32)] if counting else [])]
        made = build.loop(net, count, [*starts, *sums_before], trip_back)
        # Each operand gets its result where it is active or summed, and None elsewhere.
        results = iter(self._counted(made, has_counts=counting))
        by_carried = [next(results) if is_active else None for is_active in active]
        return [*by_carried, *(next(results) if given_one else None for given_one in gives)]

    def _tables(self, op: NetworkOp, linear: _Linear) -> dict[Value, Value]:
        """Tables for a loop's backward pass, by the value of the body whose trips they hold."""
        (body,), num_carried, count = op.regions, op.attrs["carried"], op.attrs["count"]
        fixed = {body.parameters[0], *body.parameters[1 + num_carried :]}
        kept = [v for v in linear.needs if v not in fixed]
        if not kept:
            return {}
        home = self._home
        with home.at(op.debug, stage=op.stage, place=op.place):
            starts = home.before(op, [((count, *v.shape), v.dtype) for v in kept])
            region = _Reopened(OpBlock(body.parameters, linear.forward.ops, ()), self.net.root)
            rows = [Value((count, *v.shape), v.dtype) for v in kept]
            region.enter(rows)
            filled = [build.write_row(region, t, v, body.parameters[0]) for t, v in zip(rows, kept, strict=True)]
            first, rest = body.parameters[: 1 + num_carried], body.parameters[1 + num_carried :]
            block = OpBlock((*first, *rows, *rest), tuple(region.ops), (*body.results, *filled))
            tables = tuple(Value(t.shape, t.dtype, "", op.stage, op.outputs[0].place) for t in rows)
            inputs = (*op.inputs[:num_carried], *starts, *op.inputs[num_carried:])
            attrs = FrozenDict({**op.attrs, "carried": num_carried + len(kept)})
            home.replace(op, NetworkOp(op.kind, inputs, (*op.outputs, *tables), attrs, op.debug, (block,)))
        return dict(zip(kept, tables, strict=True))

    # --- branches -----------------------------------------------------------------------------------------------------

    def _branch(self, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        operands = list(dict.fromkeys(v for v, want in zip(op.inputs[1:], wanted[1:], strict=True) if want))
        cases = [self._forward_again(block, op.inputs[1:], grads, operands) for block in op.regions]
        made = (
            build.cond(self.net, op.inputs[0], *cases)
            if op.kind == "cond"
            else build.switch(self.net, op.inputs[0], cases)
        )
        gradients = self._counted(made, has_counts=self.counts is not None)
        return [None, *_once(operands, gradients, op.inputs[1:])]

    def _again(self, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        # Both passes call one function, so that the machine may have it once; each inside of a region of its own, where
        # the backward pass's is no repetition of the other's. What leaves the stretch and is kept for others that read
        # it in the backward pass is not made again: it is read before the call, and may die before it.
        (block,) = op.regions
        kept = {r: v for r, v in zip(block.results, op.outputs, strict=True) if self._is_kept(v, op)}
        linear = self._linear(block, [g is not None for g in grads], wanted, frozenset(kept))
        asked = [v for v in linear.needs if v not in kept]
        both, rest = split(linear.forward, needed(linear.forward.ops, asked))
        made = {v for o in both.ops for v in o.outputs}
        kept = {r: v for r, v in kept.items() if r not in made and r not in block.parameters}
        function = self._recomputed(linear, both)

        def call(region: BlockBuilder, values: dict[Value, Value]) -> None:
            if function is not None:
                operands, types = [values[p] for p in both.parameters], [v.type for v in both.results]
                results = region.emit_many("call", operands, types, function=function, path="", random=0)
                values |= zip(both.results, results, strict=True)

        def run(region: BlockBuilder, inner: OpBlock, values: dict[Value, Value]) -> None:
            values |= zip(inner.results, region.inline(inner, [values[p] for p in inner.parameters]), strict=True)

        def again(region: BlockBuilder) -> Sequence[Value]:
            known = dict(zip(block.parameters, map(region.read, op.inputs), strict=True))
            known |= {r: region.read(v) for r, v in kept.items()}
            parameters = linear.backward.parameters
            given = [region.read(g) for g in grads if g is not None]
            at_first = [p for p, v in zip(parameters[len(given) :], linear.needs, strict=True) if v in kept]
            before, after = split(
                linear.backward, at_once(linear.backward, [*parameters[: len(given)], *at_first], at_first)
            )
            values = dict(zip(parameters, given, strict=False))
            values |= {p: known[v] for p, v in zip(parameters[len(given) :], linear.needs, strict=True) if v in kept}
            run(region, before, values)
            call(region, known)
            values |= {p: known[v] for p, v in zip(parameters[len(given) :], linear.needs, strict=True)}
            return region.inline(after, [values[p] for p in after.parameters])

        first = RegionBuilder(self._home)
        with first.at(op.debug, stage=op.stage):
            values = dict(zip(block.parameters, map(first.read, op.inputs), strict=True))
            call(first, values)
            run(first, replace(rest, results=block.results), values)
            body = first.finish([values[r] for r in block.results])
        self._home.replace(op, NetworkOp(op.kind, tuple(first.captured), op.outputs, op.attrs, op.debug, (body,)))
        gradients = iter(self._counted(build.checkpoint(self.net, again), has_counts=linear.counts))
        return [next(gradients) if gives else None for gives in linear.gives]

    def _is_kept(self, value: Value, op: NetworkOp) -> bool:
        """True if an op of the backward pass, at the place of ``op``, reads one of its results."""
        readers = self.net.ops if self._home is self.net else ()
        return any(value in o.inputs and o.stage == Stage.BACKWARD and o.place == op.place for o in readers)

    def _recomputed(self, linear: _Linear, block: OpBlock) -> NetworkFunction | None:
        """A function for what both passes of a checkpoint run; None for nothing."""
        if not block.ops:
            return None
        number = sum(key[0].name.startswith(_RECOMPUTED) for key in self.functions)
        function = NetworkFunction(f"{_RECOMPUTED}{number}", block)
        self.functions[function, (), ()] = linear, function, function
        return function

    def _forward_again(
        self, block: OpBlock, inputs: Sequence[Value], grads: Gradients, operands: Sequence[Value]
    ) -> Callable[[BlockBuilder], list[Value]]:
        """A body that computes a block on ``inputs`` again, then the gradients of those of them in ``operands``.

        Where gradients are counted, the counts come last.
        """

        def body(region: BlockBuilder) -> list[Value]:
            inside = {v: region.read(v) for v in inputs}
            start = len(region.ops)
            with region.at(stage=Stage.BACKWARD):
                results = region.inline(block, [inside[v] for v in inputs])
                ops, pending = region.ops[start:], Pending()
                for result, grad in zip(results, grads, strict=True):
                    if grad is not None:
                        pending.setdefault(result, []).append(region.read(grad))
                reached = differentiable(ops, [inside[v] for v in operands])
                inner = self._inner(region, region)
                inner.run(needed(ops, pending), reached, pending)
                sums = [(v, pending.get(inside[v])) for v in operands]
                made = [_total(region, parts) if parts else _zeros(region, v) for v, parts in sums]
                if inner.counts is not None:
                    made += inner.counts.all or [build.full(region, 0.0, (2,), f32)]
                return made

        return body


def _once(operands: Iterable[Value], made: Iterable[Value], inputs: Iterable[Value]) -> list[Value | None]:
    """The gradient of each of ``inputs``: one that is there twice has its whole gradient at the first place."""
    by_operand = dict(zip(operands, made, strict=True))
    return [by_operand.pop(v, None) for v in inputs]


def _active(body: OpBlock, wanted: Sequence[bool], num_carried: int) -> list[bool]:
    """For each carried value of a loop, whether it depends on anything that is wanted, after however many trips."""
    carried = body.parameters[1 : 1 + num_carried]
    sources = [p for p, want in zip(body.parameters[1:], wanted, strict=True) if want]
    active = [want and v.dtype.is_float for want, v in zip(wanted, carried, strict=False)]
    # Dependence may pass from one carried value to another, one per trip: repeat until it spreads no further.
    while True:
        reached = differentiable(body.ops, [*sources, *(p for p, a in zip(carried, active, strict=True) if a)])
        grown = [a or (r in reached and r.dtype.is_float) for a, r in zip(active, body.results, strict=True)]
        if grown == active:
            return active
        active = grown

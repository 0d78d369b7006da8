"""Lowering: the ops of a network as library calls on a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Any

from abele.distribution.cache_shapes import cache_shapes
from abele.distribution.changed_in_place import StateChange, changed_in_block
from abele.distribution.combined_momenta import CombinedMomenta
from abele.distribution.lowering_cache import Repeats, lowering_context
from abele.distribution.matrix_parts import MatrixPart, matrix_parts
from abele.distribution.remote_weights import RemoteWeights, WeightRow
from abele.distribution.shared_functions import SharedFunctions
from abele.distribution.state_units import RemoteSums
from abele.distribution.update import GroupUpdate
from abele.graph import Copy, DebugRecord, Graph, RemoteBuffer, Steps, Tensor, Variable, WriteUndef
from abele.network.ir import Dense, NetworkOp, OpBlock, Place, Stage, Value, is_spread
from abele.network.ir.network import attributes_key, contents_of
from abele.network.ir.value import Shape
from abele.network.joined_copies import joined
from abele.network.off_chip import LOAD, handed_on, stores_rows
from abele.network.registry import OpRule, rule_of
from abele.network.replicated_sharding import ShardedGradient
from abele.numerics import ElementType, f16
from abele.poplibs.poputil.layout import channels_per_group, clone
from abele.poplibs.poputil.mapping import map_small, set_mapping

STABLE_NORMS, IN_HALVES = "stable_norms", "in_halves"
"""Options of norms and of matrix products among :attr:`Lowering.planning`, which libraries take apart."""


class Lowering:
    """Lowering context: tensors of the values of a network or block, and the program to append to.

    Inputs, parameters and buffers become variables when the first op that reads them is lowered, in the layout which
    that op asks for; later ops take them as they are. That holds inside of functions and regions too: a parameter of
    a block that stands for a value outside becomes a variable when something inside first reads it.

    Attributes:
        graph: Graph of variables and vertices.
        prog: The sequence that rules append to.
        planning: Options of matrix products, convolutions and recurrent layers, see :meth:`planned`, and of norms.
        updates: The device side of each optimiser, by its number and that of the IPU; see ``update`` ops.
        repeats: Ops built so far, for ops whose like was lowered before.
        loss_scale: Factor of the loss, where that may change; see ``loss_scale`` ops.
        shares: Shares of a running mean and of a further gradient in this micro-batch; see ``running_mean`` ops.
        shares_of: The replica's shares of sums over replicas, by their values; see ``reduce_scatter`` ops.
        remote: The parameters in streaming memory, if there are any; what ops inside of blocks read is loaded before
            the op that has the blocks.
        sums: The sums of gradients in streaming memory.
        momenta: The momenta that take up gradients; see ``accumulate`` ops.
        rows: Rows of parameters in streaming memory, once all their readers are lowered.
        leaves: Values that something outside of the network's ops asks for: no op may overwrite them.
        functions: The functions of which the machine has one copy; calls of others are lowered where they stand.
        changes: New contents of states that may be written onto the old ones.
        changed: Those that were.
    """

    def __init__(
        self, graph: Graph, *, planning: Mapping[str, Any] | None = None, outer: Lowering | None = None
    ) -> None:
        self.graph = graph
        self.prog: Steps = Steps() if outer is None else outer.prog
        self.planning: dict[str, Any] = dict(planning or {}) if outer is None else outer.planning
        self.updates: dict[tuple[int, int], GroupUpdate] = {} if outer is None else outer.updates
        self.repeats: Repeats = (
            Repeats(graph, lowering_context(graph, self.planning)) if outer is None else outer.repeats
        )
        self.loss_scale: Tensor | None = None if outer is None else outer.loss_scale
        self.shares: tuple[Tensor, Tensor] | None = None if outer is None else outer.shares
        self.shares_of: dict[Value, ShardedGradient] = {} if outer is None else outer.shares_of
        self.functions: SharedFunctions = SharedFunctions() if outer is None else outer.functions
        # One graph for each IPU: the ops of a place are lowered on its tiles, with all that is inside of them.
        several = graph.system.num_ipus > 1
        self._graphs: list[Graph] = [*map(graph.ipu, range(graph.system.num_ipus))] if outer is None and several else []
        self.remote: RemoteWeights | None = None
        self.sums: RemoteSums | None = None
        self.momenta: CombinedMomenta | None = None
        self.rows: dict[Value, WeightRow] = {}
        self.changes: dict[Value, StateChange] = {}
        self.changed: set[Value] = set()
        self._in_bodies: dict[Value, Value] = {}
        self._released: set[Value] = set()
        self._outer = outer
        self._is_spread = False
        self._stands_for: dict[Value, Value] = {}
        self._constants: dict[Value, NetworkOp] = {}
        self._readers: dict[Value, int] = {}
        self.leaves: frozenset[Value] = frozenset()
        self._owned: set[Value] = set()
        self._like: dict[Value, Value] = {}
        self._knows_leaving = False
        self._parts: dict[Value, MatrixPart] = {}
        self._caches: dict[Value, Shape] = {}
        self._models: dict[Value, Tensor] = {}
        self._leaves_as: dict[Value, Value] = {}
        self._computed_here: set[Value] = set()
        self._waiting: dict[Value, NetworkOp] = {}
        self._given: dict[Value, Tensor] = {}
        self._tensors: dict[Value, Tensor] = {}
        self._tables: dict[Value, RemoteBuffer] = {}

    def __getitem__(self, value: Value) -> Tensor:
        """The tensor of a value; one that enters the network and was not read yet is spread linearly."""
        if value not in self._tensors:
            self._tensors[value] = self._enter(value, lambda: None)
        return self._tensors[value]

    def __contains__(self, value: Value) -> bool:
        return value in self._tensors

    def is_read(self, value: Value) -> bool:
        """True if an op here reads ``value``, or it leaves a block; an op need not make others."""
        return value in self._readers

    def is_read_once(self, value: Value) -> bool:
        """True if one op reads ``value``, and nothing else."""
        return self._readers.get(value) == 1

    def is_dead(self, value: Value) -> bool:
        """True if nothing at all asks for ``value``; known where what leaves was announced, as it is in blocks."""
        return self._knows_leaving and value not in self._readers

    def bind(self, value: Value, tensor: Tensor) -> None:
        """Let ``tensor`` stand for ``value``."""
        assert tensor.shape == value.shape, f"{value} bound to {tensor!r}"
        assert tensor.dtype == value.dtype, f"{value} bound to {tensor!r}"
        self._tensors[value] = tensor

    def bind_table(self, value: Value, buffer: RemoteBuffer) -> None:
        """Let a buffer in streaming memory be the table that ``value`` is."""
        self._tables[value] = buffer

    def is_table(self, value: Value) -> bool:
        """True for a table in streaming memory: it has no tensor."""
        if value in self._stands_for and value not in self._tables:
            return self._outer is not None and self._outer.is_table(self._stands_for[value])
        return value in self._tables

    def table(self, value: Value) -> RemoteBuffer:
        """The buffer in streaming memory that a table is in."""
        assert self.is_table(value), f"{value} is no table"
        if value in self._tables:
            return self._tables[value]
        assert self._outer is not None
        return self._outer.table(self._stands_for[value])

    def graph_of(self, place: Place) -> Graph:
        """The graph of an IPU's tiles."""
        return self._graphs[place.ipu] if len(self._graphs) > 1 else self.graph

    @contextmanager
    def on(self, place: Place) -> Iterator[None]:
        """Scope in which the graph is that of another IPU, where ops are on several."""
        before = self.graph, self.repeats.where
        self._go_to(place)
        try:
            yield
        finally:
            self.graph, self.repeats.where = before

    def _go_to(self, place: Place | None) -> None:
        """Go on with the graph of another IPU; inside of blocks that are not spread all is on the block's IPU."""
        if len(self._graphs) > 1 and place is not None:
            self.graph = self._graphs[place.ipu]
            self.repeats.where = place.ipu

    def lay_out_like(self, results: Mapping[Value, Value]) -> None:
        """Ask for each of ``results`` to be laid out like another value, where its op can choose."""
        self._like.update(results)

    def like(self, value: Value) -> Tensor | None:
        """The tensor that ``value`` is to be laid out like, if there is one already."""
        model = self._like.get(value)
        if model is not None and model in self._tensors:
            return self._tensors[model]
        part = self._parts.get(value)
        if part is not None:
            if value not in self._models:
                self._models[value] = part.model(self.graph)
            return self._models[value]
        outside = self._leaves_as.get(value)
        return self._outer.like(outside) if self._outer is not None and outside is not None else None

    def given(self, value: Value) -> Tensor | None:
        """The tensor that the op of ``value`` is to write to, where its first reader has made one."""
        return self._given.get(value)

    def cache_of(self, value: Value) -> Shape | None:
        """Shape [rows, kv heads, width] of the cache that ``value`` becomes, if attention over pages reads it here."""
        return self._caches.get(value)

    def may_lie_as_wanted(self, value: Value) -> bool:
        """True for a value without a layout that is computed when it is first read, or is a parameter of a function."""
        to, entering = self._entrance(value)
        return entering in to._waiting or (to._outer is not None and not to.has_layout(entering))

    def is_waiting(self, value: Value) -> bool:
        """True for a value that is computed when it is first read."""
        to, entering = self._entrance(value)
        return entering in to._waiting

    def is_computed(self, value: Value) -> bool:
        """True for a value that an op makes, here or further out; False for weights, and for arguments of functions."""
        if value in self._stands_for:
            assert self._outer is not None
            return self._outer.is_computed(self._stands_for[value])
        return value in self._computed_here

    @property
    def stable_norms(self) -> bool:
        """True if norms subtract the mean before they square."""
        return bool(self.planning.get(STABLE_NORMS, False))

    @property
    def in_halves(self) -> bool:
        """True if operands of large matrix products arrive in halves."""
        return bool(self.planning.get(IN_HALVES, False))

    def planned(self, op: NetworkOp, dtype: ElementType) -> dict[str, Any]:
        """Options of an op's products of operands of ``dtype``: the common ones, overridden by its own.

        Operands of f32 have f32 partials, whatever others have.
        """
        options = self.planning if op.hint is None else {**self.planning, **op.hint.options}
        unknown = {STABLE_NORMS, IN_HALVES} | (set() if dtype == f16 else {"partials_type"})
        unknown |= set() if op.kind.startswith("convolution") else {"enable_conv_dithering"}
        return {name: value for name, value in options.items() if name not in unknown}

    @contextmanager
    def into(self, prog: Steps) -> Iterator[Steps]:
        """Append steps that are lowered inside to ``prog``."""
        before, self.prog = self.prog, prog
        try:
            yield prog
        finally:
            self.prog = before

    # --- ops -----------------------------------------------------------------------------------------------------

    def run(self, ops: Iterable[NetworkOp], leaving: Iterable[Value] | None = None) -> None:
        """Lower ops in order.

        Args:
            ops: Ops to lower.
            leaving: All values that are needed afterwards; None where that is not known.

        Raises:
            UnsupportedOpError: An op of a kind without a rule.
        """
        listed = list(ops)
        self.announce(listed, leaving)
        self.lower(listed)

    def announce(self, ops: Sequence[NetworkOp], leaving: Iterable[Value] | None = None) -> None:
        """Note the readers of values, before any op is lowered; ``leaving`` are all that something else asks for."""
        self._knows_leaving = leaving is not None
        for value in (*(leaving or ()), *(v for op in ops for v in op.inputs)):
            self._readers[value] = self._readers.get(value, 0) + 1
        for op in ops:
            self._computed_here.update(op.outputs)
            if op.kind == "constant":
                self._constants[op.output] = op
        for product, addend in _residuals(ops).items():
            if product.size * product.dtype.bytes >= _LARGE_PRODUCT * self.graph_of(product.place).num_tiles:
                self._like.setdefault(product, addend)
        self._parts.update(matrix_parts(ops))
        self._caches.update(cache_shapes(ops))

    def lower(self, ops: Iterable[NetworkOp], *, settle: bool = True) -> None:
        """Lower ops that were announced, in order.

        Args:
            ops: Ops to lower.
            settle: False if more ops follow here: what waits for its first reader may then wait for theirs.

        Raises:
            UnsupportedOpError: An op of a kind without a rule.
        """
        for op in ops:
            if op.kind == "constant":
                continue
            if rule_of(op).waits_for_reader(self, op):
                self._waiting[op.output] = op
                continue
            if stores_rows(op):
                self._load_rows()
            self._go_to(op.place)
            if op.regions:
                # A body is a program of its own; what is read there is computed before it. What enters the network is
                # laid out by its first reader, in the body too.
                for value in op.inputs:
                    to, entering = self._entrance(value)
                    if entering in to._waiting:
                        self[value]
            self._run(op)
        if settle:
            self.settle()

    def _load_rows(self) -> None:
        """Load the rows of tables that still wait for their first reader: some are about to be replaced."""
        for value, op in list(self._waiting.items()):
            if op.kind == LOAD and value in self._waiting:
                self[value]

    def _run(self, op: NetworkOp) -> None:
        if self.remote is None:
            self.run_op(op)
        else:
            self.remote.run(self, op)

    def settle(self) -> None:
        """Compute what still waits for its first reader, here and now."""
        for value in list(self._waiting):
            if value in self._waiting:
                self[value]

    @contextmanager
    def reading(self, tensors: Mapping[Value, Tensor]) -> Iterator[None]:
        """Let other tensors stand for some values inside; those that were bound before come back."""
        before = {v: self._tensors[v] for v in tensors if v in self._tensors}
        self._tensors.update(tensors)
        try:
            yield
        finally:
            for value in tensors:
                del self._tensors[value]
            self._tensors.update(before)

    def run_op(self, op: NetworkOp) -> None:
        """Lower one op on the graph of its place."""
        rule = rule_of(op)
        with self._operands_of(rule, op):
            self._change_in_place(op)
            self._is_spread = is_spread(op)
            results = self._lowered(rule, op)
        for value, tensor in zip(op.outputs, results, strict=True):
            if tensor is not None:
                self.bind(value, tensor)
        for before, after in handed_on(op):
            if self.is_table(before):
                self.bind_table(after, self.table(before))

    def _change_in_place(self, op: NetworkOp) -> None:
        """Let an op write new contents of a state onto the old ones, unless something that waits reads these."""
        for made in op.outputs:
            change = self.changes.get(made)
            if change is None or not self._may_change(op, change):
                continue
            if op.regions or op.function is not None:
                # Its first reader in a body lays out the state, unless a view of it did.
                if change.operand is change.before or self[change.operand].is_same_view(self[change.state]):
                    self._in_bodies[made] = change.operand
                continue
            state, tensor = self[change.state], self[change.operand]
            whole = tensor.variables == state.variables and tensor.size == state.size
            if whole and not state.contains_aliases and not state.contains_constant:
                self._given[made] = tensor
                self._released.add(change.operand)
                self.changed.add(made)

    def _may_change(self, op: NetworkOp, change: StateChange) -> bool:
        is_there = change.before is change.state or change.before in self.changed
        if not is_there or self.remote is not None or self.is_table(change.state):
            return False
        for value, waiting in list(self._waiting.items()):
            if value in self._waiting and not change.shown.isdisjoint(waiting.inputs):
                if op.kind == "map":  # It is as fast beside the state, which is copied to then.
                    return False
                self[value]
                self._go_to(op.place)
        return True

    def is_in_place(self, state: Value, new: Value) -> bool:
        """True if the new contents of a state are where it is already."""
        return new in self.changed or (bool(self.changed) and self[new].is_same_view(self[state]))

    def changed_in_bodies(self, made: Value) -> Value | None:
        """The state whose place a result of a loop or a branch is to take, or what an earlier change made of it."""
        return self._in_bodies.get(made)

    def lower_onto(self, op: NetworkOp, total: Tensor, scale: float) -> None:
        """Lower an op that was announced so that it adds its result, times ``scale``, to ``total``."""
        rule = rule_of(op)
        self._go_to(op.place)
        with self._operands_of(rule, op):

            def lower() -> tuple[Tensor | None, ...]:
                rule.lower_onto(self, op, total, scale)
                return ()

            operands = [*(self[v] for v in op.inputs), total]
            what = ("onto", op.kind, self._attributes(op), op.output.shape, op.output.dtype.name, scale)
            self.repeats.build(what, operands, self.prog, lower)

    @contextmanager
    def _operands_of(self, rule: OpRule, op: NetworkOp) -> Iterator[None]:
        """Scope of an op; its operands have entered, in its layouts, and in one piece for rules that need it.

        Each enters under its own name, without the op's scope.
        """
        if rule.reads_eagerly:
            with located(self.graph, op.debug, scoped=False):
                self._enter_together(rule, op)
                for number, value in enumerate(op.inputs):
                    self._enter_constant(rule, op, number)
                    self.enter(value, partial(self._laid_out, rule, op, number))
        with located(self.graph, op.debug):
            if rule.wants_one_piece:
                for value in op.inputs:
                    self._put_together(value)
            yield

    def _enter_together(self, rule: OpRule, op: NetworkOp) -> None:
        """Make operands that are to be views of one variable, unless one of them has a layout or contents already."""
        places = [self._entrance(op.inputs[n]) for n in rule.laid_together]
        new = all(v not in to._tensors and v not in to._constants for to, v in places)
        if not places or not new or len(set(places)) < len(places):
            return
        names = tuple(v.name for _, v in places)
        types = tuple((v.shape, v.dtype.name) for v in op.inputs)
        what = ("together", op.kind, self._attributes(op), names, types)
        made = self.repeats.build(what, (), self.prog, lambda: rule.layout_together(self, op))
        for (to, value), tensor in zip(places, made, strict=True):
            assert tensor is not None
            to.enter(value, partial(_same, tensor))

    def _enter_constant(self, rule: OpRule, op: NetworkOp, operand: int) -> None:
        """Lay out a constant of several numbers that nothing has read as its first reader wants it."""
        to, value = self._entrance(op.inputs[operand])
        if value in to._tensors or value not in to._constants or to.number(value) is not None:
            return
        place = rule.constant_layout(self, op, operand)
        if place is not None:
            order, mapping = place
            contents = contents_of(to._constants[value]).reshape(order.fine).transpose(order.order)
            made = self.graph.constant(value.dtype, order.extents, contents, name=value.name or "constant")
            set_mapping(self.graph, made, mapping)
            to.bind(value, order.undo(made).reshape(value.shape))

    def _entrance(self, value: Value) -> tuple[Lowering, Value]:
        """Lowering into which a value enters, and the value there: itself, or further out the one that a parameter
        stands for.
        """
        if value in self._tensors or value not in self._stands_for:
            return self, value
        assert self._outer is not None
        return self._outer._entrance(self._stands_for[value])

    def _put_together(self, value: Value) -> None:
        """Copy a matrix in pieces of several variables into one variable, which replaces it from now on.

        Products send each element to many tiles, which would all put the pieces together again; and the gradient of one
        matrix mostly has three readers, two products and a sum. It is copied along its rows, its columns, or groups of
        columns as products lay them out, whichever has the longest pieces. Zeros beside a part stay views: there is
        nothing of them to copy.
        """
        tensor = self[value]
        if len(tensor.variables) == 1 or tensor.ndim != 2 or tensor.contains_constant:
            return

        def copy() -> tuple[Tensor]:
            rows, columns = tensor.shape
            group = channels_per_group(columns)
            grouped = tensor.reshape((rows, columns // group, group)).transpose((1, 0, 2))
            views = [(tensor, _same), (tensor.T, _turned), (grouped, _ungrouped)]
            source, back = min(views, key=lambda view: len(view[0].intervals()[0]))
            made = self.graph.map_linear(self.graph.variable(tensor.dtype, source.shape, name="whole"))
            self.prog.add(Copy(source, made, name="whole"))
            return (back(made),)

        self._tensors[value] = self.repeats.build(("whole",), [tensor], self.prog, copy)[0]

    def _lowered(self, rule: OpRule, op: NetworkOp) -> tuple[Tensor | None, ...]:
        """The results of an op: of its rule, or as they were built for like operands."""

        def lower() -> tuple[Tensor | None, ...]:
            results = rule.lower(self, op)
            return results if isinstance(results, tuple) else (results,)

        if not rule.depends_on_operands_alone:
            return lower()
        # Layouts for results decide as those of operands do.
        operands = [*(self[v] for v in op.inputs), *map(self.like, op.outputs), *map(self.given, op.outputs)]
        several = len(op.outputs) > 1
        made = tuple((v.shape, v.dtype.name, several and (self.is_read(v), self.is_dead(v))) for v in op.outputs)
        # The function of a user's own op may be another one in the next graph.
        what, lasts = (op.kind, self._attributes(op), made), op.kind != "own_op"
        return self.repeats.build(what, operands, self.prog, lower, lasts=lasts)

    def _laid_out(self, rule: OpRule, op: NetworkOp, operand: int) -> Tensor | None:
        """A new variable for an operand in the layout that its op wants, or None when that does not care."""
        for other in rule.beside(op, operand):
            if other in self._tensors and not self._tensors[other].contains_aliases:
                return clone(self.graph, self._tensors[other], op.inputs[operand].name or "value")
        name = op.inputs[operand].name
        if not rule.depends_on_operands_alone or rule.lays_out_by_operands:
            made = rule.layout(self, op, operand)
            if made is not None and name:
                _rename(made, name)
            return made
        types = tuple((v.shape, v.dtype.name) for v in op.inputs)
        # The layouts of equal layers differ in a name alone.
        what = ("layout", op.kind, self._attributes(op), operand, bool(name), types)
        (made,) = self.repeats.build(what, (), self.prog, lambda: (rule.layout(self, op, operand),))
        if made is not None and name:
            _rename(made, name)
        return made

    def _attributes(self, op: NetworkOp) -> Hashable:
        """The attributes of an op as a key."""
        return attributes_key({name: value for name, value in op.attrs.items() if name != "path"})

    # --- values that enter ---------------------------------------------------------------------------------------

    def enter(self, value: Value, layout: Callable[[], Tensor | None]) -> Tensor:
        """The tensor of a value; if it has none yet, ``layout`` may make one."""
        if value not in self._tensors:
            self._tensors[value] = self._enter(value, layout)
        return self._tensors[value]

    def _enter(self, value: Value, layout: Callable[[], Tensor | None]) -> Tensor:
        if value in self._constants:
            return self.constant(self._constants[value])
        if value in self._waiting:
            return self._computed(value, layout)
        # A parameter of a block that nothing has read is still the value outside: whoever reads it first, in or out,
        # chooses the layout.
        if value in self._stands_for:
            assert self._outer is not None
            return self._outer.enter(self._stands_for[value], layout)
        laid_out = layout()
        if laid_out is not None:
            return laid_out
        graph = self.graph_of(value.place)
        return map_small(graph, graph.variable(value.dtype, value.shape, name=value.name or "value"))

    def _computed(self, value: Value, layout: Callable[[], Tensor | None]) -> Tensor:
        """Tensor of a value that waited for its first reader's layout."""
        wanted = layout()
        if wanted is not None:
            self._given[value] = wanted
        op = self._waiting.pop(value)
        self._go_to(op.place)
        self._run(op)
        return self._tensors[value]

    def constant(self, op: NetworkOp) -> Tensor:
        """A new tensor with the contents of a constant; one number is one element, however often it is shown."""
        value, name = op.output, op.output.name or "constant"
        number = Dense(contents_of(op)).number
        if number is not None:
            return self.graph.constant(value.dtype, (), number, name=name).broadcast_to(value.shape)
        return self.graph.map_linear(self.graph.constant(value.dtype, value.shape, contents_of(op), name=name))

    def number(self, value: Value) -> float | None:
        """The number that ``value`` is at every element, if it is a constant of one."""
        op = self._constants.get(value)
        return None if op is None else Dense(contents_of(op)).number

    # --- blocks --------------------------------------------------------------------------------------------------

    def block(
        self,
        block: OpBlock,
        arguments: Sequence[Value | Tensor],
        *,
        owned: Iterable[Value] = (),
        leaving: Iterable[Value] = (),
        unread: Sequence[bool] = (),
        homes: Mapping[int, int] | None = None,
    ) -> list[Tensor | None]:
        """Lower a block here and now; returns its results, None for tables in streaming memory.

        Args:
            block: Block to lower.
            arguments: For each parameter a value of this lowering, or a tensor.
            owned: Parameters whose tensors the block may overwrite.
            leaving: Values here for its results, in order, where they may be laid out as these are to be.
            unread: True for the results that nothing reads, in order.
            homes: Numbers of results by those of the parameters that they are new contents of, which may be changed
                where they lie. A parameter that is such a result as it is gives None.
        """
        before = len(self.graph.variables)
        inner = self._inside(block, arguments)
        inner.changes = changed_in_block(block, homes or {})
        inner._owned.update(owned)
        inner._leaves_as.update(zip(block.results, leaving, strict=False))
        kept = {block.parameters[p] for p, r in (homes or {}).items() if block.results[r] is block.parameters[p]}
        results = inner._run_block(block, kept)
        if any(unread):
            entering = {v for p in block.parameters if p in inner._tensors for v in inner[p].variables}
            self.forget(results, unread, set(self.graph.variables[before:]) - entering)
        return results

    def _run_block(self, block: OpBlock, kept: Collection[Value] = ()) -> list[Tensor | None]:
        """Results of a block that this is the lowering of; its ops may leave on another IPU than they began."""
        where = self.repeats.where
        self.run(block.ops, block.results)
        results = [None if self.is_table(v) or v in kept else self[v] for v in block.results]
        self.repeats.where = where
        return results

    def forget(self, results: Sequence[Tensor | None], unread: Sequence[bool], own: Set[Variable]) -> None:
        """End the lives of results that nothing reads; they lie in ``own`` variables, which no other result has."""
        pairs = [(t, is_unread) for t, is_unread in zip(results, unread, strict=True) if t is not None]
        kept = {v for tensor, is_unread in pairs if not is_unread for v in tensor.variables}
        behind = [tensor for tensor, is_unread in pairs if is_unread and own - kept >= set(tensor.variables)]
        for left in joined([(tensor, tensor) for tensor in behind]):
            self.prog.add(WriteUndef(left))

    def function_body(
        self, block: OpBlock, arguments: Sequence[Value | Tensor | None], *, leaving: Iterable[Value]
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """Lower a block for several calls; returns the tensors of its parameters, and its results as :meth:`block`.

        Args:
            block: Block to lower.
            arguments: For each parameter a value of this lowering, a tensor, or None for one whose first reader in the
                block lays it out.
            leaving: Values for its results at the first call.
        """
        inner = self._inside(block, arguments)
        inner._leaves_as.update(zip(block.results, leaving, strict=True))
        results = inner._run_block(block)
        return [inner._tensors.get(v) for v in block.parameters], results

    def _inside(self, block: OpBlock, arguments: Sequence[Value | Tensor | None]) -> Lowering:
        """The lowering of a block, with its parameters bound to ``arguments``."""
        inner = Lowering(self.graph, outer=self)
        if self._is_spread:
            inner._graphs = self._graphs
        for parameter, argument in zip(block.parameters, arguments, strict=True):
            if isinstance(argument, Value):
                inner._stands_for[parameter] = argument
            elif argument is not None:
                inner.bind(parameter, argument)
        return inner

    def has_layout(self, value: Value) -> bool:
        """True for a value that has a tensor, here or further out, or is a constant."""
        to, entering = self._entrance(value)
        return entering in to._tensors or entering in to._constants

    def overwritable(self, value: Value) -> Tensor:
        """A tensor with what ``value`` is, which its reader may write: its own if nothing else ever reads it."""
        tensor = self[value]
        if self._may_overwrite(value):
            return tensor
        return self.copied(tensor, value.name or "copy")

    def own(self, value: Value) -> None:
        """Let the op that reads ``value`` overwrite it, if there is only one."""
        self._owned.add(value)

    def pass_on(self, value: Value, result: Value) -> None:
        """Let the reader of ``result``, a view of ``value``, overwrite it where it might overwrite ``value``."""
        if self._may_overwrite(value):
            self._owned.add(result)

    def handed_over(self, block: OpBlock, arguments: Sequence[Value]) -> Iterator[Value]:
        """Parameters of a block that it may overwrite: no one else reads what they stand for."""
        for parameter, argument in zip(block.parameters, arguments, strict=True):
            if self._may_overwrite(argument):
                yield parameter

    def _may_overwrite(self, value: Value) -> bool:
        # One reader, which is the caller: nothing else can see the write.
        if value in self._released:
            return True
        return value in self._owned and self._readers.get(value) == 1 and value not in self.leaves

    def variable_like(self, tensor: Tensor, name: str) -> Tensor:
        """A new variable of the shape, type and layout of a tensor, or spread linearly where that has no layout."""
        if tensor.contains_aliases or tensor.contains_constant:
            return self.graph.map_linear(self.graph.variable(tensor.dtype, tensor.shape, name=name))
        return clone(self.graph.top_level, tensor, name)

    def copied(self, tensor: Tensor, name: str) -> Tensor:
        """A new variable with the contents of a tensor."""
        made = self.variable_like(tensor, name)
        self.prog.add(Copy(tensor, made, name=name))
        return made


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _turned(tensor: Tensor) -> Tensor:
    return tensor.T


def _ungrouped(tensor: Tensor) -> Tensor:
    """[rows, columns] of [groups, rows, columns of a group]."""
    groups, rows, columns = tensor.shape
    return tensor.transpose((1, 0, 2)).reshape((rows, groups * columns))


def _rename(tensor: Tensor, name: str) -> None:
    """Call what a new tensor shows by a name."""
    for variable in tensor.variables:
        if variable.debug.name != name:
            variable.debug = variable.debug.renamed(name)
            variable.name = variable.debug.full_name


@contextmanager
def located(graph: Graph, origin: DebugRecord, *, scoped: bool = True) -> Iterator[None]:
    """Give objects that are made inside the source line of ``origin``, and if ``scoped`` its path and name."""
    location = (origin.file, origin.line) if origin.file else None
    with graph.scope(origin.full_name if scoped else "", location=location, text=origin.text):
        yield


_LARGE_PRODUCT = 1024
"""Bytes of each tile from which on a product is laid out like what it is added to. A layer of BERT-Large takes 1 %
fewer cycles so. With 4,096 rows it has half of the exchange code, but with 512 (712 B) temporaries take 15 KB of a tile
more.
"""


def _residuals(ops: Sequence[NetworkOp]) -> dict[Value, Value]:
    """Products that element-wise ops read beside an older value of their shape, each with that value.

    Matrix units leave channels or rows innermost, whichever is faster, and what comes past a block lies as its first
    reader wanted. Joined where they lie otherwise, every element would be a piece of its own.
    """
    made = {v: number for number, op in enumerate(ops) for v in op.outputs}
    # What a function returns may be such a product, too.
    products = {v for op in ops if op.kind in ("linear", "matmul", "call") for v in op.outputs}
    found: dict[Value, Value] = {}
    for op in ops:
        if op.kind != "map" or op.stage == Stage.UPDATE:
            continue
        whole = [v for v in op.inputs if v.type == op.output.type and v.place.ipu == op.output.place.ipu]
        if len(whole) < 2:
            continue
        *older, last = sorted(whole, key=lambda v: made.get(v, -1))
        if last in products:
            found[last] = older[0]
    return found

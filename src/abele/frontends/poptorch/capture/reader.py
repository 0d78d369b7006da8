"""Reading recorded nodes: each becomes ops of a network, or of a region of one.

Most calls go to the handler of their operator. What is more than one call is read here: bodies of control flow have
readers of their own (:mod:`.control`), stretches under ``torch.utils.checkpoint`` become one op with a region, and the
nodes of a user's backward pass wait until the call that they belong to is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx

from abele.errors import UnsupportedOpError
from abele.expr.derivative import arg
from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.aten.losses import IDENTITY_LOSS
from abele.frontends.poptorch.capture.block_places import BlockPlaces
from abele.frontends.poptorch.capture.call_errors import of_values
from abele.frontends.poptorch.capture.control import CONTROL
from abele.frontends.poptorch.capture.decomposition import decomposed, operands_of
from abele.frontends.poptorch.capture.marks import GRADIENTS, INCOMING, LOSS, OWN_BACKWARD
from abele.frontends.poptorch.capture.registry import convert, element_type, handler_of, no_handler, takes_values
from abele.frontends.poptorch.errors import Error
from abele.kernels.nest.ir import Expr, apply
from abele.network import BlockBuilder, Value
from abele.network.autodiff.differentiate import gradients
from abele.network.ir import RegionBuilder
from abele.network.ops import build
from abele.numerics import bool_, f32

_OF_NUMBERS: dict[str, Expr] = {
    "add": arg(0) + arg(1),
    "sub": arg(0) - arg(1),
    "mul": arg(0) * arg(1),
    "truediv": arg(0) / arg(1),
    "pow": apply("pow", arg(0), arg(1)),
    "neg": -arg(0),
    "sqrt": apply("sqrt", arg(0)),
}
"""Python's arithmetic with numbers that the device knows."""

MARKED = frozenset({LOSS, IDENTITY_LOSS})
"""Calls that are losses."""


@dataclass
class NodeReader:
    """Reads nodes into one block.

    Attributes:
        net: The block.
        values: Values of nodes in it: values, tuples of values, or plain numbers.
        known: Nodes whose results follow from the host's constants, with these.
        losses: Calls that are losses, in order.
        waiting: Nodes of backward passes whose calls are not complete, by the call's number.
        missing: Calls that have no lowering, in all blocks.
        depth: Number of checkpoints around the block.
        expanding: Operators whose parts are read just now.
        bodies: Nodes of bodies of ``poptorch.for_loop`` and ``cond`` that were met, by the body's number.
        body_depth: Number of such bodies around the block.
        places: Places of the blocks of the model.
        around: The block that the body of control flow around is in; nodes in it are there.
    """

    net: BlockBuilder
    values: dict[torch.fx.Node, Any] = field(default_factory=dict)
    known: dict[torch.fx.Node, Any] = field(default_factory=dict)
    losses: list[torch.fx.Node] = field(default_factory=list)
    waiting: dict[torch.fx.Node, int] = field(default_factory=dict)
    missing: list[UnsupportedOpError] = field(default_factory=list)
    depth: int = 0
    expanding: list[Any] = field(default_factory=list)
    bodies: dict[int, list[torch.fx.Node]] = field(default_factory=dict)
    body_depth: int = 0
    places: BlockPlaces = field(default_factory=BlockPlaces)
    around: int | None = None

    def read(self, nodes: Sequence[torch.fx.Node]) -> None:
        """Convert nodes in order."""
        groups = _Groups(nodes, self.depth, self.places)
        for node in nodes:
            numbers = torch_export.bodies_of(node)[self.body_depth :]
            if numbers:
                self.bodies.setdefault(numbers[0], []).append(node)
                continue
            inside = groups.at(node)
            if inside is None:
                self._node(node)
            elif inside:
                with self.places.at(self.net, node, self.around):
                    self._checkpoint(inside)

    def _node(self, node: torch.fx.Node) -> None:
        with self.places.at(self.net, node, self.around):
            self._read_node(node)

    def _read_node(self, node: torch.fx.Node) -> None:
        name = torch_export.op_name(node)
        # Marks first: they stand for backward passes, and for loops and branches.
        if node.op == "get_attr":
            self.known[node] = torch_export.attribute(node)
        elif name == OWN_BACKWARD:
            self._own_backward(node)
        elif name == GRADIENTS:
            self._gradients(node)
        elif name == "abele.for_loop":
            with self._around(node):
                self._for_loop(node)
        elif name == "abele.branch":
            with self._around(node):
                self._branch(node)
        # The backward pass of a user's function waits until its results are read; nested calls belong to the latest.
        elif name == INCOMING or any(s in self.waiting for s in torch_export.iter_nodes(node)):
            sources = [self.waiting[s] for s in torch_export.iter_nodes(node) if s in self.waiting]
            call: Any = node.args[1] if name == INCOMING else max(sources)
            self.waiting[node] = call
        elif name == "getitem":
            self._item(node)
        elif name in CONTROL:
            with self.net.at(torch_export.origin(node)), self._around(node):
                self.values[node] = CONTROL[name](self, node)
        # Python's numbers stay on the host unless the device makes one of them.
        elif torch_export.is_python(node):
            args, kwargs = torch_export.map_args(self.value, node)
            if any(isinstance(arg, Value) for arg in args):
                self.values[node] = self._number(node, args)
            else:
                self.values[node] = torch_export.run_on_host(node, args, kwargs)
        # Calls on constants alone run on the host; everything else is an op of the network.
        elif self._is_known(node, name):
            self.known[node] = torch_export.run_on_host(node, *torch_export.map_args(self.known.__getitem__, node))
            torch_export.settle_sizes(node, self.known[node])
        else:
            if name in MARKED:
                self.losses.append(node)
            self._call(node)

    @contextmanager
    def _around(self, node: torch.fx.Node) -> Iterator[None]:
        """Bodies that are read inside are where a loop or branch is."""
        before = self.around
        if before is None:
            self.around = self.places.block_of(node)
        try:
            yield
        finally:
            self.around = before

    def _call(self, node: torch.fx.Node) -> None:
        if handler_of(node) is not None:
            self._convert(node)
        elif node.target not in self.expanding and (made := decomposed(node)) is not None:
            # Some rules of PyTorch lead back to where they started, over words of another level.
            self.expanding.append(node.target)
            self._check_sizes(node)
            self._expand(node, made)
            self.expanding.pop()
        else:
            self._miss(node, no_handler(node))

    def _number(self, node: torch.fx.Node, args: Sequence[Any]) -> Value:
        """Result of Python's arithmetic on numbers from the device, as ``x.sum().item() / 2``."""
        expression = _OF_NUMBERS.get(torch_export.op_name(node))
        if expression is None or not isinstance(torch_export.fake(node), torch.SymFloat):
            raise of_values(torch_export.line_of(node), size=True)
        with self.net.at(torch_export.origin(node)):
            numbers = [arg if isinstance(arg, Value) else build.full(self.net, arg, (), f32) for arg in args]
            return build.map_(self.net, expression, [build.cast(self.net, n, f32) for n in numbers])

    def _check_sizes(self, node: torch.fx.Node) -> None:
        """Raise if a size or a place, and not just a number to compute with, depends on values."""
        for given in torch_export.sizes_of(node, takes_values(node)):
            for part in torch_export.nodes_in(given):
                if isinstance(torch_export.fake(part), torch.SymInt) and isinstance(self.value(part), Value):
                    raise of_values(torch_export.line_of(node), size=True)

    def _convert(self, node: torch.fx.Node) -> None:
        self._check_sizes(node)
        try:
            self.values[node] = convert(self.net, node, *torch_export.map_args(self.value, node))
            torch_export.settle_sizes(node, self.values[node])
        except UnsupportedOpError as error:
            self._miss(node, error)

    def _expand(self, node: torch.fx.Node, made: torch.fx.GraphModule) -> None:
        """Convert what PyTorch makes of a call in its place."""
        operands = iter(operands_of(node))
        results: Any = None
        for inner in made.graph.nodes:
            self.values.pop(inner, None)
            self.known.pop(inner, None)
            if inner.op == "placeholder":
                source = next(operands)
                table = self.known if source in self.known else self.values
                table[inner] = table[source]
            elif inner.op == "output":
                results = inner.args[0]
            else:
                torch_export.inherit_origin(inner, node)
                self._node(inner)
        self.values[node] = torch_export.map_tree(self.value, results)

    def _miss(self, node: torch.fx.Node, error: UnsupportedOpError) -> None:
        """Remember a call that has no lowering, and go on with zeros in its place, to find the others as well."""
        self.missing.append(error)
        self.values[node] = torch_export.map_tensors(self._stand_in, torch_export.fake(node))

    def _stand_in(self, tensor: torch.Tensor) -> Value:
        # Only the shape matters: nothing is compiled. Types that the device lacks are refused where they first appear.
        dtype = f32 if tensor.is_complex() else element_type(tensor.dtype)
        return build.full(self.net, 0, tuple(tensor.shape), dtype)

    def _is_known(self, node: torch.fx.Node, name: str) -> bool:
        """True if a call can be made once and for all on the host."""
        sources = torch_export.iter_nodes(node)
        may_run = not torch_export.is_random(node) and name not in MARKED
        return may_run and all(s in self.known for s in sources)

    def _item(self, node: torch.fx.Node) -> None:
        source, index = node.args
        assert isinstance(source, torch.fx.Node)
        table = self.known if source in self.known else self.values
        table[node] = table[source][index]

    def value(self, node: Any) -> Any:
        """Value of a node in the block; tensors known at capture become constants."""
        if not isinstance(node, torch.fx.Node):
            return node
        if node not in self.values:
            if node not in self.known:
                raise Error(
                    f"{torch_export.op_name(node)} was made in the body of poptorch.for_loop or poptorch.cond, and is "
                    "used outside of it",
                    at=torch_export.origin(node).location or None,
                    remedy="return it from the body, or keep it in a buffer of the model",
                )
            self.values[node] = self._constant(self.known[node])
        return self.values[node]

    def _constant(self, known: Any) -> Any:
        if isinstance(known, (tuple, list)):
            return type(known)(map(self._constant, known))
        if not isinstance(known, torch.Tensor):
            return known
        known = known.detach()
        return self.net.constant(
            known.float().numpy() if known.is_floating_point() else known.numpy(), element_type(known.dtype)
        )

    def tensor(self, node: Any) -> Value:
        """The value of a node that is a tensor."""
        value = self.value(node)
        if isinstance(value, Value):
            return value
        fake = torch_export.fake(node) if isinstance(node, torch.fx.Node) else torch.as_tensor(value)
        return self.net.constant(value, element_type(fake.dtype))

    def _reader(self, net: BlockBuilder, depth: int) -> NodeReader:
        """A reader into a region, with the nodes that were read so far."""
        return NodeReader(
            net,
            dict(self.values),
            dict(self.known),
            missing=self.missing,
            depth=depth,
            body_depth=self.body_depth,
            places=self.places,
            around=self.around,
        )

    # --- bodies -------------------------------------------------------------------------------------------------------

    def body(self, node: Any, region: BlockBuilder, arguments: Sequence[Any]) -> list[Any]:
        """Append the body of a control flow operator to a region; returns its results.

        Args:
            node: The ``get_attr`` node of the body.
            region: Region to append to.
            arguments: Values of its placeholders: values and numbers.
        """
        module = torch_export.attribute(node)
        inner = NodeReader(region, missing=self.missing, places=self.places, around=self.around)
        nodes = list(module.graph.nodes)
        entering = iter(arguments)
        for placeholder in nodes:
            if placeholder.op == "placeholder":
                inner.values[placeholder] = next(entering)
        inner.read([n for n in nodes if n.op in ("call_function", "get_attr")])
        (last,) = (n for n in nodes if n.op == "output")
        results = last.args[0] if isinstance(last.args[0], (tuple, list)) else [last.args[0]]
        return [None if r is None else inner.tensor(r) for r in results]

    def _checkpoint(self, nodes: Sequence[torch.fx.Node]) -> None:
        """A stretch that the backward pass computes again."""
        own = set(nodes)
        inner = self._reader(self.net, self.depth + 1)
        leaving: list[tuple[torch.fx.Node, int | None]] = []

        def body(region: BlockBuilder) -> list[Value]:
            inner.net = region
            inner.read(nodes)
            results: list[Value] = []
            for node in nodes:
                made = inner.values.get(node)
                needed = torch_export.op_name(node) in MARKED or any(user not in own for user in node.users)
                if node in inner.known or not needed or node in inner.waiting:
                    continue
                for place, part in enumerate(made) if isinstance(made, (tuple, list)) else [(None, made)]:
                    if isinstance(part, Value):
                        results.append(part)
                        leaving.append((node, place))
            return results

        results = build.checkpoint(self.net, body)
        outside = set(self.values) | set(self.known)
        self.known |= {n: v for n, v in inner.known.items() if n not in outside}
        self.losses += inner.losses
        for (node, place), value in zip(leaving, results, strict=True):
            if place is None:
                self.values[node] = value
            else:
                self.values.setdefault(node, list(inner.values[node]))[place] = value

    def _gradients(self, node: torch.fx.Node) -> None:
        args: Any = node.args
        results, given, sources, keep = args
        if isinstance(self.net, RegionBuilder):
            raise Error(
                "torch.autograd.grad inside of a checkpoint, a loop or a branch is not supported",
                at=torch_export.origin(node).location or None,
                remedy="call it outside of them",
            )
        with self.net.at(torch_export.origin(node)):
            values = [[self.tensor(v) for v in part] for part in (results, given, sources)]
            made = gradients(self.net, *values)
            self.values[node] = made if keep else [build.detach(self.net, v) for v in made]

    def _body(
        self, number: int, region: BlockBuilder, parameters: Sequence[torch.fx.Node], given: Sequence[Any]
    ) -> Any:
        """A reader of a body into a region, which has read it.

        Args:
            number: The body's.
            region: Region to append to.
            parameters: Nodes in the body that stand for ``given``.
            given: Values of the region.
        """
        inner = self._reader(region, self.depth)
        inner.body_depth = self.body_depth + 1
        inner.values |= dict(zip(parameters, given, strict=True))
        nodes = self.bodies.get(number, [])
        entering = {n for p in parameters for n in p.all_input_nodes}
        inner.read([n for n in nodes if n not in inner.values and n not in entering])
        return inner

    def _for_loop(self, node: torch.fx.Node) -> None:
        args: Any = node.args
        number, count, inputs, parameters, results, before, after = args
        states = _changed(before, after)
        entering = [*parameters, *(state[0] for state in states)]
        leaving = [*results, *(state[1] for state in states)]
        initial = [self.tensor(v) for v in (*inputs, *(state[0] for state in states))]

        def trip(region: BlockBuilder, _: Value, *now: Value) -> list[Value]:
            inner = self._body(number, region, entering, now)
            made = [inner.tensor(r) for r in leaving]
            return [build.cast(region, v, start.dtype) for v, start in zip(made, initial, strict=True)]

        with self.net.at(torch_export.origin(node)):
            made = list(build.loop(self.net, count, initial, trip))
        self._leave(node, made, [state[1] for state in states])

    def _branch(self, node: torch.fx.Node) -> None:
        args: Any = node.args
        numbers, condition, then, otherwise, before, between, after = args
        # The second body reads what the first one left. Only one of them runs, so both begin with what was before.
        states = _changed(before, between, after)
        begin = [self.tensor(state[0]) for state in states]

        def body(place: int, wanted: Sequence[torch.fx.Node]) -> Any:
            def make(region: BlockBuilder) -> list[Value]:
                inner = self._body(numbers[place], region, [state[place] for state in states], begin)
                left = [inner.tensor(state[place + 1]) for state in states]
                kept = [build.cast(region, v, start.dtype) for v, start in zip(left, begin, strict=True)]
                return [*(inner.tensor(r) for r in wanted), *kept]

            return make

        with self.net.at(torch_export.origin(node)):
            chooser = build.cast(self.net, self.tensor(condition), bool_)
            made = list(build.cond(self.net, chooser, body(0, then), body(1, otherwise)))
        self._leave(node, made, [state[-1] for state in states])

    def _leave(self, node: torch.fx.Node, made: list[Value], names: Sequence[torch.fx.Node]) -> None:
        """Let results of bodies be those of their call, and the last ones the buffers that they leave.

        The program goes on with what it calls the buffer's last version, which stands in a body.
        """
        count = len(made) - len(names)
        self.values[node] = made[:count]
        self.values |= zip(names, made[count:], strict=True)

    def _own_backward(self, node: torch.fx.Node) -> None:
        """The results of a user's function, whose backward pass is what waited for this call."""
        args: Any = node.args
        number, results, sources, gradients = args
        nodes = [n for n, call in self.waiting.items() if call == number]

        def backward(region: BlockBuilder, *incoming: Value) -> list[Value]:
            inner = self._reader(region, self.depth)
            entering = iter(incoming)
            for waiting in nodes:
                if torch_export.op_name(waiting) == INCOMING:
                    inner.values[waiting] = next(entering)
            inner.read([n for n in nodes if n not in inner.values])
            return [inner.tensor(g) for g in gradients]

        with self.net.at(torch_export.origin(node)):
            made = build.own_gradient(
                self.net,
                [self.tensor(r) for r in results],
                [self.tensor(s) for s in sources],
                backward,
            )
        for waiting in nodes:
            del self.waiting[waiting]
        self.values[node] = list(made)


def _changed(*copies: Sequence[torch.fx.Node]) -> list[tuple[torch.fx.Node, ...]]:
    """Versions of each buffer that bodies change: the nodes before them and after each.

    Args:
        *copies: Copies of all buffers before the bodies, and after each.
    """
    versions: Any = [tuple(copy.args[0] for copy in made) for made in zip(*copies, strict=True)]
    return [version for version in versions if len(set(version)) > 1]


class _Groups:
    """Groups of nodes of a checkpoint, as stretches that can be one op.

    Args:
        nodes: In order.
        depth: Number of checkpoints that are open already.
        places: Places of blocks: a checkpoint that goes through several is several.
    """

    def __init__(self, nodes: Sequence[torch.fx.Node], depth: int, places: BlockPlaces) -> None:
        self._members: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        self._first: set[torch.fx.Node] = set()
        last: tuple[int, int | None] | None = None
        group = list[torch.fx.Node]()
        for node in nodes:
            numbers = torch_export.checkpoints_of(node)[depth:]
            if not numbers:
                last = None
                continue
            stretch = numbers[0], places.block_of(node)
            if stretch != last:
                last, group = stretch, []
                self._first.add(node)
            group.append(node)
            self._members[node] = group

    def at(self, node: torch.fx.Node) -> list[torch.fx.Node] | None:
        """None outside of checkpoints; the whole stretch at its first node; nothing at the others."""
        if node not in self._members:
            return None
        return self._members[node] if node in self._first else []

"""The one place that touches what PyTorch may change: ``torch.export``, node metadata, trees and tensor internals.

Everything else sees :class:`Exported`, which is ours.
"""

from __future__ import annotations

import functools
import inspect
import logging
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.proxy import TracerBase
from torch.utils import _traceback

from abele.frontends.poptorch.capture.call_errors import CallErrors, of_recording
from abele.frontends.poptorch.capture.host_words import BODY
from abele.frontends.poptorch.capture.known_values import KnownValues, buffer_values
from abele.frontends.poptorch.capture.patches import patched
from abele.frontends.poptorch.capture.recording import CHECKPOINT, recording
from abele.frontends.poptorch.capture.replaced import functions_replaced
from abele.frontends.poptorch.capture.rewriting import rewrite
from abele.frontends.poptorch.capture.source_lines import ORIGINS, PACKAGES, user_frame, users_frame
from abele.frontends.poptorch.capture.sparse_tensors import SparseCalls, sparse_held
from abele.frontends.poptorch.capture.stand_ins import StandIns
from abele.frontends.poptorch.capture.state_changes import Attributes, ModelState, NewBuffersError, check_buffers
from abele.frontends.poptorch.capture.transforms import transforms_inlined
from abele.frontends.poptorch.program.blocks import BLOCK, BlockRecord, recording_blocks
from abele.frontends.poptorch.program.overlap import CURRENT
from abele.frontends.poptorch.values import structures
from abele.graph.debug import DebugRecord

_WRITTEN = "abele_written"
"""Key in the metadata of a node for the names of the operator that the user called, without and with its overload."""

_LOGGERS = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")

_REGIONS = frozenset({"wrap_with_autocast", "_make_dual"})
"""Regions of code and forward derivatives written out, which PyTorch puts in their place when it decomposes."""

_INPUT_ROLES = {
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.USER_INPUT: "input",
}

SCOPE = "abele_scope"
"""Key in the metadata of a recorded call for the scope that the user named."""

_OUTPUT_ROLES = {OutputKind.USER_OUTPUT: "output", OutputKind.USER_INPUT_MUTATION: "input"}


@dataclass(frozen=True)
class GraphInput:
    """A value that enters the graph: its node, its role, and for parameters, buffers and constants the tensor."""

    node: torch.fx.Node
    role: str
    name: str
    tensor: torch.Tensor | None


@dataclass(frozen=True)
class GraphOutput:
    """A value that leaves the graph: an output (node or plain constant), or new contents.

    Attributes:
        role: ``output``, ``update`` of a parameter or buffer, or ``input``: an argument that the model changes.
        target: Name of what is updated.
        value: The node, or the constant.
    """

    role: str
    target: str
    value: Any


@dataclass(frozen=True)
class Exported:
    """A model as a flat list of ATen calls.

    Attributes:
        entries: Inputs of the program, in order; user inputs in the order of the flattened arguments.
        nodes: The nodes between what enters and what leaves.
        results: Results of the program: the tensors that the model returns, and new contents.
        returned: Result of the model when it was recorded, its tensors replaced by empty ones.
        blocks: The blocks that it went through.
    """

    entries: list[GraphInput]
    nodes: list[torch.fx.Node]
    results: list[GraphOutput]
    returned: Any
    blocks: BlockRecord


class _Kept:
    """Traces of a recorded call. Export sets attributes of the module itself back to their old values.

    Attributes:
        attributes: Those that the call set on the model.
        values: Those of its buffers and constants that are known.
        returned: Result of the call.
        blocks: The blocks that it went through.
    """

    def __init__(self, attributes: Attributes, values: KnownValues) -> None:
        self.attributes = attributes
        self.values = values
        self.returned: Any = None
        self.blocks = BlockRecord()


class _Recorded(torch.nn.Module):
    """A model as a function of flat tensors, so that PyTorch sees nothing of how arguments and results are nested.

    Args:
        model: Model to record.
        arguments: Its arguments and keyword arguments; whatever is not a tensor is a constant.
        changing: Names of buffers whose values are not known.
    """

    def __init__(self, model: torch.nn.Module, arguments: Any, changing: Collection[str]) -> None:
        super().__init__()
        self.model = model
        self.arguments = arguments
        self.kept = _Kept(Attributes(model), KnownValues(buffer_values(model, changing)))

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The tensors among the model's results."""
        # Its imports have PyTorch's compiler, which by now is loaded, and is not with this module.
        from abele.frontends.poptorch.capture.flex_attention import flex_attention_recorded

        entering, overlap = iter(tensors), CURRENT.get()
        args, kwargs = structures.map_tensors(lambda _: next(entering), self.arguments)
        if overlap is not None:
            overlap.inputs = tensors
        state = ModelState(self.model)
        try:
            with (
                state.kept(),
                self.kept.values.of(self.model),
                functions_replaced() as replaced,
                transforms_inlined(),
                flex_attention_recorded(),
                SparseCalls(),
                recording_blocks() as self.kept.blocks,
                CallErrors(),
            ):
                returned = state.settle(self.model(*args, **kwargs))
        except Exception as error:
            # Here, for PyTorch shows the program so far, on the terminal, for some errors that leave this function.
            raise of_recording(error) from error
        self.kept.attributes.note()
        self.kept.returned = returned
        results = [leaf for leaf in structures.leaves(returned) if isinstance(leaf, torch.Tensor)]
        replaced.warn_of_host(results)
        if overlap is not None:
            overlap.check(results)
        return results


def export(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    training: bool,
    losses: Collection[str] = (),
    changing: Collection[str] = (),
) -> Exported:
    """Record one call of ``model`` in PyTorch's training IR; nothing is computed, and Python's forward runs once.

    Args:
        model: Model to record.
        args: Positional arguments; tensors give shapes and types only.
        kwargs: Keyword arguments.
        training: True if gradients will be taken.
        losses: Operators whose results are marked as losses, and kept even if nothing uses them.
        changing: Names of buffers that others than the model change; what they hold is not known.

    Raises:
        Error: The model's Python code depends on values of tensors, or PyTorch cannot record it.
    """
    with sparse_held(model):
        return _export(model, args, kwargs, training=training, losses=losses, changing=changing)


def _export(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    training: bool,
    losses: Collection[str],
    changing: Collection[str],
) -> Exported:
    check_buffers(model)
    unknown = set(changing)
    while True:
        try:
            recorded = _Recorded(model, (args, kwargs), unknown)
            exported = _export_once(recorded, args, kwargs, training=training, losses=losses)
        except NewBuffersError as made:
            made.register()
            continue
        written = {r.target for r in exported.results if r.role == "update"} - unknown
        if not (recorded.kept.values.was_read and written & {name for name, _ in model.named_buffers()}):
            return exported
        # Python has looked at values, and they may be those of what the program changes.
        unknown |= written


def _export_once(
    recorded: _Recorded, args: tuple[Any, ...], kwargs: dict[str, Any], *, training: bool, losses: Collection[str]
) -> Exported:
    model = recorded.model
    # Tensors of their own: what the caller's share, or which of them are views, is no part of a program.
    tensors = tuple(_blank(t) for t in structures.leaves((args, kwargs)) if isinstance(t, torch.Tensor))
    names = [name for name, leaf in _named_arguments(model, args, kwargs) if isinstance(leaf, torch.Tensor)]
    modes = torch.set_grad_enabled(training), recording(training=training)
    contexts = (
        _quiet(),
        _use_lazy_graph_module(should_use=True),  # Nobody runs the Python code of the graphs between two passes.
        _user_frames_only(),
        _without_fast_paths(),
        _without_checks_of_values(),
        without_reports_of_matrices(),
        StandIns(),
    )
    with ExitStack() as stack:
        for context in (*contexts, *modes):
            stack.enter_context(context)
        try:
            program = torch.export.export(recorded, tensors, strict=False)
            rewrite(program, {overload for name in losses for overload in _overloads(name)})
            if any(is_mutable(n) or op_name(n) in _REGIONS for n in calls_of(program)):
                with _keeping_composites_of(program):
                    program = program.run_decompositions({})
        except Exception as error:
            raise of_recording(error) from error
        finally:
            recorded.kept.attributes.keep()
    returned = structures.map_tensors(lambda _: torch.empty(0), recorded.kept.returned)
    return _read(program, names, returned, recorded.kept.blocks)


@contextmanager
def _keeping_composites_of(program: torch.export.ExportedProgram) -> Iterator[None]:
    """Let PyTorch keep the composite operators of a program, and their forms for its in-place calls.

    By itself it looks at every operator that there is, and overrides a thousand of them for each program: 0.4 s.
    """
    from torch._export.utils import _is_preservable_cia_op
    from torch.export import exported_program as module

    called = {n.target for n in calls_of(program) if isinstance(n.target, torch._ops.OpOverload)}
    packets = {getattr(torch.ops.aten, overload.__name__.split(".")[0].removesuffix("_"), None) for overload in called}
    called |= {getattr(packet, name) for packet in packets if packet is not None for name in packet.overloads()}
    kept = {overload for overload in called if _is_preservable_cia_op(overload)}
    with patched(module, _collect_all_valid_cia_ops=lambda: kept):
        yield


def _blank(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return torch.empty(tensor.shape, dtype=tensor.dtype)


def _named_arguments(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """The leaves of the arguments with names made of those of the model's parameters."""
    try:
        named = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        named = {"args": args, "kwargs": kwargs}
    return structures.named_leaves(dict(named))


def _overloads(name: str) -> list[Any]:
    """The overloads of an operator such as ``aten.mse_loss``."""
    space, operator = name.split(".")
    packet = getattr(getattr(torch.ops, space), operator)
    return [getattr(packet, overload) for overload in packet.overloads()]


def calls_of(program: torch.export.ExportedProgram) -> Iterator[torch.fx.Node]:
    """Every call of a program, those in the bodies of its control flow included."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.op == "call_function" and op_name(node) != "getitem":
                    yield node


def _read(program: torch.export.ExportedProgram, names: Sequence[str], returned: Any, blocks: BlockRecord) -> Exported:
    signature = program.graph_signature
    nodes = list(program.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    tensors = {**program.state_dict, **program.constants}
    # The last placeholders are the model's inputs, in the order of its arguments.
    inputs = dict(zip(placeholders[len(placeholders) - len(names) :], names, strict=True))
    entries = [
        GraphInput(
            node,
            _INPUT_ROLES.get(spec.kind, spec.kind.name),
            inputs.get(node) or _own_name(spec.target or node.name),
            tensors.get(spec.target),
        )
        for node, spec in zip(placeholders, signature.input_specs, strict=True)
    ]
    input_names = {node.name: name for node, name in inputs.items()}
    (last,) = (n for n in nodes if n.op == "output")
    results = [
        GraphOutput(
            _OUTPUT_ROLES.get(spec.kind, "update"),
            input_names.get(spec.target or "") or _own_name(spec.target or ""),
            spec.arg.value if isinstance(spec.arg, ConstantArgument) else value,
        )
        for spec, value in zip(signature.output_specs, last.args[0], strict=True)
    ]
    # A call that failed, and whose error the model caught, has no result.
    inner = [n for n in nodes if n.op == "get_attr" or (n.op == "call_function" and (n.users or fake(n) is not None))]
    return Exported(entries, inner, results, returned, blocks)


def _own_name(name: str) -> str:
    """A name in the recorded module as the user's model has it."""
    return "" if name == "model" else name.removeprefix("model.")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that PyTorch's own export code causes, and its log of what is raised as an error as well."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*(export|pytree|LeafSpec|treespec).*")
        warnings.filterwarnings("ignore", message=r"The \.grad attribute of a Tensor")
        # Not by their levels: each change of one makes Python go through all loggers that there are.
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        were = [logger.disabled for logger in loggers]
        for logger in loggers:
            logger.disabled = True
        try:
            yield
        finally:
            for logger, was in zip(loggers, were, strict=True):
                logger.disabled = was


@contextmanager
def _user_frames_only() -> Iterator[None]:
    """Let PyTorch read the source lines of the frames alone that a call may come from.

    By itself it reads those of a hundred frames for each call. It keeps the frames from the outermost ``forward`` on,
    and most of these are its own. Of these, newer releases keep frames of ``forward`` alone, and none of the functions
    that it calls.
    """
    filters = {"_filter_traceback_frames": users_frame} if hasattr(TracerBase, "_filter_traceback_frames") else {}
    with patched(_traceback, _extract_symbolized_tb=_user_frames), patched(TracerBase, **filters):
        yield


def _user_frames(frames: list[dict[str, Any]], skip: int) -> traceback.StackSummary:
    outermost_first = frames[skip:][::-1]
    names = [frame["name"] for frame in outermost_first]
    begin = names.index("forward") if "forward" in names else 0
    return traceback.StackSummary(
        traceback.FrameSummary(frame["filename"], frame["line"], frame["name"])
        for frame in outermost_first[begin:]
        if frame["name"] == "forward" or not frame["filename"].startswith(PACKAGES)
    )


@contextmanager
def _without_fast_paths() -> Iterator[None]:
    """Transformer layers as operators, rather than one of PyTorch's own for the whole layer."""
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was)


@contextmanager
def without_reports_of_matrices() -> Iterator[None]:
    """Checks of what LAPACK reports are left out: nothing reports on the device, and PyTorch would keep their order."""
    from torch._library.simple_registry import singleton

    effect: Any = singleton.find("aten::_linalg_check_errors").effect
    with patched(effect, _effect=None):
        yield


@contextmanager
def _without_checks_of_values() -> Iterator[None]:
    """Keep distributions from looking at their parameters, whose values are not known yet."""
    distribution: Any = torch.distributions.Distribution
    was = distribution._validate_args
    distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        distribution.set_default_validate_args(was)


# --- nodes ---------------------------------------------------------------------------------------------------


def op_name(node: torch.fx.Node) -> str:
    """The operator of a call without its overload, as in ``aten.conv2d``."""
    packet = getattr(node.target, "overloadpacket", None)
    return str(packet) if packet is not None else getattr(node.target, "__name__", str(node.target))


def overload_name(node: torch.fx.Node) -> str:
    """The operator of a call with its overload, as in ``aten.max.dim``."""
    return f"{op_name(node)}.{getattr(node.target, '_overloadname', '')}"


def written_name(node: torch.fx.Node) -> str:
    """The operator that the user called, where decomposing made others of it."""
    if _WRITTEN in node.meta:
        return str(node.meta[_WRITTEN][0])
    source, name = node.meta.get("from_node"), op_name(node)
    while source:
        target = str(source[0].target)
        name, source = target.rsplit(".", 1)[0] if target.startswith("aten.") else name, source[0].from_node
    return name


def written_overload(node: torch.fx.Node) -> str:
    """The overload that the user called, as far as it is known."""
    return str(node.meta[_WRITTEN][1]) if _WRITTEN in node.meta else overload_name(node)


def is_mutable(node: torch.fx.Node) -> bool:
    """True if a call changes one of its arguments, ``out=`` among them."""
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def fake(node: torch.fx.Node) -> Any:
    """The result of a call as tensors without data: shape and type of each."""
    return node.meta.get("val")


def settle_sizes(node: torch.fx.Node, made: Any) -> None:
    """Let sizes that PyTorch did not know in the result of a call be those of what was made of it; others follow."""
    before = fake(node)
    if isinstance(before, torch.Tensor) and hasattr(made, "shape"):
        for size, number in zip(before.shape, made.shape, strict=True):
            if isinstance(size, torch.SymInt):
                torch._check(size == number)


def origin(node: torch.fx.Node) -> DebugRecord:
    """Name, module path and the user's source line of a call."""
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = modules[-1] if modules else ("", "")
    path = _own_name(path)
    kind = kind if isinstance(kind, str) else getattr(kind, "__name__", "")
    file, line = line_of(node)
    label = f"{path or 'model'} ({kind.rsplit('.', 1)[-1]})" if kind else path
    scope = (node.meta.get("custom") or {}).get(SCOPE)
    where = "/".join(filter(None, (path.replace(".", "/") if ORIGINS.get().modules else "", scope)))
    return DebugRecord(op_name(node).rsplit(".", 1)[-1], where, file, line, label)


def line_of(node: torch.fx.Node) -> tuple[str, int]:
    """File and line of the user's call."""
    return user_frame(node.meta.get("stack_trace") or "")


def inherit_origin(inner: torch.fx.Node, outer: torch.fx.Node) -> None:
    """Give a call that stands for another, or for a part of it, the other's name and place in the model."""
    for key in ("nn_module_stack", "stack_trace"):
        inner.meta[key] = outer.meta.get(key)
    inner.meta[_WRITTEN] = written_name(outer), written_overload(outer)


def run_on_host(node: torch.fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call on tensors that are known at capture."""
    assert callable(node.target)
    with torch.no_grad():
        made = node.target(*args, **kwargs)
        # Memory without contents differs from run to run, and may not even fit the device's types.
        return made.zero_() if "empty" in op_name(node) else made


def is_python(node: torch.fx.Node) -> bool:
    """True if a call computes plain numbers, sizes for the most part, with an operator of Python's own."""
    return getattr(node.target, "__module__", None) in ("_operator", "math")


def is_random(node: torch.fx.Node) -> bool:
    """True if a call draws random numbers."""
    tags: Any = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def checkpoints_of(node: torch.fx.Node) -> tuple[int, ...]:
    """Numbers of the checkpoints that a call is in, the outermost first."""
    return tuple((node.meta.get("custom") or {}).get(CHECKPOINT, ()))


def bodies_of(node: torch.fx.Node) -> tuple[int, ...]:
    """Numbers of the bodies of loops and branches that a call is in, the outermost first."""
    return tuple((node.meta.get("custom") or {}).get(BODY, ()))


def block_of(node: torch.fx.Node) -> int | None:
    """Number of a call's block, ``OUTSIDE`` for a call in no block, or None if nothing is known of it."""
    found: int | None = (node.meta.get("custom") or {}).get(BLOCK)
    return found


def attribute(node: torch.fx.Node) -> Any:
    """Object of a ``get_attr`` node: a tensor, or the body of a control flow operator."""
    return functools.reduce(getattr, str(node.target).split("."), node.graph.owning_module)


def map_args(function: Callable[[torch.fx.Node], Any], node: torch.fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a call with every node replaced by ``function(node)``."""
    args = torch.fx.map_arg(node.args, function)
    kwargs = torch.fx.map_arg(node.kwargs, function)
    return tuple(args), dict(kwargs)


def iter_nodes(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The nodes that a call reads."""
    return list(node.all_input_nodes)


def sizes_of(node: torch.fx.Node, others: Collection[int]) -> Iterator[Any]:
    """Arguments of a call that are sizes, places or counts: neither tensors, nor numbers to compute with.

    Args:
        node: The call.
        others: Places of arguments that are none either.
    """
    schema = getattr(node.target, "_schema", None)
    for place, argument in enumerate(schema.arguments if schema is not None else ()):
        if place not in others and str(argument.type) not in _NO_SIZES:
            yield node.kwargs.get(argument.name, node.args[place] if place < len(node.args) else None)


_NO_SIZES = ("number", "Optional[number]", "Tensor", "Optional[Tensor]", "List[Tensor]")


def nodes_in(tree: Any) -> list[torch.fx.Node]:
    """The nodes in an argument of a call."""
    found: list[torch.fx.Node] = []
    torch.fx.map_arg(tree, found.append)
    return found


def map_tree(function: Callable[[torch.fx.Node], Any], tree: Any) -> Any:
    """Nested results with every node replaced by ``function(node)``."""
    return pytree.tree_map(
        lambda leaf: function(leaf) if isinstance(leaf, torch.fx.Node) else leaf,
        tree,
        is_leaf=lambda leaf: isinstance(leaf, torch.fx.Node),
    )


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Nested results with every tensor replaced by ``function(tensor)``."""
    return pytree.tree_map_only(torch.Tensor, function, tree)

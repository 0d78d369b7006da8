"""Stages of a pipeline as graphs, and the ticks that call them.

What a stage does with the chip alone becomes a graph. Loads from the host come before it and stores behind it, in the
graph around; so do copies to other IPUs that no other op of the stage reads, for all stages at once. A tensor that a
later stage reads is a *waiting* one there until then: in each tick it moves on by one stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from abele.frontends import popxl
from abele.frontends.popxl import Constant, Graph, Tensor, Variable, ops
from abele.frontends.popxl.calls import FunctionCall
from abele.frontends.popxl.operations import GraphOperation, HostLoad, HostStore, RemoteLoad
from abele.frontends.popxl.tensors import Alias


@dataclass
class PipelineStage:
    """One stage.

    Attributes:
        loads: Loads from the host before it.
        inside: Ops of its graph.
        sends: Copies to other IPUs behind it.
        stores: Stores to the host behind it.
        graph: The graph, if it has ops.
        entering: Tensors of the pipeline that the graph takes.
        around: Tensors around the pipeline that it takes, by reference.
        leaving: Tensors of the pipeline that it makes or changes and others need.
    """

    loads: list[HostLoad] = field(default_factory=list)
    inside: list[Any] = field(default_factory=list)
    sends: list[GraphOperation] = field(default_factory=list)
    stores: list[HostStore] = field(default_factory=list)
    graph: Graph | None = None
    entering: list[Tensor] = field(default_factory=list)
    around: list[Tensor] = field(default_factory=list)
    leaving: list[Tensor] = field(default_factory=list)

    @property
    def every(self) -> list[Any]:
        """All its ops."""
        return [*self.loads, *self.inside, *self.sends, *self.stores]


@dataclass
class StagedGraph:
    """The stages of a pipeline.

    Attributes:
        graph: Graph around it.
        stages: The stages.
        waiting: Tensors that wait, each with the stage before which it does.
    """

    graph: Graph
    stages: list[PipelineStage]
    waiting: list[tuple[Tensor, int]]

    @property
    def around(self) -> list[Tensor]:
        """Tensors around that stages take."""
        return list(dict.fromkeys(t for stage in self.stages for t in stage.around))


def staged(graph: Graph, operations: Sequence[Sequence[Any]], before: set[str]) -> StagedGraph:
    """The ops of each stage as graphs.

    Args:
        graph: Graph around them.
        operations: The ops of each stage.
        before: Names of the tensors around.
    """
    own = {
        t for t in graph.tensors if t.id not in before and not isinstance(t, Constant | Variable) and t.alias is None
    }
    stages = [PipelineStage(inside=list(given)) for given in operations]
    _bring_early(stages, own)
    for stage in stages:
        _take_out(stage, own)
    last: dict[Tensor, int] = {}
    first: dict[Tensor, int] = {}
    for number, stage in enumerate(stages):
        for tensor in (t for op in stage.every for t in _touched(op) if t in own):
            first.setdefault(tensor, number)
            last[tensor] = number
    # In order of ops, not of sets: programs are to be the same from run to run.
    spans = [(t, n, last[t]) for t, n in first.items()]
    moved: list[Tensor] = []
    inner = {t for t in graph.tensors if t.id not in before and not isinstance(t, Constant | Variable)}
    for number, stage in enumerate(stages):
        if stage.inside:
            behind = {t for op in (*stage.sends, *stage.stores) for t in _touched(op)}
            later = {t for t, end in last.items() if end > number}
            moved += _make_graph(graph, stage, own, inner, (behind | later).__contains__)
    for tensor in moved:
        # Tensors are told apart by their names, which change here.
        graph.disown(tensor)
        tensor.graph.enlist(tensor, tensor.name)
    waiting = [(t, number) for t, begin, end in spans for number in range(begin + 1, end + 1)]
    return StagedGraph(graph, stages, waiting)


# --- ops --------------------------------------------------------------------------------------------------------------


def _bases(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors that one shows."""
    if tensor.alias is None:
        yield tensor
    else:
        for base in tensor.alias.bases:
            yield from _bases(base)


def _named(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif type(value) in (list, tuple):
        for inner in value:
            yield from _named(inner)
    elif type(value) is dict:
        for pair in value.items():
            yield from _named(pair)


def _touched(op: Any) -> list[Tensor]:
    """Tensors that an op reads, makes or changes, without views."""
    named = (t for one in fields(op) for t in _named(getattr(op, one.name)))
    return list(dict.fromkeys(base for t in named for base in _bases(t)))


def _changed(op: Any) -> set[Tensor]:
    """Tensors that an op makes or changes, without views."""
    found: list[Tensor] = []
    if isinstance(op, GraphOperation):
        found = [*op.outputs, *(op.inputs[n] for n in op.modifies)]
        found = [t for t in found if not op.is_view or t not in op.outputs]
    elif isinstance(op, FunctionCall):
        found = list(op.outputs)
        for graph, given in zip(op.graphs, op.inputs, strict=True):
            found += [t for n, t in enumerate(given) if graph.inputs[n].by_ref or n in op.modified]
    elif isinstance(op, HostLoad | RemoteLoad):
        found = [op.output]
    return {base for t in found for base in _bases(t)}


def _copy_ends(op: Any, own: set[Tensor]) -> tuple[Tensor, Tensor] | None:
    """The tensor that a copy to another IPU copies, and the copy; None for other ops."""
    if isinstance(op, GraphOperation) and op.kind == "ipu_copy" and op.inputs[0] in own and op.outputs[0] in own:
        return op.inputs[0], op.outputs[0]
    return None


def _bring_early(stages: Sequence[PipelineStage], own: set[Tensor]) -> None:
    """Move copies at the begin of a stage to the end of the one before."""
    made: set[Tensor] = set()
    for number, stage in enumerate(stages):
        changed: set[Tensor] = set()
        for op in list(stage.inside):
            ends = _copy_ends(op, own)
            if ends is not None and number and ends[0] in made and ends[0] not in changed:
                stage.inside.remove(op)
                stages[number - 1].inside.append(op)
                made.add(ends[1])
            changed |= _changed(op)
        made |= changed


def _take_out(stage: PipelineStage, own: set[Tensor]) -> None:
    """Take loads, stores and copies out of the ops of a stage, where it can do without."""
    inside, stage.inside = stage.inside, []
    for number, op in enumerate(inside):
        later = {t for other in inside[number + 1 :] for t in _changed(other)}
        beside = {t for other in inside if other is not op for t in _touched(other)}
        ends = _copy_ends(op, own)
        if isinstance(op, HostLoad) and op.output in own:
            stage.loads.append(op)
        elif isinstance(op, HostStore) and op.tensor in own and op.tensor not in later:
            stage.stores.append(op)
        elif ends is not None and ends[0] not in later and ends[1] not in beside:
            stage.sends.append(op)
        else:
            stage.inside.append(op)


# --- graphs -----------------------------------------------------------------------------------------------------------


def _make_graph(
    graph: Graph, stage: PipelineStage, own: set[Tensor], inner: set[Tensor], is_needed: Callable[[Tensor], bool]
) -> list[Tensor]:
    """Give a stage its graph; the tensors that its ops make move there, and are given back."""
    made = stage.graph = graph.ir.create_empty_graph(f"{graph.name}_stage")
    changed = {t for op in stage.inside for t in _changed(op)}
    loaded = {op.output for op in stage.loads}
    seen: set[Tensor] = set()
    makes: dict[Tensor, None] = {}
    for op in stage.inside:
        if isinstance(op, GraphOperation | FunctionCall | RemoteLoad | HostLoad):
            results = op.outputs if isinstance(op, GraphOperation | FunctionCall) else [op.output]
            makes |= dict.fromkeys(t for t in results if t in own and t not in seen and t not in loaded)
        seen.update(_touched(op))
    inside: dict[Tensor, Tensor] = {}
    moved: list[Tensor] = []

    def move(tensor: Tensor) -> Tensor:
        tensor.graph = made
        moved.append(tensor)
        return tensor

    def of(tensor: Tensor) -> Tensor:
        if isinstance(tensor, Constant):
            return tensor
        if tensor not in inside:
            alias = tensor.alias
            if alias is not None:
                bases = [of(base) for base in alias.bases]
                if tensor in inner and tensor.graph is graph:
                    found = move(tensor)
                else:
                    found = Tensor(made, tensor.name, tensor.shape, tensor.dtype, ipu=tensor.ipu)
                found.alias = Alias(bases[0], alias.read, alias.write, tuple(bases[1:]))
            elif tensor in makes:
                found = move(tensor)
            else:
                (stage.entering if tensor in own else stage.around).append(tensor)
                found = popxl.graph_input(
                    tensor.shape, tensor.dtype, tensor.name, by_ref=tensor not in own, meta_shape=tensor.meta_shape
                )
                found.ipu = tensor.ipu
            inside[tensor] = found
        return inside[tensor]

    with made:
        for op in stage.inside:
            for one in fields(op):
                setattr(op, one.name, _mapped(getattr(op, one.name), of))
            made.add(op)
        for tensor in [t for t in (*stage.entering, *makes) if t in changed and is_needed(t)]:
            stage.leaving.append(tensor)
            popxl.graph_output(inside[tensor])
    return moved


def _mapped(value: Any, of: Callable[[Tensor], Tensor]) -> Any:
    """A field of an op with other tensors."""
    if isinstance(value, Tensor):
        return of(value)
    if type(value) in (list, tuple):
        return type(value)(_mapped(inner, of) for inner in value)
    if type(value) is dict:
        return {_mapped(key, of): _mapped(inner, of) for key, inner in value.items()}
    return value


# --- ticks ------------------------------------------------------------------------------------------------------------

Waiting = Mapping[tuple[Tensor, int], Tensor]
"""Tensors that wait before a stage, as the graph around has them."""


def run_staged(pipeline: StagedGraph, steps: int) -> None:
    """Append the ticks of a pipeline: some to fill it, a loop of those with all stages, some to empty it."""
    count, around = len(pipeline.stages), {t: t for t in pipeline.around}
    waiting: dict[tuple[Tensor, int], Tensor] = {}
    for tick in range(count - 1):
        waiting |= _tick(pipeline, range(tick + 1), waiting, around)
    body = pipeline.graph.ir.create_empty_graph(f"{pipeline.graph.name}_pipeline")
    with body:
        entered = {key: _input_like(key[0], by_ref=False) for key in pipeline.waiting}
        taken = {t: _input_like(t, by_ref=True) for t in around}
        after = _tick(pipeline, range(count), entered, taken)
        for key in pipeline.waiting:
            popxl.graph_output(after[key])
    made = ops.repeat(body, steps - count + 1, *(waiting[key] for key in pipeline.waiting), *around)
    waiting |= zip(pipeline.waiting, made, strict=True)
    for tick in range(1, count):
        waiting |= _tick(pipeline, range(tick, count), waiting, around)


def _input_like(tensor: Tensor, *, by_ref: bool) -> Tensor:
    made = popxl.graph_input(tensor.shape, tensor.dtype, tensor.name, by_ref=by_ref, meta_shape=tensor.meta_shape)
    made.ipu = tensor.ipu
    return made


def _tick(
    pipeline: StagedGraph, busy: Sequence[int], waiting: Waiting, around: Mapping[Tensor, Tensor]
) -> dict[tuple[Tensor, int], Tensor]:
    """Append a tick, and give what waits afterwards.

    Args:
        pipeline: The pipeline.
        busy: Stages that run.
        waiting: Tensors that wait before the tick.
        around: Tensors around, as the current graph has them.
    """
    # The last stage runs first.
    there: dict[int, dict[Tensor, Tensor]] = {
        number: {t: made for (t, stage), made in waiting.items() if stage == number} for number in reversed(busy)
    }
    for number, tensors in there.items():
        for load in pipeline.stages[number].loads:
            with popxl.ipu(load.output.ipu):
                tensors[load.output] = ops.host_load(load.stream)
    for number, tensors in there.items():
        stage = pipeline.stages[number]
        if stage.graph is not None:
            given = {t: tensors[t] if t in tensors else around[t] for t in (*stage.entering, *stage.around)}
            inputs = dict(zip(stage.graph.inputs, _in_order(stage, given), strict=True))
            tensors |= zip(stage.leaving, ops.call(stage.graph, inputs_dict=inputs), strict=True)
    for number, tensors in there.items():
        for send in pipeline.stages[number].sends:
            source, made = send.inputs[0], send.outputs[0]
            tensors[made] = tensors[source].copy_to_ipu(made.ipu)
    for number, tensors in there.items():
        for store in pipeline.stages[number].stores:
            ops.host_store(store.stream, tensors[store.tensor])
    return {(t, n): there[n - 1][t] for t, n in pipeline.waiting if n - 1 in there}


def _in_order(stage: PipelineStage, given: Mapping[Tensor, Tensor]) -> Iterator[Tensor]:
    """Arguments of a stage's graph: its inputs came in the order in which its ops named them."""
    entering, around = iter(stage.entering), iter(stage.around)
    assert stage.graph is not None
    for tensor in stage.graph.inputs:
        yield given[next(around if tensor.by_ref else entering)]

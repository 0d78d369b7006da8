"""Stages of layers: as the user's scopes and lists say, and how traces learn of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from abele.errors import InvalidOptionError, SessionError
from abele.frontends.keras.model.scopes import noted_stage, stage_scope, tracing
from abele.frontends.keras.private import Functional, Sequential, backend, keras
from abele.words import counted


class LayerPipelineStageAssignment:
    """A call of a layer, and the stage that it is in.

    Args:
        layer: The layer.
        node_index: Number of the call, of all calls of the layer.
        pipeline_stage: The stage; None if it has none yet.
        inbound_layers: Layers whose results it reads.
        node: Keras' node of the call, in functional models.
    """

    def __init__(
        self,
        layer: Any,
        node_index: int = 0,
        pipeline_stage: int | None = None,
        inbound_layers: Any = (),
        node: Any = None,
    ) -> None:
        self.layer, self.node_index, self.inbound_layers, self.node = layer, node_index, list(inbound_layers), node
        self.pipeline_stage = pipeline_stage

    @property
    def pipeline_stage(self) -> int | None:
        """The stage."""
        return self._stage

    @pipeline_stage.setter
    def pipeline_stage(self, stage: int | None) -> None:
        if stage is not None and (isinstance(stage, bool) or not isinstance(stage, int) or stage < 0):
            raise InvalidOptionError(f"a pipeline stage is a whole number from 0 on, not {stage!r}")
        self._stage = stage

    @property
    def is_nested_model(self) -> bool:
        """True for a model that is a layer of another; it is in one stage as a whole."""
        return isinstance(self.layer, keras.Model)

    def __repr__(self) -> str:
        return f"{self.layer.name}[{self.node_index}]: stage {self.pipeline_stage}"


def _nodes(model: Any) -> list[Any]:
    """The calls of a functional model, but for its inputs, in the order in which they run."""
    by_depth = model._nodes_by_depth
    return [n for depth in sorted(by_depth, reverse=True) for n in by_depth[depth] if not n.is_input and n.operation]


def _pipelined_layers(model: Any) -> list[Any]:
    return [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]


def is_functional(model: Any) -> bool:
    """True for a graph of layers, not a plain sequence."""
    return isinstance(model, Functional) and not isinstance(model, Sequential)


def assignment_of(model: Any) -> list[LayerPipelineStageAssignment]:
    """The calls of a model's layers, with the stages that scopes gave them.

    Raises:
        SessionError: A model of the user's own class that is not built.
    """
    if is_functional(model):
        made = []
        for node in _nodes(model):
            layer, stage = node.operation, noted_stage(node)
            index = next((i for i, n in enumerate(layer._inbound_nodes) if n is node), 0)
            read = [t._keras_history.operation for t in node.input_tensors]
            stage = noted_stage(layer) if stage is None else stage
            made.append(LayerPipelineStageAssignment(layer, index, stage, read, node))
        return made
    if isinstance(model, Sequential):
        return [LayerPipelineStageAssignment(layer, 0, noted_stage(layer)) for layer in _pipelined_layers(model)]
    if not model.built:
        raise SessionError(
            f"{model.name} is not built: the calls of its layers are not known",
            remedy="call it on a batch, or build() it",
        )
    return [LayerPipelineStageAssignment(layer, 0, noted_stage(layer)) for layer in _pipelined_layers(model)]


def taken(model: Any, given: Any) -> list[LayerPipelineStageAssignment]:
    """Stages that a user gives as a list, checked.

    Raises:
        InvalidOptionError: A list of another length, in another order, or with stages that are empty or go back.
    """
    known = assignment_of(model)
    if not isinstance(given, (list, tuple)):
        raise InvalidOptionError(f"stages are a list with one for each layer, not {given!r}")
    if len(given) != len(known):
        raise InvalidOptionError(
            f"{model.name} has {counted(len(known), 'layer')}, and the list {counted(len(given), 'stage')}",
            because=", ".join(a.layer.name for a in known),
            remedy="one for each call of a layer, in order; input layers have none",
        )
    for number, (one, own) in enumerate(zip(given, known, strict=True)):
        if isinstance(one, LayerPipelineStageAssignment):
            if one.layer is not own.layer or one.node is not own.node:
                raise InvalidOptionError(
                    f"place {number} of the stages is for {one.layer.name}, and the model calls {own.layer.name} there",
                    remedy="the order of get_pipeline_stage_assignment()",
                )
            own.pipeline_stage = one.pipeline_stage
        else:
            own.pipeline_stage = one
    check(known, model)
    return known


def check(stages: list[LayerPipelineStageAssignment], model: Any) -> int:
    """The number of stages.

    Raises:
        InvalidOptionError: A layer without a stage, a stage without layers, or a layer that reads a later stage.
    """
    found: dict[int, int] = {}
    for one in stages:
        if one.pipeline_stage is None and isinstance(one.layer, keras.layers.Layer):
            raise InvalidOptionError(
                f"the layer {one.layer.name!r} of {model.name} has no pipeline stage, and others have",
                remedy="with PipelineStage(n): around its call, or set_pipeline_stage_assignment",
            )
        read = [found[id(n)] for n in _read(one) if id(n) in found]
        stage = max(read, default=0) if one.pipeline_stage is None else one.pipeline_stage
        if read and max(read) > stage:
            raise InvalidOptionError(
                f"the layer {one.layer.name!r} is in stage {stage}, and reads what stage {max(read)} makes",
                remedy="a layer reads what its own stage or earlier ones make",
            )
        if one.node is not None:
            found[id(one.node)] = stage
        elif isinstance(model, Sequential):
            previous = found.get(0, 0)
            if stage < previous:
                raise InvalidOptionError(
                    f"the layer {one.layer.name!r} is in stage {stage}, and the layer before it in stage {previous}",
                    remedy="stages that grow from the first layer to the last",
                )
            found[0] = stage
    used = {one.pipeline_stage for one in stages if one.pipeline_stage is not None}
    return check_stages(used, model)


def check_stages(used: set[int], model: Any) -> int:
    """The number of stages in use.

    Raises:
        InvalidOptionError: A stage without layers.
    """
    count = max(used, default=0) + 1
    empty = sorted(set(range(count)) - used)
    if empty:
        raise InvalidOptionError(
            f"stage {empty[0]} of {model.name} has no layer, and stage {count - 1} has",
            remedy="stages are numbered from 0 without gaps",
        )
    return count


def _read(one: LayerPipelineStageAssignment) -> list[Any]:
    if one.node is None:
        return []
    histories = [t._keras_history for t in one.node.input_tensors]
    return [h.operation._inbound_nodes[h.node_index] for h in histories]


def stages_of_code(model: Any, x: Any) -> set[int]:
    """Stages that the code of a model's ``call`` enters, for inputs of a type."""
    with tracing() as entered:
        backend.compute_output_spec(
            model,
            backend_types(x),
        )
    return set(entered)


def backend_types(x: Any) -> Any:
    """Keras' symbolic tensors for arrays of a type."""
    import jax

    return jax.tree.map(lambda t: backend.KerasTensor(t.shape, backend.standardize_dtype(t.dtype)), x)


@contextmanager
def labelled(stages: list[LayerPipelineStageAssignment], replicas: int) -> Iterator[None]:
    """While a model is traced inside, equations of its layers are labelled by their stages."""
    with tracing(replicas):
        if not stages:
            yield
            return
        by_node = {id(one.node): one.pipeline_stage for one in stages if one.node is not None}
        by_layer = {id(one.layer): one.pipeline_stage for one in stages if one.node is None}
        with _labelled_nodes(by_node), _labelled_layers(by_layer):
            yield


@contextmanager
def _labelled_nodes(stages: dict[int, int | None]) -> Iterator[None]:
    if not stages:
        yield
        return
    find, run = Functional._get_operation_for_node, Functional._run_through_graph
    entered: list[Any] = []

    def leave() -> None:
        if entered:
            entered.pop().__exit__(None, None, None)

    def operation(self: Any, node: Any) -> Any:
        if id(node) in stages:
            leave()
            stage = stages[id(node)]
            if stage is not None:
                scope = stage_scope(stage)
                scope.__enter__()
                entered.append(scope)
        return find(self, node)

    def through(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(self, *args, **kwargs)
        finally:
            if any(id(node) in stages for node in _nodes(self)):
                leave()

    Functional._get_operation_for_node, Functional._run_through_graph = operation, through
    try:
        yield
    finally:
        del Functional._get_operation_for_node, Functional._run_through_graph


@contextmanager
def _labelled_layers(stages: dict[int, int | None]) -> Iterator[None]:
    if not stages:
        yield
        return
    original: Callable[..., Any] = keras.layers.Layer.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        stage = stages.get(id(self))
        if stage is None:
            return original(self, *args, **kwargs)
        with stage_scope(stage):
            return original(self, *args, **kwargs)

    keras.layers.Layer.__call__ = call
    try:
        yield
    finally:
        keras.layers.Layer.__call__ = original


def summary(model: Any, stages: list[LayerPipelineStageAssignment], line_length: int | None, print_fn: Any) -> None:
    """Print the stage of each layer."""
    told, width = print_fn or print, line_length or 80
    told(f'Model: "{model.name}"')
    told("=" * width)
    told(f"{'Layer (type)':<{width // 2}}{'Node':<{width // 6}}{'Pipeline stage'}")
    told("=" * width)
    for one in stages:
        kind = f"{one.layer.name} ({type(one.layer).__name__})"
        told(f"{kind:<{width // 2}}{one.node_index:<{width // 6}}{one.pipeline_stage}")
    told("=" * width)

"""Methods of models on the device, in place of Keras' and beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from abele.counts import is_whole
from abele.errors import SessionError, UnsupportedOpError
from abele.frontends.keras import private
from abele.frontends.keras.ipu.enums import (
    GradientAccumulationReductionMethod,
    PipelineSchedule,
    RecomputationMode,
    ReplicatedMetricReductionMethod,
)
from abele.frontends.keras.model import assignment, loops
from abele.frontends.keras.model.data import Batches
from abele.frontends.keras.model.options import accumulator_type, check_arguments, member, positive
from abele.frontends.keras.model.state import state_of
from abele.network import Network
from abele.report import Report


class IpuMethods:
    """The methods; each model has them in a class of its own, whose base is the model's class."""

    # --- Keras' own ----------------------------------------------------------------------------------------------

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: int = 1,
    ) -> Any:
        """As ``keras.Model.fit``, on the device; batches are of one shape, and steps per replica."""
        return loops.fit(
            self,
            x,
            y,
            batch_size=batch_size,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_split=validation_split,
            validation_data=validation_data,
            shuffle=shuffle,
            class_weight=class_weight,
            sample_weight=sample_weight,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            validation_batch_size=validation_batch_size,
            validation_freq=validation_freq,
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> Any:
        """As ``keras.Model.evaluate``, on the device."""
        batches = Batches(x, y, sample_weight, batch_size=batch_size)
        logs = loops.evaluate(self, batches, callbacks=callbacks, verbose=verbose, steps=steps)
        return logs if return_dict else self._flatten_metrics_in_order(logs)  # type: ignore[attr-defined]

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """As ``keras.Model.predict``, on the device."""
        batches = Batches(x, batch_size=batch_size)
        return loops.predict(self, batches, callbacks=callbacks, verbose=verbose, steps=steps)

    def train_on_batch(
        self, x: Any, y: Any = None, sample_weight: Any = None, class_weight: Any = None, return_dict: bool = False
    ) -> Any:
        """As ``keras.Model.train_on_batch``, on the device: one step."""
        history = _on_batch(
            self,
            lambda: self.fit(
                x,
                y,
                batch_size=len(private.tree.flatten(x)[0]),
                sample_weight=sample_weight,
                class_weight=class_weight,
                verbose=0,
                shuffle=False,
                callbacks=[],
            ),
        )
        logs = {name: values[-1] for name, values in history.history.items()}
        return logs if return_dict else self._flatten_metrics_in_order(logs)  # type: ignore[attr-defined]

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """As ``keras.Model.test_on_batch``, on the device."""
        size = len(private.tree.flatten(x)[0])
        return _on_batch(
            self,
            lambda: self.evaluate(
                x, y, batch_size=size, sample_weight=sample_weight, verbose=0, return_dict=return_dict
            ),
        )

    def predict_on_batch(self, x: Any) -> Any:
        """As ``keras.Model.predict_on_batch``, on the device."""
        return _on_batch(self, lambda: self.predict(x, batch_size=len(private.tree.flatten(x)[0]), verbose=0))

    def jax_state_sync(self) -> None:
        """Nothing: variables follow the device by themselves."""

    # --- options -------------------------------------------------------------------------------------------------

    def set_gradient_accumulation_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        gradient_accumulation_reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        use_v2_gradient_accumulation_optimizer: bool = False,
        **gradient_accumulation_optimizer_kwargs: Any,
    ) -> None:
        """Let an update be made of several micro-batches on each replica, for models that are no pipelines.

        Args:
            gradient_accumulation_steps_per_replica: Number of them; it divides ``steps_per_execution``.
            gradient_accumulation_reduction_method: ``sum`` of their gradients, ``mean``, or ``running_mean``.
            use_v2_gradient_accumulation_optimizer: Not used.
            **gradient_accumulation_optimizer_kwargs: ``dtype`` of the sums; others are recorded.

        Raises:
            InvalidOptionError: A number that is not positive, an unknown method, or arguments that others set.
        """
        given = gradient_accumulation_optimizer_kwargs
        check_arguments("set_gradient_accumulation_options", given)
        state = state_of(self)
        options = state.options
        if gradient_accumulation_steps_per_replica is not None:
            options.accumulation = positive(
                gradient_accumulation_steps_per_replica, "gradient_accumulation_steps_per_replica"
            )
        options.reduction = member(
            GradientAccumulationReductionMethod,
            gradient_accumulation_reduction_method,
            "gradient_accumulation_reduction_method",
        )
        options.accumulator = accumulator_type(given.get("dtype"))
        options.recorded |= given
        state.drop()

    def set_pipelining_options(
        self,
        gradient_accumulation_steps_per_replica: int | None = None,
        device_mapping: list[int] | None = None,
        accumulate_outfeed: bool | None = None,
        gradient_accumulation_reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        **pipelining_kwargs: Any,
    ) -> None:
        """Options of a pipeline.

        Args:
            gradient_accumulation_steps_per_replica: Micro-batches of an update on each replica; needed to train.
            device_mapping: IPU of each stage; one each if left out.
            accumulate_outfeed: True if logs are means over an update.
            gradient_accumulation_reduction_method: ``sum`` of gradients, ``mean``, or ``running_mean``.
            **pipelining_kwargs: ``pipeline_schedule``, ``offload_activations``, ``gradient_accumulation_dtype``,
                ``forward_propagation_stages_poplar_options``; others are recorded.

        Raises:
            InvalidOptionError: A number that is not positive, IPUs that are no numbers, or arguments that others set.
        """
        check_arguments("set_pipelining_options", pipelining_kwargs)
        state = state_of(self)
        options = state.options
        options.pipelined = True
        if gradient_accumulation_steps_per_replica is not None:
            options.pipeline_accumulation = positive(
                gradient_accumulation_steps_per_replica, "gradient_accumulation_steps_per_replica"
            )
        if device_mapping is not None:
            options.device_mapping = _ipus(device_mapping)
        if accumulate_outfeed is not None:
            options.accumulate_outfeed = bool(accumulate_outfeed)
        options.pipeline_reduction = member(
            GradientAccumulationReductionMethod,
            gradient_accumulation_reduction_method,
            "gradient_accumulation_reduction_method",
        )
        given = pipelining_kwargs
        if given.get("pipeline_schedule") is not None:
            options.schedule = member(PipelineSchedule, given["pipeline_schedule"], "pipeline_schedule")
        if given.get("recomputation_mode") is not None:
            member(RecomputationMode, given["recomputation_mode"], "recomputation_mode")
        options.offload_activations = bool(given.get("offload_activations") or False)
        options.pipeline_accumulator = accumulator_type(given.get("gradient_accumulation_dtype"))
        options.stage_options = given.get("forward_propagation_stages_poplar_options")
        options.recorded |= given
        state.drop()

    def set_replication_options(self, replicated_metric_reduction_method: Any = "NONE") -> None:
        """Choose the metrics of several replicas for the host: the last one's, all, or their sum or mean."""
        state = state_of(self)
        state.options.metric_reduction = member(
            ReplicatedMetricReductionMethod, replicated_metric_reduction_method, "replicated_metric_reduction_method"
        )
        state.drop()

    def set_infeed_queue_options(self, **kwargs: Any) -> None:
        """Options of the queue of inputs; ``prefetch_depth`` is 1 to 255, and recorded alone."""
        check_arguments("set_infeed_queue_options", kwargs)
        _queue(self, kwargs, "prefetch_depth")

    def set_outfeed_queue_options(self, **kwargs: Any) -> None:
        """Options of the queue of results; ``buffer_depth`` is 1 to 255, and recorded alone."""
        check_arguments("set_outfeed_queue_options", kwargs)
        _queue(self, kwargs, "buffer_depth")

    def set_asynchronous_callbacks(self, asynchronous: bool = False) -> None:
        """Let batch callbacks be called for every step, while an execution goes on."""
        state = state_of(self)
        state.options.asynchronous = bool(asynchronous)
        state.drop()

    def export_for_ipu_serving(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused.

        Raises:
            UnsupportedOpError: Always.
        """
        raise UnsupportedOpError(
            "models are not exported for TensorFlow Serving",
            because="that takes programs of TensorFlow",
            remedy="model.save('model.keras'), and model.predict where it is loaded",
        )

    # --- stages --------------------------------------------------------------------------------------------------

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list[Any]) -> None:
        """Let layers be in stages.

        Args:
            pipeline_stage_assignment: For each call of a layer in order the number of its stage, or an object of
                :meth:`get_pipeline_stage_assignment`.

        Raises:
            InvalidOptionError: Another number of calls or order, an empty stage, or a layer that reads a later one.
            SessionError: A model of the user's own class that is not built.
        """
        state = state_of(self)
        state.assignment = assignment.taken(self, pipeline_stage_assignment)
        state.drop()

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """The stage of each call of a layer: numbers for ``Sequential``, objects to change for other models."""
        found = state_of(self).assignment or assignment.assignment_of(self)
        return [one.pipeline_stage for one in found] if isinstance(self, private.Sequential) else list(found)

    def reset_pipeline_stage_assignment(self) -> None:
        """Forget stages, also those that scopes gave."""
        state = state_of(self)
        state.assignment = assignment.assignment_of(self)
        for one in state.assignment:
            one.pipeline_stage = None
        state.drop()

    def print_pipeline_stage_assignment_summary(self, line_length: int | None = None, print_fn: Any = None) -> None:
        """Print a table of the calls of layers with their stages."""
        found = state_of(self).assignment or assignment.assignment_of(self)
        assignment.summary(self, found, line_length, print_fn)

    # --- what is known -------------------------------------------------------------------------------------------

    @property
    def ipu_report(self) -> Report:
        """Report of the program that ran last: cycles, memory, what each step costs.

        Raises:
            SessionError: Nothing ran yet.
        """
        report: Report = self.ipu_session.report
        return report

    def __abele_network__(self) -> tuple[Network, Mapping[str, Any]]:
        """The program that ran last as a network, and its weights, as :func:`abele.onnx.export` asks for them.

        Raises:
            SessionError: Nothing ran yet.
        """
        session = self.ipu_session
        program = state_of(self).programs.last
        assert program is not None
        return program.step.network, session.weights

    @property
    def ipu_session(self) -> Any:
        """Session of the program that ran last: its network, executable and data.

        Raises:
            SessionError: Nothing ran yet.
        """
        program = state_of(self).programs.last
        if program is None:
            raise SessionError("the model has no program yet", remedy="fit(), evaluate() or predict() first")
        return program.session


def _on_batch(model: Any, run: Any) -> Any:
    """Run with one step in an execution."""
    before = model.steps_per_execution
    model.steps_per_execution = 1
    try:
        return run()
    finally:
        model.steps_per_execution = before


def _queue(model: Any, given: dict[str, Any], depth: str) -> None:
    state = state_of(model)
    if depth in given:
        positive(given[depth], depth, 255)
    state.options.queues |= given
    state.drop()


def _ipus(mapping: Any) -> list[int]:
    from abele.errors import InvalidOptionError

    if not isinstance(mapping, (list, tuple)) or not all(is_whole(n) and n >= 0 for n in mapping):
        raise InvalidOptionError(f"device_mapping is a list of numbers of IPUs, one for each stage, not {mapping!r}")
    return [int(n) for n in mapping]

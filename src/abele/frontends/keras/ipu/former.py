"""Modules of older SDKs: programs still import them, and their functions say what to call in their place."""

from __future__ import annotations

from abele.frontends.keras.lookalike import Lookalike

_FIT = "model.fit inside of IPUStrategy().scope(), or IPUStrategy.run"
_NORMS = "the layers of ipu_tensorflow_addons.keras.layers"
_STAGES = "ipu.PipelineStage, and model.set_pipelining_options"
_PREDICT = "model.predict, or abele's Session of model.ipu_session"
_ACCUMULATION = "model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=...)"
_RECURRENT = "LSTM and GRU of ipu_tensorflow_addons.keras.layers"
_EXTENSIONS = "models made inside of IPUStrategy().scope() have the methods already"
_FUNCTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "application_compile_op": {_PREDICT: ("experimental_application_compile_op",)},
    "autoshard": {_STAGES: ("automatic_sharding", "ipu_autoshard")},
    "gradient_accumulation_optimizer": {
        _ACCUMULATION: (
            "CrossReplicaGradientAccumulationOptimizer",
            "CrossReplicaGradientAccumulationOptimizerV2",
            "GradientAccumulationOptimizer",
            "GradientAccumulationOptimizerV2",
        )
    },
    "ipu_estimator": {_FIT: ("IPUEstimator", "IPUEstimatorSpec")},
    "ipu_multi_worker_strategy": {"ipu.distributed.PopDistStrategy": ("IPUMultiWorkerStrategyV1",)},
    "ipu_pipeline_estimator": {_FIT: ("IPUPipelineEstimator", "IPUPipelineEstimatorSpec")},
    "ipu_run_config": {_FIT: ("IPURunConfig", "RunConfig")},
    "ipu_session_run_hooks": {_FIT: ("IPULoggingTensorHook",)},
    "normalization_ops": {_NORMS: ("group_norm", "instance_norm", "layer_norm")},
    "rnn_ops": {
        _RECURRENT: ("PopnnAUGRU", "PopnnDynamicGRU", "PopnnDynamicLSTM", "PopnnGRU", "PopnnLSTM"),
    },
    "serving": {_PREDICT: ("export_keras", "export_pipeline", "export_single_step")},
    "sharding": {_STAGES: ("dependencies", "get_shard_from_colocation", "has_attr", "set_frontend_attributes")},
    "slicing_ops": {"jax.numpy.where": ("sequence_slice", "sequence_slice_unpack", "sequence_unslice")},
    "summary_ops": {"model.ipu_report": ("get_ipu_reports", "ipu_compile_summary")},
    "vertex_edsl": {"codelets of abele.poplar": ("PlaceholderVertexExpr", "DefaultNameSource")},
}
_KERAS_EXTENSIONS = (
    "FunctionalExtension",
    "KerasExtensionBase",
    "ModelExtension",
    "PipelineStage",
    "SequentialExtension",
)


def _module(name: str, remedies: dict[str, tuple[str, ...]]) -> Lookalike:
    refused = {function: remedy for remedy, functions in remedies.items() for function in functions}
    return Lookalike(f"tensorflow.python.ipu.{name}", refused=refused)


MODULES = {name: _module(name, remedies) for name, remedies in _FUNCTIONS.items()}
"""The modules by their names."""
MODULES["extensions"] = Lookalike(
    "tensorflow.python.ipu.keras.extensions", refused=dict.fromkeys(_KERAS_EXTENSIONS, _EXTENSIONS)
)
OPS = ("application_compile_op", "normalization_ops", "rnn_ops", "slicing_ops", "summary_ops")
"""Names of modules that ``ipu.ops`` has too."""

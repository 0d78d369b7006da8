"""ONNX's backend interface: ``abele.onnx.backend.prepare(model).run(arrays)``."""

from abele.frontends.onnx.backend import (
    AbeleBackend,
    PreparedModel,
    is_compatible,
    prepare,
    run_model,
    run_node,
    supports_device,
)

__all__ = ["AbeleBackend", "PreparedModel", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

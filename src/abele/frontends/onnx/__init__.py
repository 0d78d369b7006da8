"""The reader of ONNX models: a file becomes a network, which runs, trains, is costed and looked at."""

import importlib.util

from abele.errors import MissingPackageError

if importlib.util.find_spec("onnx") is None:
    raise MissingPackageError("abele.onnx needs onnx, which is not installed", remedy="pip install 'abele[onnx]'")

from abele.frontends.onnx.errors import ModelError, ModelFileError, ModelShapeError
from abele.frontends.onnx.exporting import export
from abele.frontends.onnx.fitting import ModelFit, fit
from abele.frontends.onnx.model import Model, load
from abele.frontends.onnx.support import supported, unsupported_nodes
from abele.frontends.onnx.training import Loss, ModelTraining

__all__ = [
    "Loss",
    "Model",
    "ModelError",
    "ModelFileError",
    "ModelFit",
    "ModelShapeError",
    "ModelTraining",
    "export",
    "fit",
    "load",
    "supported",
    "unsupported_nodes",
]

"""Metadata of custom operations and saved files, and the tensors of a model that is being recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from abele.frontends.poptorch.errors import Error, OptionValueError
from abele.frontends.poptorch.models import saving
from abele.frontends.poptorch.models.saving import SavedModel
from abele.frontends.poptorch.program import recording
from abele.frontends.poptorch.version import VERSION


def accessAttributes(attribute_id_str: str) -> dict[str, Any]:
    """Attributes of a custom operation from the text that stands for them: a JSON object.

    Raises:
        OptionValueError: It is not.
    """
    if not isinstance(attribute_id_str, str):
        raise OptionValueError(f"Wrong type for attribute_id_str: {type(attribute_id_str)}")
    try:
        attributes = json.loads(attribute_id_str)
    except json.JSONDecodeError as error:
        raise OptionValueError(f"{attribute_id_str!r} stands for no attributes", because=str(error)) from error
    if not isinstance(attributes, dict):
        raise OptionValueError(f"{attribute_id_str!r} stands for no attributes: it is no JSON object")
    return attributes


def getIpuTensorId(tensor: torch.Tensor) -> int:
    """A number of a tensor while the model that computes it is being recorded; another one for each tensor.

    Raises:
        Error: No model is being recorded.
    """
    if not isinstance(tensor, torch.Tensor) or not recording.isRunningOnIpu():
        raise Error("tensors have numbers on the IPU only while a model is being recorded")
    return id(tensor)


def importPoptorchMetadataFromFile(filename: str | Path) -> SavedModel:
    """Contents of a file that ``save`` wrote, without a wrapper of the model.

    Raises:
        Error: The file is of another version.
        FileFormatError: The file is damaged, or none.
    """
    return saving.read(saving.model_path(filename), VERSION)

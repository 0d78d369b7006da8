"""Graphs of PyTorch Geometric as arguments and results of models."""

from __future__ import annotations

import copy
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch

from abele.errors import MissingPackageError
from abele.frontends.poptorch.values.structures import ICustomArgParser, registerCustomArgParser


class GraphDataParser(ICustomArgParser):
    """The tensors of a graph, or of a batch of graphs, store by store in the order of their names."""

    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """Every attribute that is a tensor."""
        for store in struct.stores:
            for _, value in sorted(store.items(), key=lambda item: item[0]):
                if isinstance(value, torch.Tensor):
                    yield value

    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """A graph with the same other attributes."""
        made = copy.copy(original_structure)
        for store in made.stores:
            for name, value in sorted(store.items(), key=lambda item: item[0]):
                if isinstance(value, torch.Tensor):
                    store[name] = next(tensor_iterator)
        return made


def registerGeometricCustomArgParsers() -> None:
    """Take ``Data``, ``HeteroData`` and ``Batch`` of PyTorch Geometric as arguments and results of models.

    Raises:
        MissingPackageError: PyTorch Geometric is not installed.
    """
    if importlib.util.find_spec("torch_geometric") is None:
        raise MissingPackageError("there are no graphs of PyTorch Geometric", remedy="pip install torch_geometric")
    data = importlib.import_module("torch_geometric.data")

    for kind in (data.Data, data.HeteroData, data.Batch):
        registerCustomArgParser(kind, GraphDataParser())

"""Metadata of files, custom operations and recorded tensors; graphs as arguments."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from test_executor import X, classifier, options

from abele import poptorch
from abele.frontends.poptorch.values.geometric import GraphDataParser


def test_metadata__of_a_file__tells_what_it_holds(tmp_path: Path) -> None:
    poptorch.inferenceModel(classifier(), options(2)).compileAndExport(tmp_path, X)
    found = poptorch.importPoptorchMetadataFromFile(tmp_path)
    assert (found.training, found.exported) == (False, True)
    assert found.state["options"].device_iterations == 2


def test_attributes__as_json__are_read() -> None:
    assert poptorch.accessAttributes('{"alpha": 0.5}') == {"alpha": 0.5}
    for wrong in (3, "[1]", "alpha"):
        with pytest.raises(ValueError, match=r"Wrong type for attribute_id_str|stands for no attributes"):
            poptorch.accessAttributes(wrong)


def test_tensor_id__while_recording__is_one_for_each_tensor() -> None:
    seen: list[int] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        seen.extend(map(poptorch.getIpuTensorId, (x, y, x)))
        return y

    poptorch.inferenceModel(forward, options())(X)
    assert seen[0] == seen[2] != seen[1]
    with pytest.raises(poptorch.Error, match="only while a model is being recorded"):
        poptorch.getIpuTensorId(X)


class Store(dict[str, Any]):
    """Attributes of nodes or edges."""


class Graph:
    """Parts of PyTorch Geometric's graphs that matter here."""

    def __init__(self, **attributes: Any) -> None:
        self.stores = [Store(attributes)]

    def __copy__(self) -> Graph:
        return Graph(**self.stores[0])


def test_graphs__as_arguments__come_back_with_their_other_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = types.ModuleType("torch_geometric.data")
    data.Data = Graph  # type: ignore[attr-defined]
    data.HeteroData = type("HeteroData", (Graph,), {})  # type: ignore[attr-defined]
    data.Batch = type("Batch", (Graph,), {})  # type: ignore[attr-defined]
    package = types.ModuleType("torch_geometric")
    package.data = data  # type: ignore[attr-defined]
    package.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "torch_geometric", package)
    monkeypatch.setitem(sys.modules, "torch_geometric.data", data)
    poptorch.registerGeometricCustomArgParsers()

    def forward(graph: Graph) -> Graph:
        return Graph(x=graph.stores[0]["x"] * 2, weight=graph.stores[0]["weight"], name="doubled")

    try:
        got = poptorch.inferenceModel(forward, options())(Graph(weight=X, name="graph", x=X + 1))
    finally:
        for kind in (data.Data, data.HeteroData, data.Batch):
            poptorch.registerCustomArgParser(kind, None)
    assert torch.equal(got.stores[0]["x"], (X + 1) * 2)
    assert torch.equal(got.stores[0]["weight"], X)
    assert got.stores[0]["name"] == "doubled"
    assert [t.shape for t in GraphDataParser().yieldTensors(got)] == [X.shape] * 2

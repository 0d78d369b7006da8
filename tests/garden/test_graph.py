"""The graph of imports: who imports whom, what is known, and a network that hears its neighbours."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from abele.garden import graph
from abele.garden.graph import GraphNetwork, ImportGraph, imported, package_of
from abele.garden.sources import LibraryModule

pytestmark = pytest.mark.torch

FILES = [
    LibraryModule("one", False, "import two.b\nfrom two import a as c, name\nimport nowhere"),
    LibraryModule("two", True, "from . import a\nfrom .b import x"),
    LibraryModule("two.a", False, "def f():\n    from two.b import y\n    import two.a"),
    LibraryModule("two.b", False, "x = y = [1, 2]\nfor i in x:\n    print(i)"),
    LibraryModule("two.sub.d", False, "from ..a import z\nfrom .. import b"),
]


def test_imported__each_form__names_the_modules_that_there_are() -> None:
    known = {file.module: index for index, file in enumerate(FILES)}
    found = {file.module: set(imported(file, known)) for file in FILES}
    assert found == {
        "one": {"two", "two.a", "two.b"},
        "two": {"two.a", "two.b"},
        "two.a": {"two.b"},
        "two.b": set(),
        "two.sub.d": {"two.a", "two.b"},
    }


def test_package_of__module__is_the_outermost_one() -> None:
    assert [package_of(file) for file in FILES] == ["", "two", "two", "two", "two"]


def test_import_graph__features__have_no_names_and_no_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "LEAST_MODULES", 3)
    made = ImportGraph.of(FILES)
    renamed = ImportGraph.of([LibraryModule(f.module, f.is_package, f.text.replace("x", "longer")) for f in FILES])
    assert np.array_equal(made.features, renamed.features)
    assert made.packages == ["two"]
    assert made.labels.tolist() == [-1, 0, 0, 0, 0]
    forward, backward = np.split(made.edges, 2, axis=1)
    assert np.array_equal(forward, backward[::-1])


def test_split__graph__knows_so_many_of_each_package_and_holds_the_rest() -> None:
    labels = np.repeat([0, 1, -1], [30, 25, 9])
    made = ImportGraph([""] * 64, np.zeros((64, 1), np.float32), np.zeros((2, 0), np.int64), ["a", "b"], labels)
    known, held_out = made.split(seed=1)
    assert np.bincount(labels[known]).tolist() == [10, 10]
    assert not set(known) & set(held_out)
    assert sorted([*known, *held_out]) == list(range(55))


def test_graph_network__neighbours__are_their_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "LEAST_MODULES", 3)
    made = ImportGraph.of(FILES)
    network = GraphNetwork(made)
    x = torch.randn(len(FILES), 4)
    adjacency = torch.zeros(len(FILES), len(FILES))
    adjacency[made.edges[1], made.edges[0]] = 1.0
    mean = adjacency @ x / adjacency.sum(dim=1, keepdim=True).clamp(min=1)
    assert torch.allclose(network.neighbours(x), mean, atol=1e-6)

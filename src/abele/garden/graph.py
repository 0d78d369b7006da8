"""A graph network: which package does a module belong to?

The modules of Python's standard library are the nodes, their imports the edges. A node's features say how it is
written (how often each kind of syntax occurs), no names and no imports. A few modules of each package have their label;
messages along imports, summed by an index_add, carry what is known to the others.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from rich.console import Console
from torch import Tensor, nn, optim
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.arrays import Float32, Int64
from abele.garden.sources import LibraryModule, standard_library
from abele.garden.training import (
    DemoResult,
    DemoSettings,
    HeldOut,
    Predictor,
    Stopwatch,
    Trained,
    Training,
    WithLoss,
    options,
    weights_digest,
)

LEAST_MODULES = 20
"""Packages with fewer modules are nodes without a class."""
LABELLED = 10
"""Modules of each package whose label is known in training."""
IMPORTS = (ast.Import, ast.ImportFrom, ast.alias)
WIDTH = 64
LAYERS = 2
DEVICE_ITERATIONS = 10
COPIES = 100
"""An epoch shows the labelled modules so often: every weight update sees all of them."""
EPOCHS = 2
LEARNING_RATE = 5e-3
WEIGHT_DECAY = 5e-4


@dataclass(frozen=True)
class ImportGraph:
    """The modules of a library and who imports whom.

    Attributes:
        modules: Dotted names.
        features: Frequency of each kind of syntax, logarithms scaled to unit variance, [num_modules, num_kinds].
        edges: Importing and imported module, both ways, [2, num_edges].
        packages: Names of the classes.
        labels: Class of each module; -1 for those of small packages and those of none.
    """

    modules: list[str]
    features: Float32
    edges: Int64
    packages: list[str]
    labels: Int64

    @classmethod
    def of(cls, files: Sequence[LibraryModule]) -> ImportGraph:
        """The graph of these modules."""
        number = {file.module: index for index, file in enumerate(files)}
        pairs = sorted({(number[file.module], number[name]) for file in files for name in imported(file, number)})
        one_way = np.array(pairs, np.int64).reshape(-1, 2).T
        count = Counter(package_of(file) for file in files)
        packages = sorted(name for name, modules in count.items() if name and modules >= LEAST_MODULES)
        index = {name: place for place, name in enumerate(packages)}
        return cls(
            list(number),
            syntax_features(files),
            np.concatenate([one_way, one_way[::-1]], axis=1),
            packages,
            np.array([index.get(package_of(file), -1) for file in files], np.int64),
        )

    def split(self, seed: int) -> tuple[Int64, Int64]:
        """Modules whose label training knows, so many of each package, and those held out."""
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(np.flatnonzero(self.labels == label)) for label in range(len(self.packages))]
        known, held_out = ([order[part] for order in orders] for part in (slice(LABELLED), slice(LABELLED, None)))
        return np.sort(np.concatenate(known)), np.sort(np.concatenate(held_out))


def package_of(file: LibraryModule) -> str:
    """The outermost package of a module; empty for a module of its own."""
    return file.module.split(".")[0] if file.package else ""


def imported(file: LibraryModule, known: dict[str, int]) -> Iterator[str]:
    """Modules among those known that a file imports, wherever in it; itself left out."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, file)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            while name and name not in known:
                name = name.rpartition(".")[0]
            if name and name != file.module:
                yield name


def _absolute(node: ast.ImportFrom, file: LibraryModule) -> str:
    if not node.level:
        return node.module or ""
    parts = file.package.split(".")
    start = parts[: len(parts) - node.level + 1]
    return ".".join([*start, *([node.module] if node.module else [])])


def syntax_features(files: Sequence[LibraryModule]) -> Float32:
    """Frequency of each kind of syntax but imports in each file: logarithms, mean 0 and variance 1 over files."""
    counts = [
        Counter(type(node).__name__ for node in ast.walk(file.tree) if not isinstance(node, IMPORTS)) for file in files
    ]
    kinds = sorted(set().union(*counts))
    features = np.log1p(np.array([[count[kind] for kind in kinds] for count in counts], np.float64))
    scaled: Float32 = ((features - features.mean(axis=0)) / np.maximum(features.std(axis=0), 1e-6)).astype(np.float32)
    return scaled


class GraphNetwork(nn.Module):
    """Scores of the packages of some modules, by layers that add the mean of the neighbours.

    Args:
        graph: The whole graph; it is part of the network, as constants.
        with_edges: Pass messages; without them each module is judged by its own features.
        width: Length of a node's vector.
    """

    features: Tensor
    source: Tensor
    target: Tensor
    degree: Tensor

    def __init__(self, graph: ImportGraph, *, with_edges: bool = True, width: int = WIDTH) -> None:
        super().__init__()
        source, target = torch.from_numpy(graph.edges)
        degree = torch.bincount(target, minlength=len(graph.modules)).clamp(min=1).float().unsqueeze(1)
        for name, value in (("source", source), ("target", target), ("degree", degree)):
            self.register_buffer(name, value)
        self.register_buffer("features", torch.from_numpy(graph.features))
        self.enter = nn.Linear(graph.features.shape[1], width)
        self.layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(LAYERS))
        self.leave = nn.Linear(width, len(graph.packages))
        self.dropout = nn.Dropout(0.5)
        self.with_edges = with_edges

    def forward(self, nodes: Tensor) -> Tensor:
        """Scores [num_nodes, num_packages] of the nodes of these numbers."""
        x = F.relu(self.enter(self.features))
        for layer in self.layers:
            around = self.neighbours(x) if self.with_edges else x
            x = x + F.relu(layer(self.dropout(torch.cat([x, around], dim=1))))
        scores: Tensor = self.leave(x[nodes])
        return scores

    def neighbours(self, x: Tensor) -> Tensor:
        """Mean of the neighbours' vectors, [num_modules, width]."""
        summed = torch.zeros_like(x).index_add(0, self.target, x[self.source])
        return summed / self.degree


def run(settings: DemoSettings, console: Console) -> DemoResult:
    """Train with edges and without, classify the other modules, and report; progress goes to ``console``."""
    watch = Stopwatch()
    with watch.measure("data"):
        graph = ImportGraph.of(standard_library())
        known, held_out = graph.split(settings.seed)
    figures: dict[bool, tuple[GraphNetwork, Trained, Int64]] = {}
    for with_edges in (False, True):
        torch.manual_seed(settings.seed)
        model = GraphNetwork(graph, with_edges=with_edges)
        trained = train(model, (known, graph.labels[known]), settings, watch, console)
        with watch.measure("validate"):
            scores = Predictor(model, options(settings), len(held_out))(torch.from_numpy(held_out))
        figures[with_edges] = model, trained, scores.argmax(dim=1).numpy()
    model, trained, found = figures[True]
    labels = graph.labels[held_out]
    figure = HeldOut(
        measure="accuracy",
        value=float((found == labels).mean()),
        beside={
            "largest package": float((labels == np.bincount(labels).argmax()).mean()),
            "same network without imports": float((figures[False][2] == labels).mean()),
        },
        on=f"{len(held_out)} held-out modules of {len(graph.packages)} packages",
        is_share=True,
        higher_is_better=True,
    )
    return DemoResult(
        name="graph",
        note="real modules (Python's standard library), real training on this host; machine figures are modelled",
        figures={
            "held_out_accuracy": figure.value,
            "held_out_samples": len(held_out),
            "modules": len(graph.modules),
            "imports": graph.edges.shape[1] // 2,
            "loss": trained.loss,
            "epochs": settings.epochs or EPOCHS,
            "weights_sha256": weights_digest(model),
        },
        seconds=watch.seconds,
        report=trained.report.with_meta(name="graph training", sample_name="labels", step_name="weight update"),
        held_out=(figure,),
        exhibit=by_package(graph, labels, found, figures[False][2]),
    )


def train(
    model: GraphNetwork,
    known: tuple[Int64, Int64],
    settings: DemoSettings,
    watch: Stopwatch,
    console: Console,
) -> Trained:
    """Train on the modules whose label is known: numbers of the modules, and their labels."""
    opts = options(settings).deviceIterations(DEVICE_ITERATIONS)
    nodes, labels = (torch.from_numpy(np.tile(part, COPIES)) for part in known)
    data = poptorch.DataLoader(opts, TensorDataset(nodes, labels), batch_size=len(known[0]))
    title = "training" if model.with_edges else "no imports"
    training = Training(data=data, options=opts, epochs=settings.epochs or EPOCHS, title=title)
    optimizer = optim.Adam(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    return training.run(WithLoss(model, F.cross_entropy), optimizer, watch, console)


def by_package(graph: ImportGraph, labels: Int64, found: Int64, without: Int64) -> str:
    """Package by package, how many held-out modules are recognised with and without imports."""
    lines = ["package            held out   with imports   without"]
    for label, name in enumerate(graph.packages):
        mine = labels == label
        right, alone = ((classes[mine] == label).mean() for classes in (found, without))
        lines.append(f"{name:<18} {mine.sum():>8} {right:>14.0%} {alone:>9.0%}")
    return "\n".join(lines)

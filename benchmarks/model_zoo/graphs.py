"""Networks of graphs, with torch_geometric's layers: nodes, edges and graphs of one size, as a compiled model needs."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from model_zoo.entry import Batch, ModelEntry

NODES = 1000
EDGES = 8000
FEATURES = 64
CLASSES = 8


def citations(count: int, generator: torch.Generator) -> Batch:
    """Features of nodes, edges between them, and a class for each node."""
    features = torch.randn(NODES, FEATURES, generator=generator)
    edges = torch.randint(0, NODES, (2, EDGES), generator=generator)
    return features, edges, torch.randint(0, CLASSES, (NODES,), generator=generator)


class Layers(nn.Module):
    """Layers of one kind over the same edges, and a classifier of nodes."""

    def __init__(self, kind: str, depth: int = 2, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self._layer(kind, FEATURES if i == 0 else width, width) for i in range(depth))
        self.classify = nn.Linear(width, CLASSES)

    @staticmethod
    def _layer(kind: str, inputs: int, width: int) -> nn.Module:
        from torch_geometric import nn as gnn

        if kind == "gat":
            return gnn.GATConv(inputs, width // 4, heads=4, add_self_loops=False)
        if kind == "gin":
            return gnn.GINConv(nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width)))
        if kind == "sage":
            return gnn.SAGEConv(inputs, width)
        if kind == "gps":
            inner = gnn.GINConv(nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width)))
            return gnn.GPSConv(width, inner, heads=4, norm=None)
        return gnn.GCNConv(inputs, width, add_self_loops=False)

    def forward(self, x: Tensor, edges: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and loss."""
        for layer in self.layers:
            x = F.relu(layer(x, edges))
        logits = self.classify(x)
        return logits, F.cross_entropy(logits, labels)


ATOMS = 20


def molecules(count: int, generator: torch.Generator) -> Batch:
    """Kinds and places of atoms, the molecule of each, all pairs within a molecule, and an energy."""
    kinds = torch.randint(1, 10, (count * ATOMS,), generator=generator)
    places = torch.randn(count * ATOMS, 3, generator=generator) * 2
    first, second = torch.where(~torch.eye(ATOMS, dtype=torch.bool))
    offsets = torch.arange(count)[:, None] * ATOMS
    edges = torch.stack([(first + offsets).flatten(), (second + offsets).flatten()])
    return kinds, places, edges, torch.randn(count, generator=generator)


class SchNet(nn.Module):
    """torch_geometric's SchNet blocks over given pairs, and a sum over the atoms of each molecule."""

    def __init__(self, molecules: int, width: int = 64, blocks: int = 3) -> None:
        super().__init__()
        from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock, ShiftedSoftplus

        self.kinds = nn.Embedding(100, width)
        self.distances = GaussianSmearing(0.0, 10.0, 50)
        self.blocks = nn.ModuleList(InteractionBlock(width, 50, width, 10.0) for _ in range(blocks))
        self.energy = nn.Sequential(nn.Linear(width, width // 2), ShiftedSoftplus(), nn.Linear(width // 2, 1))
        self.molecules = molecules

    def forward(self, kinds: Tensor, places: Tensor, edges: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Energies and loss."""
        length = (places[edges[0]] - places[edges[1]]).norm(dim=-1)
        h, smeared = self.kinds(kinds), self.distances(length)
        for block in self.blocks:
            h = h + block(h, edges, length, smeared)
        owner = torch.arange(self.molecules).repeat_interleave(ATOMS)
        energy = h.new_zeros(self.molecules).index_add(0, owner, self.energy(h)[:, 0])
        return energy, F.mse_loss(energy, target)


def _graph(name: str, kind: str, depth: int = 2) -> ModelEntry:
    return ModelEntry(name, 1, lambda: Layers(kind, depth), citations, ("torch_geometric",))


GRAPHS = (
    _graph("gcn", "gcn"),
    _graph("gat", "gat"),
    _graph("gin", "gin"),
    _graph("graphsage", "sage"),
    _graph("gps", "gps"),
    ModelEntry("schnet", 8, lambda: SchNet(8), molecules, ("torch_geometric",)),
)

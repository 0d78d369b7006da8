"""A recommender: which function would this file call as well?

Files of Python's standard library are the users, the names that they call are the items. Whole files are held out;
each of their names is hidden in turn, and the model, which sees the others, ranks all names. An embedding for each
name, their sum over the file, and one hidden layer; names that the file has are masked by a scatter.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from rich.console import Console
from torch import Tensor, nn, optim
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.arrays import Float64, Int64
from abele.garden.sources import held_out_split, standard_library, without_tables
from abele.garden.training import (
    DemoResult,
    DemoSettings,
    HeldOut,
    Predictor,
    Stopwatch,
    Training,
    WithLoss,
    options,
    weights_digest,
)

LEAST_FILES, LEAST_NAMES = 8, 8
"""Least files of a name, and least names of a file; others are left out."""
HELD_OUT_SHARE = 0.2
SHOWN = 10
"""A hidden name counts as found when it is among so many first ones."""
CONTEXT = 64
"""Names of a file that the model sees at most."""
WIDTH = 128
BATCH = 64
DEVICE_ITERATIONS = 8
TEST_BATCH = 256
EPOCHS = 6
LEARNING_RATE = 3e-3
MASKED = -1e4


def called_names(tree: ast.AST) -> set[str]:
    """Names of functions and methods that a file calls."""
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {f.id if isinstance(f, ast.Name) else f.attr for f in calls if isinstance(f, ast.Name | ast.Attribute)}


@dataclass(frozen=True)
class Ratings:
    """Names that each file calls, as numbers, of files to train on and of others held out."""

    names: list[str]
    train: list[list[int]]
    held_out: list[list[int]]

    @classmethod
    def of(cls, sets: Sequence[set[str]], seed: int) -> Ratings:
        """Split files, and number the names that enough files of the training part call."""
        train, held_out = held_out_split(sets, HELD_OUT_SHARE, seed)
        count = Counter(name for names in train for name in names)
        names = sorted(name for name, files in count.items() if files >= LEAST_FILES)
        number = {name: index for index, name in enumerate(names)}

        def numbered(files: Iterable[set[str]]) -> list[list[int]]:
            rows = ([number[name] for name in sorted(file) if name in number] for file in files)
            return [row for row in rows if len(row) >= LEAST_NAMES]

        return cls(names, numbered(train), numbered(held_out))

    def matrix(self) -> Float64:
        """1 where a training file calls a name, [num_files, num_names]."""
        matrix = np.zeros((len(self.train), len(self.names)))
        for row, names in zip(matrix, self.train, strict=True):
            row[names] = 1.0
        return matrix


def hidden_one_by_one(
    files: Sequence[Sequence[int]], padding: int, rng: np.random.Generator | None
) -> tuple[Int64, Int64]:
    """Each name of each file, hidden in turn.

    Args:
        files: The names of each file.
        padding: Number that fills the rows up.
        rng: Draws which of the others are seen, from half of them to all; None for all.

    Returns:
        The names that are seen, [num_cases, CONTEXT], and those that are hidden, [num_cases].
    """
    seen, hidden = [], []
    for names in files:
        for name in names:
            others = [other for other in names if other != name]
            if rng is not None:
                others = rng.permutation(others)[: rng.integers(len(others) // 2, len(others) + 1)].tolist()
            elif len(others) > CONTEXT:  # as many as the model takes, spread over the file's names
                others = [others[index] for index in np.linspace(0, len(others) - 1, CONTEXT).astype(int)]
            others = others[:CONTEXT]
            seen.append(others + [padding] * (CONTEXT - len(others)))
            hidden.append(name)
    return np.array(seen, np.int64), np.array(hidden, np.int64)


class RecommenderNetwork(nn.Module):
    """Scores of all names from the names that a file has.

    Args:
        num_names: Names; the number after the last fills rows up.
        width: Length of a name's vector.
    """

    def __init__(self, num_names: int, width: int = WIDTH) -> None:
        super().__init__()
        self.table = nn.Embedding(num_names + 1, width, padding_idx=num_names)
        self.hidden = nn.Linear(width, width)
        self.scores = nn.Linear(width, num_names + 1)
        self.dropout = nn.Dropout(0.3)
        self.padding = num_names

    def forward(self, seen: Tensor) -> Tensor:
        """Scores [batch, num_names + 1] of names seen [batch, context]; those seen are masked."""
        count = (seen != self.padding).sum(dim=1, keepdim=True).float()
        file = self.table(seen).sum(dim=1) / torch.sqrt(count + 1.0)
        scores = self.scores(self.dropout(F.relu(self.hidden(self.dropout(file)))))
        padding = torch.full_like(seen[:, :1], self.padding)
        return torch.scatter(scores, 1, torch.cat([seen, padding], dim=1), MASKED)


def hit_rate(scores: Float64, seen: Int64, hidden: Int64) -> float:
    """Share of cases whose hidden name is among the first ``SHOWN``; of equal scores the earlier name goes first."""
    masked = np.concatenate([scores, np.zeros((len(scores), 1))], axis=1)
    np.put_along_axis(masked, seen, -np.inf, axis=1)
    masked[:, -1] = -np.inf
    first = np.argsort(-masked, axis=1, kind="stable")[:, :SHOWN]
    return float((first == hidden[:, None]).any(axis=1).mean())


def most_called(ratings: Ratings, seen: Int64) -> Float64:
    """Scores that ignore the file: how many training files call a name."""
    return np.broadcast_to(ratings.matrix().sum(axis=0), (len(seen), len(ratings.names)))


def neighbours(ratings: Ratings, seen: Int64) -> Float64:
    """Scores by nearest neighbours: cosines of names over the training files, summed over the names seen."""
    matrix = ratings.matrix()
    unit = matrix / np.linalg.norm(matrix, axis=0)
    cosines = unit.T @ unit
    np.fill_diagonal(cosines, 0.0)
    has = np.zeros((len(seen), len(ratings.names) + 1))
    np.put_along_axis(has, seen, 1.0, axis=1)
    scores: Float64 = has[:, :-1] @ cosines
    return scores


def run(settings: DemoSettings, console: Console) -> DemoResult:
    """Train on files, recommend to others, and report; progress goes to ``console``."""
    watch = Stopwatch()
    opts = options(settings).deviceIterations(DEVICE_ITERATIONS)
    with watch.measure("data"):
        files = without_tables(standard_library())
        ratings = Ratings.of([called_names(file.tree) for file in files], settings.seed)
        padding = len(ratings.names)
        cases = hidden_one_by_one(ratings.train, padding, np.random.default_rng(settings.seed))
        train_set = TensorDataset(*(torch.from_numpy(part) for part in cases))
        seen, hidden = hidden_one_by_one(ratings.held_out, padding, None)
        data = poptorch.DataLoader(opts, train_set, batch_size=BATCH, shuffle=True, drop_last=True)

    model = RecommenderNetwork(padding)
    optimizer = optim.Adam(model.parameters(), lr=LEARNING_RATE)
    epochs = settings.epochs or EPOCHS
    training = Training(data=data, options=opts, epochs=epochs)
    trained = training.run(WithLoss(model, F.cross_entropy), optimizer, watch, console)
    with watch.measure("validate"):
        scores = Predictor(model, options(settings), TEST_BATCH)(torch.from_numpy(seen)).double().numpy()[:, :-1]
        held_out = HeldOut(
            measure=f"hit rate at {SHOWN}",
            value=hit_rate(scores, seen, hidden),
            beside={
                "most called": hit_rate(most_called(ratings, seen), seen, hidden),
                "nearest neighbours": hit_rate(neighbours(ratings, seen), seen, hidden),
            },
            on=f"{len(hidden):,} names hidden in {len(ratings.held_out)} held-out files",
            is_share=True,
            higher_is_better=True,
        )
    return DemoResult(
        name="recommender",
        note="real files (Python's standard library), real training on this host; machine figures are modelled",
        figures={
            "held_out_hit_rate": held_out.value,
            "held_out_cases": len(hidden),
            "names": len(ratings.names),
            "training_files": len(ratings.train),
            "loss": trained.loss,
            "epochs": epochs,
            "weights_sha256": weights_digest(model),
        },
        seconds=watch.seconds,
        report=trained.report.with_meta(name="recommender training", sample_name="cases", step_name="weight update"),
        held_out=(held_out,),
        exhibit=recommendations(ratings, scores, seen, hidden),
    )


def recommendations(ratings: Ratings, scores: Float64, seen: Int64, hidden: Int64, num_cases: int = 4) -> str:
    """Some cases of held-out files: seen names, hidden names, and the model's recommendations."""
    lines = []
    for case in np.linspace(0, len(hidden) - 1, num_cases).astype(int):
        has = [ratings.names[name] for name in seen[case] if name < len(ratings.names)]
        first = [ratings.names[name] for name in np.argsort(-scores[case], kind="stable")[:5]]
        lines.append(f"calls {', '.join(has[:6])} … and hides {ratings.names[hidden[case]]}: {', '.join(first)}")
    return "\n".join(lines)

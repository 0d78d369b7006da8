"""Codelets in the styles of public code load, run, and agree with NumPy, with one thread and with two."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele import Engine, Execute, Graph, Repeat, Sequence, systems
from abele.codelet.cpp import load_codelets
from abele.codelet.cpp.loading import CppCodelets
from abele.errors import AbeleError, CodeletError, CodeletLinkError
from codelet.cpp.oracles import learning, libraries, science, tutorials
from codelet.cpp.oracles.cases import CASES, Case

CORPUS = Path(__file__).parent / "corpus"
SEVERAL = {"multi_file_solver.cpp": ["multi_file_linalg.cpp"]}
"""Files that call what others define, which are no codelet files by themselves."""
NAMES = sorted(f.name for f in CORPUS.glob("*.cpp") if [f.name] not in SEVERAL.values())
NUM_FILES = 91
NUM_CLASSES = 393
REFUSED: dict[tuple[str, str], tuple[type[AbeleError], str]] = {
    ("asm_beside_portable.cpp", "TimeStamp"): (CodeletError, "'get' runs on the hardware only"),
    ("asm_beside_portable.cpp", "AlwaysExternal"): (CodeletError, "runs on the hardware only"),
    ("exchange_beside_portable.cpp", "SendTable"): (CodeletError, "runs on the hardware only"),
    ("gelu_codelet.cpp", "GeluAccumulators"): (CodeletError, "f16v4hihoamp runs on the hardware only"),
    ("heap_beside_stack.cpp", "WithVector"): (CodeletLinkError, "WithVector"),
    ("matmul_amp.cpp", "MatmulAmp"): (CodeletError, "f32sisov2amp runs on the hardware only"),
    ("poprand_dropout.cpp", "poprand::UniformSupervisor<float>"): (CodeletError, "'urand32' runs on the hardware only"),
    ("recursion_beside_loop.cpp", "Ackermann"): (CodeletError, "calls itself"),
    ("supervisor_styles.cpp", "RunAll"): (CodeletError, "'runall' runs on the hardware only"),
}
MODULES = (tutorials, libraries, science, learning)
WHOLE = "ABELE_CORPUS"
"""With this in the environment every instance of a template runs, else few of those that have one oracle."""
MOST = 2


def chosen() -> list[Case]:
    """The cases that run: of an oracle's instances the first and the last, and evenly between them."""
    assert MODULES
    if os.environ.get(WHOLE):
        return list(CASES)
    oracles: dict[Any, list[Case]] = {}
    for one in CASES:
        oracles.setdefault((one.file, one.make), []).append(one)
    return [
        cases[n]
        for cases in oracles.values()
        for n in dict.fromkeys(np.linspace(0, len(cases) - 1, min(MOST, len(cases)), dtype=int).tolist())
    ]


CHOSEN = chosen()


@cache
def loaded(file: str) -> CppCodelets | AbeleError:
    try:
        return load_codelets([CORPUS / name for name in (file, *SEVERAL.get(file, ()))])
    except AbeleError as error:
        return error


def codelets(file: str) -> CppCodelets:
    found = loaded(file)
    if isinstance(found, AbeleError):
        raise found
    return found


class Bench:
    """All cases in one graph, each on a tile of its own."""

    def __init__(self) -> None:
        self.graph = Graph(systems.get("bow-2000:1"))
        self.values: dict[str, np.ndarray] = {}
        self.problems: dict[Case, AbeleError] = {}
        self.names: dict[Case, dict[str, list[str]]] = {}
        steps = {times: self.graph.compute_set(f"times{times}") for times in {c.times for c in CHOSEN}}
        for tile, one in enumerate(CHOSEN):
            try:
                self._add(steps[one.times], tile, one)
            except AbeleError as error:
                self.problems[one] = error
        self.program = Sequence(*(Repeat(times, Execute(step)) for times, step in steps.items()))

    def _add(self, step: Any, tile: int, one: Case) -> None:
        definition = codelets(one.file)[one.vertex]
        fields, _ = one.data()
        edges = {f.name: f for f in definition.fields if f.is_edge}
        given: dict[str, Any] = {name: value for name, value in fields.items() if name not in edges}
        self.names[one] = {}
        for name, field in edges.items():
            rows = fields[name] if isinstance(fields[name], list) else [fields[name]]
            self.names[one][name] = [f"{tile}.{name}.{n}" for n in range(len(rows))]
            tensors = []
            for label, row in zip(self.names[one][name], rows, strict=True):
                self.values[label] = np.ascontiguousarray(row)
                shape = () if field.rank == 0 else (len(row),)
                tensors.append(self.graph.variable(field.type, shape, name=label).map(tile))
            given[name] = tensors if field.rank == 2 else tensors[0]
        vertex = step.vertex(definition, tile=tile)
        for name, value in given.items():
            vertex[name] = value

    def run(self, threads: int) -> dict[str, np.ndarray]:
        """Contents of all variables after the program."""
        engine = Engine(self.graph, self.program, mode="tiles", threads=threads)
        for name, value in self.values.items():
            engine[name] = value if np.ndim(engine[name]) else value[0]
        engine.run()
        return {name: np.array(engine[name]) for name in self.values}


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


@pytest.fixture(scope="module")
def results(bench: Bench) -> list[dict[str, np.ndarray]]:
    return [bench.run(threads) for threads in (1, 2)]


def test_files__all__load() -> None:
    refused = {name: str(loaded(name)) for name in NAMES if isinstance(loaded(name), AbeleError)}
    assert not refused
    assert len(NAMES) == NUM_FILES


def test_classes__all__are_described() -> None:
    assert sum(len(codelets(name).unit.vertices) for name in NAMES) == NUM_CLASSES


@pytest.mark.parametrize(("file", "vertex"), REFUSED, ids=lambda v: v)
def test_class__that_cannot_be_had__says_why(file: str, vertex: str) -> None:
    kind, text = REFUSED[file, vertex]
    with pytest.raises(kind, match=text) as caught:
        codelets(file)[vertex]
    assert file in (caught.value.at or "")


def test_cases__cover_every_file() -> None:
    assert {c.file for c in CHOSEN} == set(NAMES)


@pytest.mark.parametrize("one", CHOSEN, ids=lambda c: f"{c.file} {c.vertex}")
def test_vertex__with_one_thread_and_two__agrees_with_numpy(
    one: Case, bench: Bench, results: list[dict[str, np.ndarray]]
) -> None:
    if one in bench.problems:
        raise bench.problems[one]
    for name, wanted in one.data()[1].items():
        single, double = (np.concatenate([np.ravel(r[n]) for n in bench.names[one][name]]) for r in results)
        np.testing.assert_array_equal(single, double)
        one.check(name, single, np.concatenate([np.ravel(w) for w in wanted]) if np.ndim(wanted) else [wanted])

"""Codelets in the styles of public code load, run, and agree with NumPy, with one thread and with two.

Plain tests take every sixth file, slow ones a third of the others, which their commit chooses.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abele import Engine, Execute, Graph, Repeat, Sequence, compile_program, systems
from abele.codelet.cpp import load_codelets
from abele.codelet.cpp.loading import CppCodelets
from abele.errors import AbeleError, CodeletError, CodeletLinkError
from codelet.cpp.oracles import learning, libraries, science, tutorials
from codelet.cpp.oracles.cases import CASES, Case
from support import sweeps

CORPUS = Path(__file__).parent / "corpus"
SEVERAL = {"multi_file_solver.cpp": ["multi_file_linalg.cpp"]}
"""Files with calls of functions from others, which are no codelet files by themselves."""
NAMES = sorted(f.name for f in CORPUS.glob("*.cpp") if [f.name] not in SEVERAL.values())
NUM_FILES = 91
# fmt: off
NUM_CLASSES = {
    "adam_update.cpp": 3, "align_edit_distance.cpp": 2, "asm_beside_portable.cpp": 3, "attention.cpp": 3,
    "ba_reprojection.cpp": 2, "double_beside_float.cpp": 4, "exchange_beside_portable.cpp": 2, "gelu_codelet.cpp":
    3, "graph_bfs.cpp": 2, "graph_components.cpp": 2, "graph_spmv.cpp": 3, "hash_table.cpp": 2,
    "heap_beside_stack.cpp": 2, "image_median.cpp": 2, "image_sobel.cpp": 2, "init_kernels.cpp": 5, "kalman.cpp": 2,
    "kmeans.cpp": 2, "knapsack.cpp": 2, "layernorm.cpp": 3, "lbm_d2q9.cpp": 2, "life.cpp": 2, "matmul_amp.cpp": 5,
    "molecular_dynamics.cpp": 2, "mpi_style_halo.cpp": 2, "particle_filter.cpp": 2, "popart_cube.cpp": 4,
    "popart_leaky_relu.cpp": 4, "popart_rotary.cpp": 2, "popart_swish.cpp": 2, "poplin_conv_partial.cpp": 3,
    "poplin_outer_product.cpp": 2, "poplin_triangular.cpp": 3, "popnn_ctc.cpp": 2, "popnn_loss.cpp": 5,
    "popnn_nonlinearity.cpp": 18, "popnn_pool.cpp": 5, "popops_binary.cpp": 29, "popops_cast.cpp": 74,
    "popops_cast_quarter.cpp": 2, "popops_compare_swap.cpp": 4, "popops_encode_one_hot.cpp": 5,
    "popops_histogram.cpp": 5, "popops_multi_slice.cpp": 9, "popops_reduce.cpp": 19, "popops_scaled_add.cpp": 6,
    "popops_select_clamp.cpp": 7, "popops_unary.cpp": 35, "poprand_dropout.cpp": 3, "poprand_xoroshiro.cpp": 2,
    "popsparse_block.cpp": 4, "popsparse_elementwise.cpp": 2, "prefix_sum.cpp": 4, "quantise.cpp": 3,
    "recursion_beside_loop.cpp": 2, "sampling.cpp": 3, "snn_lif.cpp": 2, "sort_merge.cpp": 3,
    "stencil_blur_workers.cpp": 2, "stencil_fdtd.cpp": 2, "supervisor_styles.cpp": 3, "topk_heap.cpp": 2,
    "tut_axpy_templates.cpp": 7, "tut_half_vectors.cpp": 2, "tut_heat.cpp": 2, "tut_matvec.cpp": 3,
    "tut_reduce_workers.cpp": 2, "tut_sum.cpp": 2, "vector_list_rows.cpp": 3, "vector_math.cpp": 2,
    "worker_align.cpp": 2,
}
"""Vertex classes of the files with several, refused ones included."""
# fmt: on
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
PLAIN = NAMES[::6]
MOST = 2
"""Instances of a template with one oracle that plain tests take; slow ones take every one."""


def some(cases: list[Case]) -> list[Case]:
    """Of an oracle's instances the first and the last."""
    oracles: dict[Any, list[Case]] = {}
    for one in cases:
        oracles.setdefault(one.make, []).append(one)
    return [
        found[n]
        for found in oracles.values()
        for n in dict.fromkeys(np.linspace(0, len(found) - 1, min(MOST, len(found)), dtype=int).tolist())
    ]


def cases_of(file: str) -> list[Case]:
    assert MODULES
    return [one for one in CASES if one.file == file]


@cache
def codelets(file: str) -> CppCodelets:
    return load_codelets([CORPUS / name for name in (file, *SEVERAL.get(file, ()))])


class Bench:
    """All cases of a file in one graph, each on a tile of its own."""

    def __init__(self, cases: list[Case]) -> None:
        self.graph = Graph(systems.get("bow-2000:1").evolve(ipu={"num_tiles": max(8, len(cases))}))
        self.values: dict[str, np.ndarray] = {}
        self.names: dict[Case, dict[str, list[str]]] = {}
        steps = {times: self.graph.compute_set(f"times{times}") for times in {c.times for c in cases}}
        for tile, one in enumerate(cases):
            self._add(steps[one.times], tile, one)
        program = Sequence(*(Repeat(times, Execute(step)) for times, step in steps.items()))
        self.executable = compile_program(self.graph, program)

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
        engine = Engine(self.executable, mode="tiles", threads=threads)
        for name, value in self.values.items():
            engine[name] = value if np.ndim(engine[name]) else value[0]
        engine.run()
        return {name: np.array(engine[name]) for name in self.values}


def check(file: str, cases: list[Case]) -> None:
    assert len(codelets(file).unit.vertices) == NUM_CLASSES.get(file, 1)
    bench = Bench(cases)
    results = [bench.run(threads) for threads in (1, 2)]
    for one in cases:
        for name, wanted in one.data()[1].items():
            single, double = (np.concatenate([np.ravel(r[n]) for n in bench.names[one][name]]) for r in results)
            np.testing.assert_array_equal(single, double, err_msg=one.vertex)
            one.check(name, single, np.concatenate([np.ravel(w) for w in wanted]) if np.ndim(wanted) else [wanted])


def partly_plain() -> list[str]:
    """Files with instances that plain tests do not take."""
    return [name for name in NAMES if name not in PLAIN or len(some(cases_of(name))) < len(cases_of(name))]


@pytest.mark.parametrize("file", PLAIN)
def test_file__with_one_thread_and_two__loads_and_agrees_with_numpy(file: str) -> None:
    check(file, some(cases_of(file)))


@pytest.mark.slow
@pytest.mark.parametrize("file", sweeps.sampled(partly_plain(), 26))
def test_file__every_instance__agrees_with_numpy(file: str) -> None:
    check(file, cases_of(file))


def test_cases__cover_every_file() -> None:
    assert {one.file for one in CASES} == set(NAMES)
    assert len(NAMES) == NUM_FILES


@pytest.mark.parametrize(("file", "vertex"), REFUSED, ids=lambda v: v)
def test_class__that_cannot_be_had__says_why(file: str, vertex: str) -> None:
    kind, text = REFUSED[file, vertex]
    with pytest.raises(kind, match=text) as caught:
        codelets(file)[vertex]
    assert file in (caught.value.at or "")

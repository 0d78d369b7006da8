"""Codelet files in the styles of public programs: headers by "../", data at file level, exits, heaps, alignment."""

from __future__ import annotations

import numpy as np

from codelet.cpp.conftest import load, run, zeros


def test_path_tracer__gives_the_background_to_rays_that_hit_nothing_and_less_to_others() -> None:
    found = load("field/kernels/path.cpp")
    up, down = [0.0, 5.0], [0.0, -0.5]
    rays = np.array([up, down] * 6, np.float16).ravel()
    rgb = run(found["TraceRays"], rays=rays, rgb=zeros(36), seed=np.uint32(3), maxDepth=6)["rgb"].reshape(12, 3)
    np.testing.assert_allclose(rgb[::2], 0.8, rtol=1e-6)
    assert ((rgb[1::2] >= 0) & (rgb[1::2] < 0.8)).all()


def test_lattice_boltzmann__relaxes_towards_equilibrium_as_numpy_does() -> None:
    rng = np.random.default_rng(1)
    cells = (rng.random((9, 5)) + 0.5).astype(np.float32)
    cx, cy = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1]), np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])
    weights = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    obstacle = np.array([0, 1, 0, 0, 1], bool)
    rho = cells.sum(0, dtype=np.float64)
    ux, uy = cx @ cells / rho, cy @ cells / rho
    c = cx[:, None] * ux + cy[:, None] * uy
    balance = weights[:, None] * rho * (1 + 3 * c + 4.5 * c * c - 1.5 * (ux * ux + uy * uy))
    wanted = np.where(obstacle, cells, cells + 0.6 * (balance - cells))
    done = run(load("field/lattice.cpp")["CollideVertex<float>"], cells=list(cells), obstacle=obstacle, omega=0.6)
    np.testing.assert_allclose(np.stack(done["cells"]), wanted, rtol=2e-5)


def test_heap_sort_of_indices__sorts() -> None:
    v = np.random.default_rng(2).standard_normal(40).astype(np.float32)
    done = run(load("field/binary_ops.cpp")["popops::Heap<float>"], v=v, idx=zeros(40, "u4"), k=0)["idx"]
    np.testing.assert_array_equal(done, np.argsort(v))


def test_local_alignment__has_the_scores_of_the_recurrence() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 4, 9).astype("u1"), rng.integers(0, 4, 7).astype("u1")
    similarity = np.where(np.eye(20, dtype=bool), 3, -2).astype("i1")
    h = np.zeros((len(b) + 1, len(a) + 1), int)
    for j in range(1, len(b) + 1):
        for i in range(1, len(a) + 1):
            same = h[j - 1, i - 1] + int(similarity[a[i - 1], b[j - 1]])
            h[j, i] = max(0, same, h[j - 1, i] - 1, h[j, i - 1] - 1)
    fields = {"scratch": zeros(60, "i4"), "stride": 10, "gap": -1, "sim": similarity.ravel(), "a": a, "b": b}
    lengths = {"la": np.uint32(len(a)), "lb": np.uint32(len(b))}
    done = run(load("field/align.cpp")["ipu::alg::SW"], **fields, **lengths, score=zeros(6, "i4"))["score"]
    np.testing.assert_array_equal(done, [h.max()] * 6)

"""Graphs, simulations, signals, tracking."""

from __future__ import annotations

import numpy as np
from scipy import special

from codelet.cpp.oracles.cases import Fields, case, dtype, f32, f64, normal, zeros

Rng = np.random.Generator


def sparse(rng: Rng, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A random matrix: whole, and its rows' begins, columns and values."""
    a = np.where(rng.uniform(size=(rows, columns)) < 0.3, normal(rng, rows, columns), 0).astype("f4")
    begin = np.concatenate([[0], np.cumsum((a != 0).sum(axis=1))])
    return a, begin, np.nonzero(a)[1], a[a != 0]


@case("graph_bfs.cpp", "BfsStep")
def bfs(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, begin, columns, _ = sparse(rng, 9, 12)
    frontier = (rng.uniform(size=12) < 0.3).astype("u1")
    level = np.where(rng.uniform(size=9) < 0.3, 1, -1).astype("i4")
    reached = (a != 0) @ (frontier != 0)
    new = (level < 0) & reached
    fields = {"rowPtr": begin.astype("i4"), "columns": columns.astype("i4"), "frontier": frontier, "level": level}
    fields |= {"next": zeros(9, type="u1"), "changed": zeros(1, type="?"), "depth": np.array([2], "i4")}
    return fields, {"level": np.where(new, 3, level), "next": new, "changed": [new.any()]}


@case("graph_bfs.cpp", "AnyTrue")
def any_true(rng: Rng, name: str) -> tuple[Fields, Fields]:
    return {"in": np.array([0, 0, 1, 0], "?"), "out": zeros(1, type="?")}, {"out": [True]}


@case("graph_pagerank.cpp", "PageRankPull")
def pagerank(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, begin, columns, _ = sparse(rng, 6, 15)
    rank, inverse = f32(rng.uniform(0, 1, 15)), f32(1 / rng.integers(1, 5, 15))
    wanted = 0.15 / 15 + 0.85 * ((a != 0) @ (f64(rank) * inverse))
    fields = {"rank": rank, "invOutDegree": inverse, "row_ptr": begin.astype("u4"), "col_idx": columns.astype("u4")}
    fields |= {"newRank": zeros(6), "error": zeros(1), "damping": 0.85, "num_nodes": 15, "first": 4}
    return fields, {"newRank": wanted, "error": [np.abs(wanted - rank[4:10]).sum()]}


@case("graph_spmv.cpp", "spmv::Ell", "spmv::Coo", "spmv::CsrWorkers")
def spmv(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, begin, columns, values = sparse(rng, 8, 10)
    x = normal(rng, 10)
    wanted = f64(a) @ f64(x)
    if name == "spmv::Coo":
        y = normal(rng, 8)
        fields = {
            "values": values,
            "rows": np.nonzero(a)[0].astype("u2"),
            "columns": columns.astype("u2"),
            "x": x,
            "y": y,
        }
        return fields, {"y": wanted + y}
    if name == "spmv::CsrWorkers":
        fields = {"values": values, "columns": columns.astype("u4"), "begin": begin.astype("u4"), "x": x, "y": zeros(8)}
        return fields, {"y": wanted}
    wide = int(np.diff(begin).max())
    ell, places = zeros(8, wide), np.full((8, wide), -1, "i4")
    for row in range(8):
        inside = slice(begin[row], begin[row + 1])
        ell[row, : begin[row + 1] - begin[row]] = values[inside]
        places[row, : begin[row + 1] - begin[row]] = columns[inside]
    fields = {"values": ell.reshape(-1), "columns": places.reshape(-1), "x": x, "y": zeros(8), "width": wide}
    return fields, {"y": wanted}


@case("graph_sssp.cpp", "Relax")
def relax(rng: Rng, name: str) -> tuple[Fields, Fields]:
    start, end = rng.integers(0, 10, (2, 30))
    weight = rng.integers(1, 9, 30)
    end[end == 9] = 0
    distance = np.full(10, 2**32 - 1, "i8")
    distance[3] = 0
    rounds, changed = 0, True
    while changed:
        changed = False
        for a, b, w in zip(start, end, weight, strict=True):
            if distance[a] != 2**32 - 1 and distance[a] + w < distance[b]:
                distance[b], changed = distance[a] + w, True
        rounds += 1
    first = np.full(10, 2**32 - 1, "u4")
    first[3] = 0
    fields = {"from": start.astype("u2"), "to": end.astype("u2"), "weight": weight.astype("u4"), "distance": first}
    return {**fields, "rounds": zeros(1, type="u4")}, {"distance": distance, "rounds": [rounds]}


@case("graph_components.cpp", "UnionFind")
def union_find(rng: Rng, name: str) -> tuple[Fields, Fields]:
    edges = np.array([0, 3, 3, 7, 8, 2, 5, 6, 6, 1, 9, 9], "i4")
    wanted = [0, 1, 2, 0, 4, 1, 1, 0, 2, 9]
    return {"edges": edges, "parent": zeros(10, type="i4")}, {"parent": wanted}


@case("graph_components.cpp", "Triangles")
def triangles(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a = np.triu(rng.uniform(size=(20, 20)) < 0.4, 1)
    a = (a | a.T).astype("i8")
    words = (a << np.arange(20)).sum(axis=1).astype("u4")
    return {"adjacency": words, "count": zeros(1, type="u4")}, {"count": [np.trace(a @ a @ a) // 6]}


WEIGHTS = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
CX = np.array([0, 1, 0, -1, 0, 1, -1, -1, 1])
CY = np.array([0, 0, 1, 0, -1, 1, 1, -1, -1])


@case("lbm_d2q9.cpp", "Collide")
def collide(rng: Rng, name: str) -> tuple[Fields, Fields]:
    f = f32(rng.uniform(0.1, 1, (10, 9)))
    wall = rng.uniform(size=10) < 0.3
    d = f64(f).sum(axis=1)
    ux, uy = f64(f) @ CX / d, f64(f) @ CY / d
    u = np.outer(ux, CX) + np.outer(uy, CY)
    equilibrium = WEIGHTS * d[:, None] * (1 + 3 * u + 4.5 * u**2 - 1.5 * (ux**2 + uy**2)[:, None])
    wanted = np.where(wall[:, None], f[:, [0, 3, 4, 1, 2, 7, 8, 5, 6]], f + 0.6 * (equilibrium - f))
    return {"cells": f.reshape(-1), "obstacle": wall, "omega": 0.6}, {"cells": wanted.reshape(-1)}


@case("lbm_d2q9.cpp", "StreamPeriodic", rtol=0)
def stream(rng: Rng, name: str) -> tuple[Fields, Fields]:
    f = normal(rng, 4, 5, 9)
    wanted = np.stack([np.roll(f[..., k], (CY[k], CX[k]), (0, 1)) for k in range(9)], axis=-1)
    return {"in": f.reshape(-1), "out": zeros(180), "nx": 5, "ny": 4}, {"out": wanted.reshape(-1)}


@case("stencil_blur_workers.cpp", "GaussianBlur")
def blur(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 10, 9)
    w = np.array([1, 2, 1]) / 4
    down = sum(w[k] * f64(x)[k : k + 8] for k in range(3))
    wanted = sum(w[k] * down[:, k : k + 7] for k in range(3))
    return {"in": x.reshape(-1), "out": zeros(56), "width": 7, "height": 8}, {"out": wanted.reshape(-1)}


@case("stencil_blur_workers.cpp", "AverageFloat2")
def average_float2(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 20)
    return {"a": x, "out": zeros(2)}, {"out": f64(x).reshape(-1, 2).mean(axis=0)}


@case("stencil_fdtd.cpp", "Wave3D")
def wave(rng: Rng, name: str) -> tuple[Fields, Fields]:
    now, before = normal(rng, 2, 4, 5, 6)
    u, wanted = f64(now), f64(before)
    inner = (slice(1, -1),) * 3
    around = sum(np.roll(u, s, axis) for axis in range(3) for s in (1, -1)) - 6 * u
    wanted[inner] = (2 * u - wanted + 0.2 * around)[inner]
    fields = {"now": now.reshape(-1), "before": before.reshape(-1), "nx": 6, "ny": 5, "nz": 4, "c2": 0.2}
    return fields, {"before": wanted.reshape(-1)}


@case("stencil_fdtd.cpp", "UpdateE")
def update_e(rng: Rng, name: str) -> tuple[Fields, Fields]:
    e, h = normal(rng, 2, 16)
    wanted = f64(e)
    wanted[1:] += 0.5 * np.diff(f64(h))
    return {"ez": e, "hy": h, "coefficient": 0.5}, {"ez": wanted}


@case("nbody.cpp", "Forces", rtol=1e-4)
def forces(rng: Rng, name: str) -> tuple[Fields, Fields]:
    bodies = normal(rng, 12, 4)
    bodies[:, 3] = np.abs(bodies[:, 3])
    p, m = f64(bodies[:, :3]), f64(bodies[:, 3])
    d = p[None] - p[:4, None]
    r2 = (d**2).sum(axis=-1) + 1e-3
    wanted = (d * (m / r2**1.5)[..., None]).sum(axis=1)
    fields = {"own": bodies[:4].reshape(-1), "all": bodies.reshape(-1), "acceleration": zeros(12)}
    return fields, {"acceleration": wanted.reshape(-1)}


@case("fft_radix2.cpp", "Fft", rtol=1e-4)
def fft(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 32, 2)
    wanted = np.fft.fft(f64(x[:, 0]) + 1j * f64(x[:, 1]))
    fields = {"signal": x.reshape(-1), "logN": 5, "inverse": False}
    return fields, {"signal": np.stack([wanted.real, wanted.imag], -1).reshape(-1)}


@case("sort_merge.cpp", "MergeSort<float>", "MergeSort<int>")
def merge_sort(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 37, type=dtype(name))
    return {"data": x, "scratch": zeros(37, type=dtype(name))}, {"data": np.sort(x)}


@case("sort_merge.cpp", "SortNetwork8<float>")
def sort_network(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 8)
    return {"v": x}, {"v": np.sort(x)}


@case("sort_radix.cpp", "RadixSort")
def radix_sort(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = rng.integers(0, 2**32, 40).astype("u4")
    return {"keys": x, "spare": zeros(40, type="u4")}, {"keys": np.sort(x)}


@case("prefix_sum.cpp", "Scan<int>", "Scan<int,true>", "Scan<float>")
def scan(rng: Rng, name: str) -> tuple[Fields, Fields]:
    kind = "f4" if "float" in name else "i4"
    x = normal(rng, 30, type=kind)
    wanted = np.cumsum(x.astype("f8"))
    out = wanted - x if "true" in name else wanted
    return {"in": x, "out": zeros(30, type=kind), "total": zeros(1, type=kind)}, {"out": out, "total": [wanted[-1]]}


@case("prefix_sum.cpp", "AddOffsets")
def add_offsets(rng: Rng, name: str) -> tuple[Fields, Fields]:
    totals, x = normal(rng, 5, type="i4"), normal(rng, 12, type="i4")
    return {"totals": totals, "data": x, "tile": 3}, {"data": x + totals[:3].sum()}


@case("chem_eri_ssss.cpp", "eri::Ssss", rtol=1e-4)
def eri(rng: Rng, name: str) -> tuple[Fields, Fields]:
    e, r = f32(rng.uniform(0.4, 2, (6, 4))), normal(rng, 6, 4, 3)
    a, b, c, d = f64(e).T
    p, q = a + b, c + d
    x = f64(r)
    centre_p = (a[:, None] * x[:, 0] + b[:, None] * x[:, 1]) / p[:, None]
    centre_q = (c[:, None] * x[:, 2] + d[:, None] * x[:, 3]) / q[:, None]
    t = p * q / (p + q) * ((centre_p - centre_q) ** 2).sum(axis=1)
    boys = np.where(t < 1e-8, 1, 0.5 * np.sqrt(np.pi / t) * special.erf(np.sqrt(t)))
    decay = a * b / p * ((x[:, 0] - x[:, 1]) ** 2).sum(axis=1) + c * d / q * ((x[:, 2] - x[:, 3]) ** 2).sum(axis=1)
    wanted = 2 * np.pi**2.5 / (p * q * np.sqrt(p + q)) * np.exp(-decay) * boys
    return {"exponents": e.reshape(-1), "centres": r.reshape(-1), "integrals": zeros(6)}, {"integrals": wanted}


@case("ray_spheres.cpp", "TraceRays", rtol=1e-3)
def rays(rng: Rng, name: str) -> tuple[Fields, Fields]:
    spheres = f32([[0, 0, 5, 1], [1.5, 0, 6, 1], [0, -2, 4, 1.2]])
    ways = f32(np.hstack([rng.uniform(-0.5, 0.5, (15, 2)), np.ones((15, 1))]))
    d = f64(ways) / np.linalg.norm(f64(ways), axis=1, keepdims=True)
    light = np.array([1, 1, -1]) / np.sqrt(3)
    hit, shade = [], []
    for way in d:
        best, found, value = np.inf, -1, 0.0
        for n, (x, y, z, r) in enumerate(f64(spheres)):
            centre = np.array([x, y, z])
            b, c = -centre @ way, centre @ centre - r * r
            if b * b < c:
                continue
            t = -b - np.sqrt(b * b - c)
            if 1e-4 < t < best:
                best, found = t, n
                value = max(0.0, ((way * t - centre) / r) @ light)
        hit.append(found)
        shade.append(value)
    fields = {"spheres": spheres.reshape(-1), "directions": ways.reshape(-1), "shade": zeros(15)}
    return {**fields, "hit": zeros(15, type="i4")}, {"shade": shade, "hit": hit}


@case("mandelbrot.cpp", "Mandelbrot")
def mandelbrot(rng: Rng, name: str) -> tuple[Fields, Fields]:
    counts = []
    for p in range(8 * 6):
        cr = np.float32(-2) + np.float32(p % 8) * np.float32(0.375)
        ci = np.float32(1) - np.float32(p // 8) * np.float32(0.375)
        zr = zi = np.float32(0)
        n = 0
        while n < 50 and zr * zr + zi * zi <= 4:
            zr, zi = zr * zr - zi * zi + cr, np.float32(2) * zr * zi + ci
            n += 1
        counts.append(n)
    fields = {"counts": zeros(48, type="u2"), "left": -2.0, "top": 1.0, "step": 0.375}
    return {**fields, "width": 8, "height": 6, "limit": 50}, {"counts": counts}


@case("mc_option.cpp", "CallPayoff", rtol=1e-4)
def option(rng: Rng, name: str) -> tuple[Fields, Fields]:
    z = normal(rng, 40, 4)
    spot, strike, rate, volatility, years = 100, 95, 0.03, 0.2, 2
    dt = years / 4
    end = spot * np.exp(((rate - volatility**2 / 2) * dt + volatility * np.sqrt(dt) * f64(z)).sum(axis=1))
    payoff = np.maximum(end - strike, 0)
    fields = {"normals": z.reshape(-1), "market": f32([spot, strike, rate, volatility, years]), "sums": zeros(2)}
    return {**fields, "steps": 4}, {"sums": [payoff.mean() * np.exp(-rate * years), (payoff**2).mean()]}


@case("particle_filter.cpp", "UpdateWeights")
def update_weights(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 25)
    wanted = np.exp(-0.5 * ((f64(x) - 0.3) / 0.5) ** 2)
    fields = {"particles": x, "measurement": f32([0.3]), "weights": zeros(25), "sum": zeros(1), "sigma": 0.5}
    return fields, {"weights": wanted, "sum": [wanted.sum()]}


@case("particle_filter.cpp", "Resample")
def resample(rng: Rng, name: str) -> tuple[Fields, Fields]:
    w, x = f32(rng.uniform(0, 1, 20)), normal(rng, 20)
    edges = np.cumsum(f64(w))
    wanted = x[np.minimum(np.searchsorted(edges, (np.arange(20) + 0.4) * edges[-1] / 20), 19)]
    return {"weights": w, "particles": x, "resampled": zeros(20), "offset": 0.4}, {"resampled": wanted}


@case("kalman.cpp", "KalmanTrack<2>", "KalmanTrack<4>", rtol=1e-3)
def kalman(rng: Rng, name: str) -> tuple[Fields, Fields]:
    n = int(name[-2])
    step, x, z = np.eye(n) + 0.1 * np.eye(n, k=1), normal(rng, n), normal(rng, 8)
    mean, cov = f64(x), np.eye(n)
    for measured in f64(z):
        mean, cov = step @ mean, step @ cov @ step.T + 0.01 * np.eye(n)
        gain = cov[:, 0] / (cov[0, 0] + 0.5)
        mean = mean + gain * (measured - mean[0])
        cov = cov - np.outer(gain, cov[0])
    fields = {"x": x, "P": f32(np.eye(n).reshape(-1)), "F": f32(step.reshape(-1)), "z": z, "q": 0.01, "r": 0.5}
    return fields, {"x": mean, "P": cov.reshape(-1)}


@case("ba_reprojection.cpp", "Reprojection", rtol=1e-4)
def reprojection(rng: Rng, name: str) -> tuple[Fields, Fields]:
    from scipy.spatial.transform import Rotation

    camera = f32([0.2, -0.3, 0.1, 0.5, 0.2, 6, 3])
    points, seen = normal(rng, 7, 3), normal(rng, 7, 2)
    p = Rotation.from_rotvec(f64(camera[:3])).apply(f64(points)) + f64(camera[3:6])
    wanted = 3 * p[:, :2] / p[:, 2:] - seen
    fields = {"camera": camera, "points": list(points), "observed": list(seen), "residuals": zeros(14)}
    return fields, {"residuals": wanted.reshape(-1)}


@case("ba_reprojection.cpp", "GbpMessage")
def belief(rng: Rng, name: str) -> tuple[Fields, Fields]:
    eta, lam, message, out = f32([1, 2]), f32([3, -1, -1, 2]), f32([0.5, 1.5]), f32([0.2, 0.4])
    new = np.array([1 + 1 / 3.5 * 2.5, 3 - 1 / 3.5])
    fields = {"factorEta": eta, "factorLambda": lam, "in": message, "out": out, "damping": 0.25}
    return fields, {"out": 0.25 * out + 0.75 * new}


@case("snn_lif.cpp", "SparseLif<float>", "SparseLif<half>")
def lif(rng: Rng, name: str) -> tuple[Fields, Fields]:
    kind = dtype(name)
    w, state, ids = np.abs(normal(rng, 10, 8, type=kind)), np.abs(normal(rng, 10, type=kind)), [1, 4, 6, 0]
    new = 0.75 * f64(state) + 0.25 * f64(w[:, ids[:3]]).sum(axis=1)
    fired = np.nonzero(new > 0.9)[0]
    out = np.zeros(4)
    out[: len(fired[:4])] = fired[:4]
    fields = {
        "weights": w.reshape(-1),
        "state": state,
        "spike_ids": np.array(ids, "u4"),
        "num_spikes": np.array([3], "u4"),
    }
    fields |= {
        "out_ids": zeros(4, type="u4"),
        "out_num": zeros(1, type="u4"),
        "decay": 0.75,
        "threshold": 0.9,
        "num_inputs": 8,
    }
    return fields, {"state": np.where(new > 0.9, new - 0.9, new), "out_ids": out, "out_num": [len(fired)]}


@case("kmeans.cpp", "KMeansAssign<2>", "KMeansAssign<3>")
def kmeans(rng: Rng, name: str) -> tuple[Fields, Fields]:
    n = int(name[-2])
    p, c = normal(rng, 20, n), normal(rng, 4, n)
    near = ((f64(p)[:, None] - f64(c)[None]) ** 2).sum(axis=-1).argmin(axis=1)
    one_hot = np.eye(4)[near]
    fields = {"points": p.reshape(-1), "centres": c.reshape(-1), "nearest": zeros(20, type="u4"), "sums": zeros(4 * n)}
    wanted = {"nearest": near, "counts": one_hot.sum(axis=0), "sums": (one_hot.T @ f64(p)).reshape(-1)}
    return {**fields, "counts": zeros(4, type="u4")}, wanted


@case("molecular_dynamics.cpp", "LennardJones", rtol=1e-4)
def lennard_jones(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = f32(np.stack(np.meshgrid(*[np.arange(2) * 1.1] * 3), -1).reshape(-1, 3) + 0.05 * normal(rng, 8, 3))
    lists = [[j for j in range(8) if j != i] for i in range(8)]
    first = np.arange(9) * 7
    d = f64(x)[:, None] - f64(x)[None]
    r2 = (d**2).sum(axis=-1) + np.eye(8) * 1e9
    q6 = np.where(r2 <= 1.5**2, 1 / r2**3, 0)
    scale = 24 * 0.7 * (2 * q6**2 - q6) / r2
    fields = {"position": x.reshape(-1), "neighbours": np.array(lists, "u2").reshape(-1), "first": first.astype("u2")}
    fields |= {"force": zeros(24), "energy": zeros(1), "epsilon": 0.7, "sigma": 1.0, "cutoff": 1.5}
    wanted = {"force": (scale[..., None] * d).sum(axis=1).reshape(-1), "energy": [(2 * 0.7 * (q6**2 - q6)).sum()]}
    return fields, wanted


@case("molecular_dynamics.cpp", "Leapfrog")
def leapfrog(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x, v, f = normal(rng, 3, 21)
    new = f64(v) + f64(f) / 2 * 0.1
    return {"x": x, "v": v, "f": f, "dt": 0.1, "mass": 2.0}, {"v": new, "x": f64(x) + 0.1 * new}


@case("genetic_tour.cpp", "TwoOpt")
def two_opt(rng: Rng, name: str) -> tuple[Fields, Fields]:
    angle = np.sort(rng.uniform(0, 2 * np.pi, 9))
    x, y = f32(np.cos(angle)), f32(np.sin(angle))
    z = f64(x) + 1j * f64(y)  # points of a circle: the shortest tour goes round
    fields = {"xs": x, "ys": y, "tour": rng.permutation(9).astype("u2"), "length": zeros(1), "maxPasses": 40}
    return fields, {"length": [np.abs(z - np.roll(z, 1)).sum()]}


@case("viterbi.cpp", "Viterbi")
def viterbi(rng: Rng, name: str) -> tuple[Fields, Fields]:
    t, e, seen = f32(special.log_softmax(normal(rng, 3, 3), axis=1)), -np.abs(normal(rng, 4, 3)), rng.integers(0, 4, 6)
    best, path = -np.inf, ()
    for states in np.ndindex(*[3] * 6):
        score = f64(e)[seen, states].sum() + f64(t)[states[:-1], states[1:]].sum()
        if score > best:
            best, path = score, states
    fields = {"transition": t.reshape(-1), "emission": e.reshape(-1), "observed": seen.astype("u1"), "score": zeros(6)}
    return {**fields, "back": zeros(18, type="u1"), "path": zeros(6, type="u1")}, {"path": path}


@case("multi_file_solver.cpp", "ConjugateGradient", rtol=1e-4)
def conjugate_gradient(rng: Rng, name: str) -> tuple[Fields, Fields]:
    a, b = normal(rng, 8, 8), normal(rng, 8)
    a = a @ a.T / 8 + 2 * np.eye(8, dtype="f4")
    fields = {"a": a.reshape(-1), "b": b, "residual": zeros(1), "iterations": 20}
    return {**fields, **{n: zeros(8) for n in ("x", "r", "p", "ap")}}, {"x": np.linalg.solve(f64(a), f64(b))}


@case("mpi_style_halo.cpp", "halo::Pack", rtol=0)
def pack(rng: Rng, name: str) -> tuple[Fields, Fields]:
    x = normal(rng, 4, 6)
    fields = {"field": x.reshape(-1), "west": zeros(4), "east": zeros(4), "north": zeros(6), "south": zeros(6), "w": 6}
    return fields, {"west": x[:, 0], "east": x[:, -1], "north": x[0], "south": x[-1]}


@case("mpi_style_halo.cpp", "halo::Fill")
def fill(rng: Rng, name: str) -> tuple[Fields, Fields]:
    return {"out": zeros(9, type="i4"), "value": 5}, {"out": np.full(9, 5)}

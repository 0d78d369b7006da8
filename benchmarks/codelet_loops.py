"""The loops of the codelet benchmark as a person would write them in Numba and in NumPy."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

W0, W1, W5 = np.float32(4 / 9), np.float32(1 / 9), np.float32(1 / 36)


@njit(parallel=True, fastmath=True)
def saxpy(x, y, a, steps):
    for _ in range(steps):
        for i in prange(len(x)):
            y[i] += a * x[i]


def saxpy_numpy(x, y, a, steps):
    scaled = np.empty_like(x)
    for _ in range(steps):
        np.multiply(x, a, out=scaled)
        y += scaled


@njit(parallel=True, fastmath=True)
def dots(x, y, out, steps):
    for _ in range(steps):
        for r in prange(len(x)):
            total = np.float32(0)
            for i in range(x.shape[1]):
                total += x[r, i] * y[r, i]
            out[r] = total


def dots_numpy(x, y, out, steps):
    for _ in range(steps):
        np.einsum("ri,ri->r", x, y, out=out)


@njit(parallel=True, fastmath=True)
def blur(a, b, steps):
    near, far = np.float32(0.125), np.float32(0.0625)
    for step in range(steps):
        src, dst = (a, b) if step % 2 == 0 else (b, a)
        for y in prange(1, src.shape[0] - 1):
            for x in range(1, src.shape[1] - 1):
                sides = (src[y - 1, x] + src[y + 1, x]) + (src[y, x - 1] + src[y, x + 1])
                corners = (src[y - 1, x - 1] + src[y - 1, x + 1]) + (src[y + 1, x - 1] + src[y + 1, x + 1])
                dst[y, x] = np.float32(0.25) * src[y, x] + near * sides + far * corners


def blur_numpy(a, b, steps):
    for step in range(steps):
        src, dst = (a, b) if step % 2 == 0 else (b, a)
        across = 2 * src[:, 1:-1] + src[:, :-2] + src[:, 2:]
        dst[1:-1, 1:-1] = np.float32(0.0625) * (2 * across[1:-1] + across[:-2] + across[2:])


@njit(parallel=True, fastmath=True)
def heat(a, b, alpha, steps):
    four = np.float32(4)
    for step in range(steps):
        src, dst = (a, b) if step % 2 == 0 else (b, a)
        for y in prange(1, src.shape[0] - 1):
            for x in range(1, src.shape[1] - 1):
                around = (src[y - 1, x] + src[y + 1, x]) + (src[y, x - 1] + src[y, x + 1])
                dst[y, x] = src[y, x] + alpha * (around - four * src[y, x])


def heat_numpy(a, b, alpha, steps):
    for step in range(steps):
        src, dst = (a, b) if step % 2 == 0 else (b, a)
        around = src[:-2, 1:-1] + src[2:, 1:-1]
        around += src[1:-1, :-2]
        around += src[1:-1, 2:]
        around -= 4 * src[1:-1, 1:-1]
        around *= alpha
        np.add(src[1:-1, 1:-1], around, out=dst[1:-1, 1:-1])


@njit(parallel=True, fastmath=True)
def flow(a, b, solid, omega, force, steps):
    one, three, half3, half9 = np.float32(1), np.float32(3), np.float32(1.5), np.float32(4.5)
    keep = one - omega
    height, width = solid.shape
    for step in range(steps):
        f, g = (a, b) if step % 2 == 0 else (b, a)
        for y in prange(height):
            n = y - 1 if y > 0 else height - 1
            s = y + 1 if y < height - 1 else 0
            for x in range(width):
                w = x - 1 if x > 0 else width - 1
                e = x + 1 if x < width - 1 else 0
                f0, f1, f2, f3, f4 = f[0, y, x], f[1, y, w], f[2, n, x], f[3, y, e], f[4, s, x]
                f5, f6, f7, f8 = f[5, n, w], f[6, n, e], f[7, s, e], f[8, s, w]
                if solid[y, x]:
                    g[0, y, x], g[1, y, x], g[3, y, x], g[2, y, x], g[4, y, x] = f0, f3, f1, f4, f2
                    g[5, y, x], g[7, y, x], g[6, y, x], g[8, y, x] = f7, f5, f8, f6
                    continue
                rho = f0 + (f1 + f3) + (f2 + f4) + (f5 + f7) + (f6 + f8)
                ux = ((f1 - f3) + (f5 - f7) + (f8 - f6)) / rho + force
                uy = ((f2 - f4) + (f5 - f7) + (f6 - f8)) / rho
                rest = one - half3 * (ux * ux + uy * uy)
                p, q = omega * W1 * rho, omega * W5 * rho
                u, d = ux + uy, uy - ux
                g[0, y, x] = keep * f0 + omega * W0 * rho * rest
                g[1, y, x] = keep * f1 + p * (rest + ux * (three + half9 * ux))
                g[3, y, x] = keep * f3 + p * (rest - ux * (three - half9 * ux))
                g[2, y, x] = keep * f2 + p * (rest + uy * (three + half9 * uy))
                g[4, y, x] = keep * f4 + p * (rest - uy * (three - half9 * uy))
                g[5, y, x] = keep * f5 + q * (rest + u * (three + half9 * u))
                g[7, y, x] = keep * f7 + q * (rest - u * (three - half9 * u))
                g[6, y, x] = keep * f6 + q * (rest + d * (three + half9 * d))
                g[8, y, x] = keep * f8 + q * (rest - d * (three - half9 * d))


@njit(parallel=True)
def align(one, one_begin, other, other_begin, scores, open_gap, extend_gap, best):
    for pair in prange(len(best)):
        a, b = one[one_begin[pair] : one_begin[pair + 1]], other[other_begin[pair] : other_begin[pair + 1]]
        row, gaps = np.zeros(len(b), np.int32), np.zeros(len(b), np.int32)
        top = np.int32(0)
        for i in range(len(a)):
            diagonal, left, gap = np.int32(0), np.int32(0), np.int32(0)
            for j in range(len(b)):
                above = row[j]
                down = max(above - open_gap, gaps[j] - extend_gap)
                gap = max(left - open_gap, gap - extend_gap)
                left = max(max(diagonal + scores[a[i], b[j]], np.int32(0)), max(down, gap))
                top = max(top, left)
                gaps[j] = down
                row[j] = left
                diagonal = above
        best[pair] = top

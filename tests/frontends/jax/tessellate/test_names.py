"""Programs that import ``tessellate_ipu`` and ask JAX for an IPU run as they are."""

import subprocess
import sys
from textwrap import dedent

import pytest

from abele.jax import tessellate
from abele.jax.__main__ import main

PROGRAM = """
    import sys
    from functools import partial

    import jax
    import numpy as np
    from jax.core import Primitive, ShapedArray
    from tessellate_ipu import TileShardedArray, ipu_cycle_count, tile_map, tile_put_sharded
    from tessellate_ipu.core import IpuVertexIOType, vertex_utils
    from tessellate_ipu.core.tile_interpreter_primitives import make_ipu_vertex_inputs
    from tessellate_ipu.lax import add_inplace_p, tile_fill
    from tessellate_ipu.lib.pytessellate_ipu_core import IpuType, TileDataBarrierParams, TileGatherParams
    from tessellate_ipu.core.tile_array_primitives import tile_data_barrier_prim, tile_gather_prim
    from tessellate_ipu.core.tile_array_primitives import tile_put_sharded_prim
    from tessellate_ipu.core.tile_interpreter import get_ipu_tile_primitive_translation
    from tessellate_ipu.core.tile_interpreter_hw_primitives import ipu_cycle_count as same
    from tessellate_ipu.lax.tile_random import tile_random_uniform
    from tessellate_ipu.lib.pytessellate_ipu_core import Base64Data, TileConstantParams
    from tessellate_ipu.linalg import ipu_eigh
    from tessellate_ipu.linalg.tile_linalg_qr import ipu_qr_iterations, ipu_qr_shard_inputs
    from tessellate_ipu.utils import ArrayLike, DTypeLike, Shape
    from jax.interpreters.xla import DeviceArray
    from jax.lib import xla_bridge
    from jaxlib.ipu_xla_client import IpuTargetType
    import tessellate_ipu.utils

    (device,) = jax.devices("ipu")
    assert (device.platform, device.num_tiles) == ("ipu", 1472)
    assert jax.devices()[0].platform == "cpu"
    assert device.target_type is IpuTargetType.IPU_MODEL
    assert jax.device_count("ipu") == len(jax.local_devices(backend="ipu")) == 1
    jax.config.update("jax_ipu_use_model", True)
    with jax.default_device(device):
        assert isinstance(jax.device_put(np.ones(3), device), DeviceArray)
    assert jax.tree_map(lambda v: v + 1, [1]) == [2]
    tiles = (1, 2, 3)


    @partial(jax.jit, backend="ipu", static_argnums=(2,))
    def compute(a, b, twice):
        x, y = tile_put_sharded(a, tiles), tile_put_sharded(b, tiles)
        x, y, start = ipu_cycle_count(x, y)
        out = tile_map(jax.lax.add_p, x, y)
        out = tile_map(jax.lax.add_p, out, y) if twice else out
        out, end = ipu_cycle_count(out)
        return out, start, end


    a = np.arange(15, dtype=np.float32).reshape(3, 5)
    out, start, end = compute(a, a, True)
    assert isinstance(out, TileShardedArray)
    np.testing.assert_array_equal(np.asarray(out), 3 * a)
    assert (np.asarray(end)[:, 0] > np.asarray(start)[:, 0]).all()
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: tile_map(jax.lax.neg_p, x), backend="cpu")(out)), -3 * a)
    plain = jax.jit(lambda x: ipu_cycle_count(tile_map(jax.lax.neg_p, tile_put_sharded(x, tiles))))
    negative, count = plain(a)
    assert np.asarray(count)[:, 0].all()  # which is the machine's
    assert jax.jit(lambda x: jax.jit(lambda y: 2 * y)(x), static_argnames=())(a).sum() == 2 * a.sum()
    assert plain.lower(a)


    class Model:
        @partial(jax.jit, static_argnums=(0,))
        def double(self, x):
            return tile_map(jax.lax.add_p, *[tile_put_sharded(x, tiles)] * 2)


    np.testing.assert_array_equal(np.asarray(Model().double(a)), 2 * a)
    params = TileGatherParams([0, 1], [2, 3], [4, 5])
    assert TileGatherParams.from_json_str(params.to_json_str()) == params
    assert TileDataBarrierParams("vertex", [[0, 1], [7]]).max_tile == 7
    assert TileDataBarrierParams.from_json_str(TileDataBarrierParams("v", [[0]]).to_json_str()).inputs_tiles == [[0]]
    rows = tile_put_sharded_prim(a, tiles)
    np.testing.assert_array_equal(tile_gather_prim(rows, tiles, [2, 0], (1, 2)), a[[2, 0]])
    assert len(tile_data_barrier_prim([rows, rows], [tiles, tiles])) == 2
    aval = jax.ShapeDtypeStruct((3,), np.float32)
    held = TileConstantParams(aval, [0, 1], Base64Data.encode_array(np.ones(3, np.float32)))
    assert TileConstantParams.from_json_str(held.to_json_str()) == held
    print("done", *sys.argv[1:])
"""


SHORT = """
    import sys

    import jax
    import numpy as np
    from tessellate_ipu import tile_map, tile_put_sharded

    assert jax.devices("ipu")[0].num_tiles == 1472
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    negative = jax.jit(lambda x: tile_map(jax.lax.neg_p, tile_put_sharded(x, (1, 2))), backend="ipu")
    np.testing.assert_array_equal(np.asarray(negative(a)), -a)
    print("done", *sys.argv[1:])
"""


@pytest.mark.parametrize("text", [SHORT, pytest.param(PROGRAM, marks=pytest.mark.slow)], ids=["short", "long"])
def test_a_program_as_it_was_written(tmp_path, text):
    program = tmp_path / "program.py"
    program.write_text(dedent(text))
    command = [sys.executable, "-W", "error", "-m", "abele.jax", str(program), "with", "arguments"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done", "with", "arguments"]


def test_no_program(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["abele.jax"])
    with pytest.raises(SystemExit, match=r"program\.py"):
        main()


def test_public_names():
    for module in (tessellate, tessellate.core, tessellate.lax, tessellate.linalg):
        assert not [n for n in module.__all__ if not hasattr(module, n)] if hasattr(module, "__all__") else True
    assert callable(tessellate.lax.exp_inplace_p.bind)
    assert tessellate.linalg.ipu_eigh.__doc__

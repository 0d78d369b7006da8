"""Records of vertices: fields, attributes, JSON; and shares of workers."""

import numpy as np
import pytest
from jax.core import ShapedArray

from abele.errors import TypeMismatchError
from abele.jax.tessellate.core import (
    Base64Data,
    IpuTensorSlice,
    IpuTileMapEquation,
    IpuType,
    IpuVertexAttributeF32,
    IpuVertexAttributeI32,
    IpuVertexIOInfo,
    IpuVertexIOType,
    make_ipu_vertex_attributes,
    make_ipu_vertex_constant_info,
    make_ipu_vertex_in_info,
    make_ipu_vertex_inout_info,
    make_ipu_vertex_inputs,
    make_ipu_vertex_name_templated,
    make_ipu_vertex_out_info,
    make_ipu_vertex_outputs,
    vertex_utils,
)

AVAL = ShapedArray((3, 4, 5), np.dtype(np.float32))


def test_types():
    assert IpuType.of(np.float16) is IpuType.HALF
    assert IpuType.of(AVAL) is IpuType.FLOAT
    assert [t.bytes for t in (IpuType.BOOL, IpuType.HALF, IpuType.UNSIGNED_INT)] == [1, 2, 4]
    with pytest.raises(TypeMismatchError):
        IpuType.of(np.complex64)


def test_fields():
    info = make_ipu_vertex_in_info("x", AVAL)
    assert (info.name, info.iotype, info.shape, info.dtype) == ("x", IpuVertexIOType.In, (3, 4, 5), IpuType.FLOAT)
    assert (info.rank, info.vertex_dim2, info.size, info.is_constant_input) == (1, 0, 60, False)
    assert make_ipu_vertex_out_info("y", AVAL).iotype is IpuVertexIOType.Out
    assert make_ipu_vertex_inout_info("y", AVAL).iotype is IpuVertexIOType.InOut
    rows = make_ipu_vertex_in_info("x", AVAL, vertex_dim2=5)
    assert (rows.rank, rows.vertex_dim2) == (2, 5)
    assert make_ipu_vertex_in_info("x", AVAL, rank=2).vertex_dim2 == 5
    cut = make_ipu_vertex_in_info("x", AVAL, slices2d=[IpuTensorSlice(0, 3), IpuTensorSlice(3, 60)])
    assert (cut.rank, [s.size for s in cut.slices2d]) == (2, [3, 57])
    known = make_ipu_vertex_constant_info("c", np.arange(6, dtype=np.int32).reshape(2, 3))
    assert known.is_constant_input
    np.testing.assert_array_equal(known.constant, [[0, 1, 2], [3, 4, 5]])


def test_fields_by_name():
    found = make_ipu_vertex_inputs({"a": AVAL, "b": AVAL}, {"b"})
    assert [(i.name, i.iotype.name) for i in found] == [("a", "In"), ("b", "InOut")]
    found = make_ipu_vertex_outputs({"b": AVAL, "c": AVAL}, {"b"})
    assert [(i.name, i.iotype.name) for i in found] == [("b", "InOut"), ("c", "Out")]


def test_records_as_those_of_the_binding():
    """Lists stand for vectors, text for bytes, and fields are set."""
    info = IpuVertexIOInfo("x", IpuVertexIOType.In, [1, 2], IpuType.FLOAT)
    assert (info.shape, info.slices2d) == ([1, 2], [])
    assert info.shape == (1, 2)
    info.name = "y"
    call = IpuTileMapEquation(vname="V", pname="v", tiles=[3, 4])
    assert (call.tiles, call.inputs_info, call.use_tmp_space) == ([3, 4], [], False)
    call.inputs_info, call.sync = [info], True
    assert IpuTileMapEquation.from_json_str(call.to_json_str()) == call
    scratch = IpuTileMapEquation(vname="V", tiles=[3], tmp_space_name="tmp", tmp_space_aval=AVAL)
    assert scratch.tmp_space_aval.shape == [3, 4, 5]
    assert Base64Data.from_decoded_data("abc").decoded_data == "abc"
    assert make_ipu_vertex_name_templated("V") == "V"


def test_attributes():
    whole, numbers = make_ipu_vertex_attributes(a=2, b=3.5, c=True, d=np.float32(1))
    assert whole == [IpuVertexAttributeI32("a", 2), IpuVertexAttributeI32("c", 1)]
    assert numbers == [IpuVertexAttributeF32("b", 3.5), IpuVertexAttributeF32("d", 1.0)]
    with pytest.raises(TypeError, match="attribute a"):
        make_ipu_vertex_attributes(a="2")


def test_names_of_instances():
    assert make_ipu_vertex_name_templated("V", np.float32, np.float16, AVAL, 3, True) == "V<float,half,float,3,true>"


def test_json_reads_back():
    rows = make_ipu_vertex_in_info("x", AVAL, slices2d=IpuTensorSlice.make_tensor2d_slices(3, 20))
    constant = make_ipu_vertex_constant_info("c", np.arange(3, dtype=np.float16))
    call = IpuTileMapEquation(
        vname="V",
        pname="v",
        tiles=(1, 2),
        inputs_info=[rows, constant],
        outputs_info=[make_ipu_vertex_out_info("y", AVAL)],
        attributes_i32=[IpuVertexAttributeI32("n", 3)],
        attributes_f32=[IpuVertexAttributeF32("f", 0.5)],
        gp_filename="v.cpp",
        perf_estimate=10,
        tmp_space_name="tmp",
        tmp_space_aval=AVAL,
    )
    assert call.use_tmp_space
    for record in (call, rows, constant, Base64Data.from_decoded_data(b"abc"), IpuTensorSlice(1, 2)):
        assert type(record).from_json_str(record.to_json_str()) == record
    assert Base64Data.from_decoded_data(b"abc").decoded_data == b"abc"
    assert Base64Data().is_empty
    assert IpuVertexIOInfo("x", 1, [2], IpuType.INT).iotype is IpuVertexIOType.Out


def test_shares_of_workers():
    assert vertex_utils.make_num_elements_per_worker(8, 6).tolist() == [2, 2, 1, 1, 1, 1]
    assert vertex_utils.make_num_elements_per_worker(3, 6).sum() == 3
    for size, vector in [(2, 2), (12, 2), (20, 2), (64, 4), (8, 4), (100, 2)]:
        offsets = vertex_utils.make_ipu_vector1d_worker_offsets(size, vector)
        assert (offsets.dtype, offsets.shape, offsets[0], offsets[-1]) == (np.uint16, (7,), 0, size // vector)
        assert (np.diff(offsets.astype(int)) >= 0).all()
        pairs = vertex_utils.make_ipu_vector1d_worker_offsets_and_sizes(size, vector)
        assert pairs[:, 1].sum() * vector == size
    with pytest.raises(ValueError, match="vectors of 4"):
        vertex_utils.make_ipu_vector1d_worker_offsets(6, 4)
    assert vertex_utils.make_ipu_vector1d_worker_offsets(6, 4, allow_overlap=True)[-1] == 2

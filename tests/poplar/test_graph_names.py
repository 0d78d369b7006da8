"""Poplar's names of a graph: what they build, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from abele import Graph, poplar
from abele.compiler.cost import vertex_costs
from abele.poplar import FLOAT, INT, UNSIGNED_INT, CodeletFileType, Interval

HERE = __file__


@poplar.codelet
class Sum(poplar.Vertex):
    x: poplar.Vector[poplar.Input[poplar.Vector[FLOAT]]]
    z: poplar.Output[FLOAT]

    def compute(self):
        total = 0.0
        for r in range(len(self.x)):
            for i in range(len(self.x[r])):
                total += self.x[r][i]
        self.z = total


@poplar.codelet
class Scale(poplar.Vertex):
    x: poplar.Input[poplar.Vector[FLOAT]]
    y: poplar.Output[poplar.Vector[FLOAT]]
    factor: FLOAT
    history: poplar.Vector[INT]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.factor * self.x[i]


def graph(**fields: int) -> Graph:
    model = poplar.IPUModel()
    model.tilesPerIPU = 8
    for name, value in fields.items():
        setattr(model, name, value)
    return poplar.Graph(model.createDevice().getTarget())


# --- variables and mapping ------------------------------------------------------------------------------------------


def test_add_variable__linear_mapping_and_name__places_every_element() -> None:
    g = graph()
    x = g.addVariable(FLOAT, [4, 100], poplar.VariableMappingMethod.LINEAR, "x")
    y = g.addVariable(FLOAT, [4, 100], "y")
    assert x.mapping.is_complete
    assert not y.mapping.is_complete
    assert (x.name, y.name) == ("x", "y")


@pytest.mark.parametrize(
    ("context", "name"),
    [
        ("x", "x"),
        (poplar.DebugContext("x"), "x"),
        (poplar.DebugContext(poplar.DebugNameAndId("layer"), "x"), "layer/x"),
        ([poplar.DebugNameAndId("x", 7, "net/layer")], "net/layer/x"),
        (poplar.DebugContext(poplar.DebugInfo(poplar.DebugContext("conv"), "poplin"), "w"), "conv/w"),
    ],
)
def test_debug_context__wherever_a_name_is__gives_the_path(context: object, name: str) -> None:
    g = graph()
    assert g.addVariable(FLOAT, [1], context).name == name
    assert g.addConstant(FLOAT, [1], 1.0, context).name == name
    assert g.addComputeSet(context).name == name
    assert poplar.program.Sequence(context).debug.name == name


def test_add_constant__flat_values__fill_the_shape() -> None:
    g = graph()
    c = g.addConstant(FLOAT, [2, 3], [1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(c.variables[0].initial, [[1, 2, 3], [4, 5, 6]])
    half = g.addConstantHalf(poplar.HALF, [1], [0x3C00])
    assert half.variables[0].initial.item() == 1.0
    assert g.isConstant(c)


def test_set_initial_value__of_a_tensor__from_numbers_and_from_bits() -> None:
    g = graph()
    x = g.addVariable(poplar.HALF, [2, 2], "x")
    g.setInitialValue(x, [1, 2, 3, 4])
    np.testing.assert_array_equal(x.variables[0].initial, [[1, 2], [3, 4]])
    g.setInitialValueHalf(x, [0x3C00, 0x4000, 0xBC00, 0])
    np.testing.assert_array_equal(x.variables[0].initial, [[1, 2], [-1, 0]])


def test_tile_mapping__set_by_intervals__comes_back_as_intervals() -> None:
    g = graph()
    x = g.addVariable(FLOAT, [10])
    mapping = [[Interval(0, 3)], [Interval(3, 4), Interval(6, 10)], [Interval(4, 6)], *[[] for _ in range(5)]]
    g.setTileMapping(x, mapping)
    assert g.getTileMapping(x) == mapping
    assert [i.size for i in g.getTileMapping(x)[1]] == [1, 4]


def test_interval__poplars_calls_and_our_attributes__agree() -> None:
    interval = Interval(2, 7)
    assert (interval.begin(), interval.end(), interval.size()) == (2, 7, 5)
    assert (interval.begin, interval.end, interval.size) == (2, 7, 5)
    assert Interval(0, 9) < interval


def test_reorder_to_simplify__reversed_view__becomes_one_region_and_others_follow() -> None:
    g = graph()
    x, y = g.addVariable(FLOAT, [6], "x"), g.addVariable(FLOAT, [6], "y")
    view = poplar.concat([x[4:6], x[0:2], x[2:4]])
    simple, (other,) = g.reorderToSimplify(view, [y])
    assert len(simple.getContiguousRegions()) == 1
    order = view.addresses() - x.addresses()[0]
    np.testing.assert_array_equal(y.addresses()[np.argsort(order)], other.addresses())


def test_get_target_and_replicas__of_a_replicated_graph__are_those_of_one_replica() -> None:
    device = poplar.DeviceManager().getDevices(poplar.TargetType.IPU, 4)[0]
    g = poplar.Graph(device, poplar.replication_factor(2))
    assert (g.getReplicationFactor(), g.getTarget().getNumIPUs()) == (2, 2)
    assert g.addReplicationIndexConstant().dtype == UNSIGNED_INT
    with pytest.raises(poplar.graph_replication_error, match="cannot be replicated 2 times after it was made"):
        g.createReplicatedGraph(2)


def test_clone__poplars_forms_and_ours__keep_shape_and_mapping() -> None:
    g = graph()
    x = g.addVariable(FLOAT, [4, 100], poplar.VariableMappingMethod.LINEAR, "x")
    method = poplar.TensorCloneMethod.CREATE_NEW_ORDER
    clones = [
        g.clone(x),
        g.clone(x, "copy"),
        g.clone(x, poplar.DebugContext("layer", "copy"), method),
        g.clone(poplar.HALF, x, "half", method),
        g.clone(x, poplar.HALF, "half"),
        x.clone(poplar.HALF, "half"),
    ]
    assert all(c.shape == x.shape and g.getTileMapping(c) == g.getTileMapping(x) for c in clones)
    assert [c.name for c in clones] == ["x/clone", "copy", "layer/copy", "half", "half", "half"]
    assert [c.dtype.toString() for c in clones] == ["float"] * 3 + ["half"] * 3


def test_sorted_contiguous_regions__of_a_turned_view__are_in_memory_order() -> None:
    g = graph()
    x = g.addVariable(FLOAT, [4], "x")
    view = poplar.concat([x[2:4], x[0:2]])
    assert g.getSortedContiguousRegions(view, [Interval(0, 4)]) == [[(2, 4), (0, 2)]]
    twice = poplar.concat([x[0:2], x[0:2]])
    assert g.getSortedContiguousRegions(twice, [Interval(0, 4)], True) == [[(0, 2)]]


def test_create_virtual_graph__each_form__numbers_its_tiles_from_0() -> None:
    g = graph(numIPUs=2)
    part, listed, narrow = g.createVirtualGraph(4, 8), g.createVirtualGraph([9, 2]), g.createVirtualGraph(3)
    assert [v.getTarget().getNumTiles() for v in (part, listed, narrow)] == [4, 2, 6]
    assert part.getTopLevelGraph() is g is g.getTopLevelGraph()
    x = part.addVariable(FLOAT, [400], poplar.VariableMappingMethod.LINEAR, "x")
    assert set(g.mapping_of(x).tile.tolist()) == {4, 5, 6, 7}
    assert [len(tile) for tile in part.getTileMapping(x)] == [1, 1, 1, 1]
    part.addCodelets(Scale)
    v = listed.addVertex(part.addComputeSet("cs"), "Scale", {"x": x, "y": listed.addVariable(FLOAT, [400], "y")})
    listed.setTileMapping(v, 0)
    assert v.tile == 9


def test_serialize__graph__is_refused_with_a_reason() -> None:
    with pytest.raises(poplar.poplar_error, match=r"a graph is not serialised\n  because  its codelets are"):
        graph().serialize()


# --- codelets and vertices ------------------------------------------------------------------------------------------


def test_add_vertex__by_name__ignores_spaces_in_it() -> None:
    g = graph()
    g.addCodelets({"Scale< float,  unsigned int >": Scale})
    g.addCodelets(Sum)
    assert g.hasCodelet("Scale<float,unsigned int>")
    assert not g.hasCodelet("Scale<half>")
    cs = g.addComputeSet("cs")
    assert g.addVertex(cs, "Scale<float, unsigned int>").codelet is Scale.codelet
    assert g.addVertex(cs, "Sum").id() == 1
    assert g.getComputeSet(0) is cs


def test_add_vertex__unknown_name__names_the_nearest_and_the_variants() -> None:
    g = graph()
    cs = g.addComputeSet("cs")
    with pytest.raises(poplar.unknown_vertex_type, match=r"unknown vertex type 'Sum'[\s\S]*knows no codelets"):
        g.addVertex(cs, "Sum")
    g.addCodelets([Sum, Scale])
    with pytest.raises(
        poplar.unknown_vertex_type, match=r"unknown vertex type 'Summ'[\s\S]*did you mean 'Sum'\?"
    ) as info:
        g.addVertex(cs, "Summ")
    assert info.value.at is not None
    assert info.value.at.startswith(HERE)
    g.addCodelets({"Scale<float>": Scale})
    with pytest.raises(poplar.unknown_vertex_type, match=r"try      there is Scale, Scale<float>"):
        g.addVertex(cs, "Scale<half>")


def test_add_codelets__same_name_twice__is_an_error_unless_it_is_the_same_codelet() -> None:
    g = graph()
    g.addCodelets(Sum)
    g.addCodelets(Sum)
    with pytest.raises(poplar.symbol_error, match=r"two codelets are called 'Sum'[\s\S]*the first is at"):
        g.addCodelets({"Sum": Scale})


def test_add_codelets__module_without_codelets_or_object_file__is_refused() -> None:
    import math

    with pytest.raises(poplar.file_load_error, match="module math holds no codelets"):
        graph().addCodelets(math)
    with pytest.raises(poplar.graph_object_load_error, match="the IPU's own instructions"):
        graph().addCodelets("codelets.gp", CodeletFileType.Object)


def test_connect__pieces_after_set_field_size__are_the_rows_of_the_field() -> None:
    g = graph()
    x, z = g.addVariable(FLOAT, [3, 4], "x"), g.addVariable(FLOAT, [], "z")
    v = g.addVertex(g.addComputeSet("cs"), Sum, {"z": z})
    g.setFieldSize(v["x"], 3)
    for i in (2, 0, 1):
        g.connect(v["x"][i], x[i].slice(0, i + 1))
    g.setTileMapping(v, 3)
    (group,) = v.compute_set.groups
    assert group.tile.tolist() == [3]
    assert group.edges["x"].row_sizes.tolist() == [1, 2, 3]


def test_connect__piece_without_size_outside_twice_or_missing__is_refused() -> None:
    g = graph()
    x, z = g.addVariable(FLOAT, [3, 4], "x"), g.addVariable(FLOAT, [], "z")
    v = g.addVertex(g.addComputeSet("cs"), Sum, {"z": z})
    with pytest.raises(poplar.no_size_specified, match=r"field Sum\.x has no size[\s\S]*setFieldSize"):
        g.connect(v["x"][0], x[0])
    g.setFieldSize(v["x"], 2)
    with pytest.raises(poplar.no_size_specified, match=r"has 2 pieces, there is no piece 2[\s\S]*test_graph_names.py"):
        g.connect(v["x"][2], x[2])
    g.connect(v["x"][1], x[1])
    with pytest.raises(
        poplar.graph_connection_error, match=r"field Sum\.x\[1\] is connected twice[\s\S]*first connected"
    ):
        g.connect(v["x"][1], x[0])
    g.setTileMapping(v, 0)
    with pytest.raises(poplar.graph_connection_error, match=r"field Sum\.x\[0\] is not connected"):
        _ = v.compute_set.groups


def test_connect__field_twice__names_both_lines() -> None:
    g = graph()
    z = g.addVariable(FLOAT, [], "z")
    v = g.addVertex(g.addComputeSet("cs"), Sum)
    g.connect(z, v["z"])
    with pytest.raises(poplar.graph_connection_error, match=r"field Sum\.z is connected twice") as info:
        g.connect(v["z"], z)
    lines = [int(text.rsplit(":", 1)[1]) for text in (str(info.value.because), str(info.value.at))]
    assert lines[1] == lines[0] + 2


def test_field_reference__unknown_field__names_the_nearest() -> None:
    g = graph()
    v = g.addVertex(g.addComputeSet("cs"), Scale)
    with pytest.raises(poplar.unknown_field, match=r"vertex Scale has no field 'factr'[\s\S]*did you mean 'factor'\?"):
        g.setInitialValue(v["factr"], 2.0)


def test_connect__number__becomes_a_constant_on_the_vertexs_tile() -> None:
    g = graph()
    y = g.addVariable(FLOAT, [2], "y")
    v = g.addVertex(g.addComputeSet("cs"), Scale)
    g.setTileMapping(v, 5)
    g.connect(v["x"], [1.5, 2.5])
    constant = v.values["x"]
    assert constant.containsConstant()
    assert constant.mapping.tile.tolist() == [5]
    assert y.rank() == 1


def test_set_field_size__of_vector_state__starts_as_zeros_until_set() -> None:
    g = graph()
    x, y = g.addVariable(FLOAT, [2], "x"), g.addVariable(FLOAT, [2], "y")
    v = g.addVertex(g.addComputeSet("cs"), Scale, {"x": x, "y": y, "factor": 2.0})
    g.setFieldSize(v["history"], 4)
    g.setTileMapping(v, 0)
    assert v.compute_set.groups[0].state["history"].values.tolist() == [0, 0, 0, 0]
    g.setInitialValue(v["history"], [1, 2])
    assert v.compute_set.groups[0].state["history"].values.tolist() == [1, 2]


def two_scales(g: Graph) -> list[poplar.VertexRef]:
    cs = g.addComputeSet("cs")
    made = []
    for n in (3, 5):
        x, y = g.addVariable(FLOAT, [n], "x"), g.addVariable(FLOAT, [n], "y")
        v = g.addVertex(cs, Scale, {"x": x, "y": y, "factor": 2.0, "history": [1, 2, 3]})
        g.setTileMapping(v, 0)
        made.append(v)
    return made


def test_perf_estimator__of_a_codelet__is_asked_for_every_vertex() -> None:
    g = graph()
    first, second = two_scales(g)

    def estimator(v: poplar.VertexIntrospector, target: poplar.Target) -> int:
        width = target.getVectorWidth(FLOAT)
        history = v.getFieldInfo("history")
        assert history.getInitialValues() == [1, 2, 3]
        return 10 * v.getFieldInfo("x").size() + width + int(v.getFieldInfo("factor").getInitialValue())

    g.registerPerfEstimator("Scale", estimator)
    assert vertex_costs(first.compute_set.groups[0], g.system.ipu).amount.tolist() == [34, 54]
    with pytest.raises(poplar.unknown_field, match="vertex Scale has no field 'xs'"):
        g.createVertexIntrospector(second).getFieldInfo("xs")


def test_perf_estimate__of_one_vertex__overrides_only_that_one() -> None:
    g = graph()
    first, second = two_scales(g)
    g.setPerfEstimate(first, 123, 7)
    assert (g.getPerfEstimate(first), g.getPerfEstimate(second)) == (123, None)
    groups = first.compute_set.groups
    assert sorted(str(group.cycles) for group in groups) == ["None", "[123]"]
    g.setCycleEstimate(second, 5)
    assert second.compute_set.groups[0].cycles.tolist() == [123, 5]


def test_vertex_introspector__rows__tell_their_sizes() -> None:
    g = graph()
    x, z = g.addVariable(FLOAT, [3, 4], "x"), g.addVariable(FLOAT, [], "z")
    v = g.addVertex(g.addComputeSet("cs"), Sum, {"x": [x[0], x[1, :2]], "z": z})
    g.setTileMapping(v, 0)
    info = g.createVertexIntrospector(v).getFieldInfo("x")
    assert (info.size(), info.getSize(0), info.getSize(1)) == (2, 4, 2)
    assert g.createVertexIntrospector(v).getFieldInfo("z").size() == 1


def test_field_limits__by_type_and_rank__are_told() -> None:
    g = graph()
    g.addCodelets([Scale, Sum])
    assert g.getMaxVertexFieldValue("Scale", "history") == 2**31 - 1
    assert g.getMaxFieldDim("Scale", "x", 0) == 2**32 - 1
    with pytest.raises(poplar.overflow_error, match="has 1 dimension, no 1"):
        g.getMaxFieldDim("Scale", "x", 1)


def test_field_limits__of_a_short_span__are_its_eleven_bits() -> None:
    @poplar.codelet
    class Short(poplar.Vertex):
        x: poplar.Output[poplar.Vector[FLOAT, poplar.VectorLayout.SHORT_SPAN]]

        def compute(self):
            self.x[0] = 1.0

    g = graph()
    g.addCodelets(Short)
    assert g.getMaxFieldDim("Short", "x") == 2047
    long = g.addVariable(FLOAT, [2048], "long")
    g.setTileMapping(long, 0)
    v = g.addVertex(g.addComputeSet("cs"), "Short", {"x": long})
    g.setTileMapping(v, 0)
    with pytest.raises(poplar.overflow_error, match=r"field Short\.x has 2,048 elements"):
        poplar.Engine(g, poplar.program.Execute(v.compute_set))


def test_output_graphs__of_a_program__are_graphviz_text() -> None:
    import io

    g = graph()
    first, _ = two_scales(g)
    other = g.addVariable(FLOAT, [3], 'a "quoted" name')
    source = first.values["y"]
    prog = poplar.program.Sequence([poplar.program.Execute(first.compute_set), poplar.program.Copy(source, other)])
    coarse, fine = io.StringIO(), io.StringIO()
    g.outputComputeGraph(coarse, [prog])
    g.outputVertexGraph(fine, [prog])
    assert coarse.getvalue().splitlines() == [
        "digraph {",
        '  var0 [shape=box, label="x\\nfloat 3"];',
        '  var2 [shape=box, label="x\\nfloat 5"];',
        '  var1 [shape=box, label="y\\nfloat 3"];',
        '  var3 [shape=box, label="y\\nfloat 5"];',
        '  var4 [shape=box, label="a \\"quoted\\" name\\nfloat 3"];',
        '  cs0 [shape=ellipse, label="cs"];',
        "  var0 -> cs0;",
        "  var2 -> cs0;",
        "  cs0 -> var1;",
        "  cs0 -> var3;",
        "  var1 -> var4 [style=dashed];",
        "}",
    ]
    assert 's0g0v1 [label="Scale\\ntile 0", shape=box];' in fine.getvalue()
    assert '  v2 -> s0g0v1 [label="x"];' in fine.getvalue()
    assert '  s0g0v0 -> v1 [label="y"];' in fine.getvalue()


# --- ends towards the host ------------------------------------------------------------------------------------------


def test_streams__with_modes_and_options__are_as_asked() -> None:
    g = graph()
    a = g.addHostToDeviceFIFO("a", FLOAT, 4, poplar.ReplicatedStreamMode.BROADCAST, {"bufferingDepth": 3})
    b = g.addHostToDeviceFIFO("b", FLOAT, 4, {"bufferingDepth": "2", "splitLimit": 1024})
    c = g.addDeviceToHostFIFO("c", FLOAT, 4, poplar.OptionFlags({"optimiseMemory": True}))
    assert (a.replicated, a.buffering_depth, b.replicated, b.buffering_depth) == (False, 3, True, 2)
    assert (c.direction, c.buffering_depth) == ("out", 1)


def test_streams__wrong_option__names_the_nearest() -> None:
    with pytest.raises(poplar.invalid_option, match=r"has no option 'bufferDepth'; did you mean 'bufferingD"):
        graph().addHostToDeviceFIFO("a", FLOAT, 4, {"bufferDepth": 3})
    with pytest.raises(poplar.invalid_option, match="'bufferingDepth' takes a whole number from 1 on, got 'three'"):
        graph().addHostToDeviceFIFO("a", FLOAT, 4, {"bufferingDepth": "three"})


def test_streams__beyond_the_largest_buffer__are_refused() -> None:
    with pytest.raises(poplar.stream_memory_allocation_error, match="the largest has 134,217,728 B"):
        graph().addHostToDeviceFIFO("a", FLOAT, 2**26)


def test_host_handles__one_name_for_both_ways__belong_to_one_tensor() -> None:
    g = graph()
    x, y = g.addVariable(FLOAT, [2], "x"), g.addVariable(FLOAT, [2], "y")
    g.createHostWrite("h", x)
    g.createHostRead("h", x)
    handle = g.host_handles["h"]
    assert (handle.readable, handle.writable) == (True, True)
    with pytest.raises(poplar.tensor_io_state_error, match="a host handle 'h' exists already"):
        g.createHostRead("h", y)
    with pytest.raises(poplar.tensor_io_state_error, match="the host cannot write"):
        g.createHostWrite("c", g.addConstant(FLOAT, [1], 1.0))


def test_remote_buffers_and_host_functions__by_poplars_arguments__are_made() -> None:
    g = graph()
    buffer = g.addRemoteBuffer("rb", FLOAT, 16, 3)
    function = g.addHostFunction("f", [(FLOAT, 4)], [(INT, 1)])
    assert (buffer.num_elements, buffer.repeats) == (16, 3)
    assert (function.inputs[0].size, function.outputs[0].dtype) == (4, INT)


# --- options --------------------------------------------------------------------------------------------------------


def test_option_flags__values_of_any_kind__are_text() -> None:
    flags = poplar.OptionFlags({"a": True, "b": 3}, c="x").set("d", 0.5)
    assert dict(flags) == {"a": "true", "b": "3", "c": "x", "d": "0.5"}
    assert flags.at("b") == "3"
    poplar.readJSON('{"e": false}', flags)
    assert flags["e"] == "false"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: poplar.OptionFlags(a=[1]), "option 'a' is"),
        (lambda: poplar.OptionFlags(abc=1).at("abd"), "option 'abd' is not set"),
        (lambda: poplar.readJSON("{", poplar.OptionFlags()), "options are no JSON"),
        (lambda: poplar.readJSON("[1]", poplar.OptionFlags()), "not an object"),
    ],
)
def test_option_flags__wrong_values__are_refused(wrong: object, text: str) -> None:
    assert callable(wrong)
    with pytest.raises(poplar.invalid_option, match=text):
        wrong()

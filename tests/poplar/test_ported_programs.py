"""Whole programs as they are ported from C++: Poplar's and PopLibs' names, orders of arguments and habits throughout.

Each is written as the C++ would be, braces become brackets; what it computes is checked against NumPy.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from abele import gcl, poplar, poplin, popnn, popops, poprand, poputil
from abele.poplar import (
    BOOL,
    FLOAT,
    HALF,
    INT,
    UNSIGNED_INT,
    DebugContext,
    Device,
    Engine,
    Graph,
    Input,
    Interval,
    IPUModel,
    OptionFlags,
    Output,
    ReplicatedStreamMode,
    Tensor,
    Vector,
    Vertex,
    program,
)
from abele.poplar.program import Copy, Execute, If, PrintTensor, Program, Repeat, RepeatWhileTrue, Sequence, WriteUndef

pe, lstm = popops.expr, popnn.lstm
RNG = np.random.default_rng(42)


def model(tiles: int = 64, ipus: int = 1) -> Device:
    ipuModel = IPUModel("ipu2")
    ipuModel.numIPUs = ipus
    ipuModel.tilesPerIPU = tiles
    ipuModel.relativeSyncDelay = IPUModel.RelativeSyncDelayType.AUTO
    return ipuModel.createDevice(OptionFlags({}), accurateHalf=False)


def numbers(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def test_variables_and_copies__first_tutorial__gives_numpys_numbers() -> None:
    device = model()
    graph = Graph(device.getTarget())
    v1 = graph.addVariable(FLOAT, [4], "v1")
    v2 = graph.addVariable(FLOAT, [4], {"v2"})
    for i in range(4):
        graph.setTileMapping(v1[i], i)
    poputil.mapTensorLinearly(graph, v2)
    c1 = graph.addConstant(FLOAT, [4], [1.0, 1.5, 2.0, 2.5], "c1")
    graph.setTileMapping(c1, 0)

    prog = Sequence()
    prog.add(Copy(c1, v1))
    prog.add(PrintTensor("v1-debug", v1))
    prog.add(Copy(v1, v2))
    graph.createHostWrite("v3-write", v3 := graph.addVariable(FLOAT, [4, 4], "v3"))
    graph.createHostRead("v3-read", v3)
    graph.setTileMapping(v3, 0)
    v1slice, v3slice = v1.slice(0, 3), v3.slice([1, 1], [2, 4])
    prog.add(Copy(v3slice, v1slice))
    inStream = graph.addHostToDeviceFIFO("v2-input-stream", FLOAT, v2.numElements())
    outStream = graph.addDeviceToHostFIFO("v1-output-stream", FLOAT, v1.numElements())
    prog.add(Copy(inStream, v2))
    prog.add(Copy(v1, outStream))

    engine = Engine(graph, prog, OptionFlags({"debug.retainDebugInformation": "true"}))
    engine.load(device)
    h3 = np.zeros((4, 4), np.float32)
    engine.writeTensor("v3-write", h3)
    given, taken = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    engine.connectStream(inStream.handle(), given)
    engine.connectStream("v1-output-stream", taken)
    engine.setPrintTensorStream(printed := io.StringIO())
    engine.run(0)
    assert taken.tolist() == [0.0, 0.0, 0.0, 2.5]
    assert "v1-debug" in printed.getvalue()
    assert inStream.numElements() == outStream.numElements() == 4


def test_matrix_product_and_element_wise__second_tutorial__gives_numpys_numbers() -> None:
    device = model()
    graph = Graph(device.getTarget())
    popops.addCodelets(graph)
    poplin.addCodelets(graph)
    v1 = graph.addVariable(FLOAT, [2, 2], "v1")
    v2 = graph.addVariable(FLOAT, [2, 2], "v2")
    for i in range(2):
        for j in range(2):
            graph.setTileMapping(v1[i][j], i * 2 + j)
            graph.setTileMapping(v2[i][j], i * 2 + j)
    prog = Sequence()
    c1 = graph.addConstant(FLOAT, [4], [1.0, 1.5, 2.0, 2.5])
    graph.setTileMapping(c1, 0)
    prog.add(Copy(c1, v1.flatten()))
    prog.add(Copy(c1, v2.flatten()))
    v3 = popops.add(graph, v1, v2, prog, "Add")
    v4 = popops.add(graph, v3, v2, prog, "Add")
    v5 = popops.add(graph, v1, v2.transpose(), prog, DebugContext("Add"))
    v6 = poplin.matMul(graph, v4, v5, prog, {"MatMul"}, {"partialsType": "float"}, poplin.matmul.PlanningCache())
    graph.createHostRead("v6", v6)
    engine = Engine(graph, prog)
    engine.load(device)
    engine.run(0)
    a = np.array([[1.0, 1.5], [2.0, 2.5]])
    np.testing.assert_allclose(engine.readTensor("v6"), (3 * a) @ (a + a.T), rtol=1e-6)


@poplar.codelet
class SumVertex(Vertex):
    in_: Input[Vector[FLOAT]]
    out: Output[FLOAT]

    def compute(self):
        sum = 0.0
        for i in range(len(self.in_)):
            sum += self.in_[i]
        self.out = sum


def test_custom_vertices_with_cycle_counts__third_tutorial__gives_numpys_numbers() -> None:
    device = model()
    graph = Graph(device.getTarget())
    graph.addCodelets(SumVertex)
    v1 = graph.addVariable(FLOAT, [4], "v1")
    v2 = graph.addVariable(FLOAT, [4], "v2")
    for i in range(4):
        graph.setTileMapping(v1[i], i)
        graph.setTileMapping(v2[i], i)
    computeSet = graph.addComputeSet("computeSet")
    for i in range(4):
        vtx = graph.addVertex(computeSet, "SumVertex")
        graph.connect(vtx["in_"], v1.slice(i, 4))
        graph.connect(vtx["out"], v2[i])
        graph.setTileMapping(vtx, i)
        graph.setPerfEstimate(vtx, 20)
    c1 = graph.addConstant(FLOAT, [4], [1, 2, 3, 4], "c1")
    graph.setTileMapping(c1, 0)
    prog = Sequence([Copy(c1, v1), Execute(computeSet)])
    cycles = poplar.cycleCount(graph, prog, 0, poplar.SyncType.INTERNAL, "cycles")
    graph.createHostRead("v2", v2)
    graph.createHostRead("cycles", cycles)
    engine = Engine(graph, prog, {"debug.instrument": "true"})
    engine.load(device)
    engine.run(0)
    np.testing.assert_array_equal(engine.readTensor("v2"), [10, 9, 7, 4])
    low, high = engine.readTensor("cycles")
    assert (low > 20, high) == (True, 0)
    engine.printProfileSummary(text := io.StringIO(), {"showExecutionSteps": "true"})
    assert "computeSet" in text.getvalue()


def test_profiled_sums_on_two_ipus__fourth_tutorial__gives_numpys_numbers() -> None:
    device = model(32, ipus=2)
    graph = Graph(device.getTarget())
    popops.addCodelets(graph)
    c1 = graph.addConstant(FLOAT, [600], np.arange(600, dtype=np.float32), "c1")
    v1 = graph.addVariable(FLOAT, [600], "v1")
    for t, intervals in enumerate(graph.getTileMapping(poputil.mapTensorLinearly(graph, v1))):
        for interval in intervals:
            assert interval.size() == interval.end() - interval.begin()
            graph.setTileMapping(c1.slice(interval, 0), t)
    prog = Sequence()
    prog.add(Copy(c1, v1))
    v2 = popops.reduce(graph, v1, FLOAT, [0], popops.ReduceParams(popops.Operation.ADD), prog, "total")
    other = poputil.copyToIpu(graph, v2, prog, 1, "moved")
    v3 = popops.mul(graph, other, 2.0, prog)
    graph.createHostRead("v3", v3)
    engine = Engine(graph, prog)
    engine.load(device)
    engine.run()
    assert float(np.asarray(engine.readTensor("v3")).reshape(())) == 2 * 599 * 300


@poplar.codelet
class DotProductVertex(Vertex):
    a: Input[Vector[FLOAT]]
    b: Input[Vector[FLOAT]]
    out: Output[FLOAT]

    def compute(self):
        sum = 0.0
        for i in range(len(self.a)):
            sum += self.a[i] * self.b[i]
        self.out = sum


def buildMultiplyProgram(graph: Graph, matrix: Tensor, in_: Tensor, out: Tensor) -> Program:
    mulCS = graph.addComputeSet("mulCS")
    numRows = matrix.dim(0)
    numTiles = graph.getTarget().getNumTiles()
    rowsPerTile = (numRows + numTiles - 1) // numTiles
    for row in range(numRows):
        v = graph.addVertex(mulCS, "DotProductVertex", {"a": matrix[row], "b": in_, "out": out[row]})
        tile = row // rowsPerTile
        graph.setTileMapping(v, tile)
        graph.setTileMapping(matrix[row], tile)
        graph.setTileMapping(out[row], tile)
    return Execute(mulCS)


def test_matrix_vector_product_over_tiles__sixth_tutorial__gives_numpys_numbers() -> None:
    numRows, numCols = 100, 60
    device = model()
    graph = Graph(device.getTarget())
    graph.addCodelets(DotProductVertex)
    matrix = graph.addVariable(FLOAT, [numRows, numCols], "matrix")
    inputVector = graph.addVariable(FLOAT, [numCols], poplar.VariableMappingMethod.LINEAR, "inputVector")
    outputVector = graph.addVariable(FLOAT, [numRows], "outputVector")
    mulProg = buildMultiplyProgram(graph, matrix, inputVector, outputVector)
    inStreamV = graph.addHostToDeviceFIFO("inputVector", FLOAT, numCols)
    inStreamM = graph.addHostToDeviceFIFO("inputMatrix", FLOAT, numCols * numRows)
    outStream = graph.addDeviceToHostFIFO("out", FLOAT, numRows)
    prog = Sequence([Copy(inStreamV, inputVector), Copy(inStreamM, matrix), mulProg, Copy(outputVector, outStream)])
    engine = Engine(graph, prog)
    engine.load(device)
    hMatrix, hInput, hOut = numbers(numRows, numCols), numbers(numCols), np.zeros(numRows, np.float32)
    engine.connectStream("inputVector", hInput)
    engine.connectStream("inputMatrix", hMatrix)
    engine.connectStream("out", hOut)
    engine.run(0)
    np.testing.assert_allclose(hOut, hMatrix @ hInput, rtol=1e-5, atol=1e-5)


def test_matrix_vector_product_with_reduce__in_columns__gives_numpys_numbers() -> None:
    m, n = 48, 96
    device = model()
    graph = Graph(device)
    popops.addCodelets(graph)
    A = graph.addVariable(HALF, [m, n], "A")
    x = graph.addVariable(HALF, [n], "x")
    poputil.mapTensorLinearlyWithOffset(graph, A, 16, 4, 8)
    poputil.mapTensorLinearly(graph, x)
    prog = Sequence()
    products = popops.map(graph, pe.Mul(pe.Cast(pe._1, FLOAT), pe.Cast(pe._2, FLOAT)), [A, x.expand([0])], prog, "p")
    css: list[Any] = []
    y = popops.reduce(graph, products, FLOAT, [1], popops.ReduceParams(popops.Operation.ADD), css, "sum")
    largest = popops.reduce(graph, products, [0, 1], popops.ReduceParams(popops.Operation.MAX), css, {"max"})
    for cs in css:
        prog.add(Execute(cs))
    out = graph.clone(y, "out")
    prog.add(Copy(y, out))
    popops.reduceWithOutput(graph, products, out, [1], popops.ReduceParams(popops.Operation.ADD, True), prog, "again")
    for name, tensor in (("A", A), ("x", x)):
        graph.createHostWrite(name, tensor)
    for name, tensor in (("y", y), ("largest", largest), ("out", out)):
        graph.createHostRead(name, tensor)
    engine = Engine(graph, prog)
    engine.load(device)
    hA, hx = numbers(m, n).astype(np.float16), numbers(n).astype(np.float16)
    engine.writeTensor("A", hA)
    engine.writeTensor("x", hx)
    engine.run(0)
    wanted = hA.astype(np.float64) * hx.astype(np.float64)
    np.testing.assert_allclose(engine.readTensor("y"), wanted.sum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(engine.readTensor("out"), 2 * wanted.sum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.asarray(engine.readTensor("largest")).reshape(()), wanted.max(), rtol=1e-5)


def test_replicated_graph__with_all_reduce__sums_over_replicas() -> None:
    replicas = 4
    device = model(16, ipus=replicas)
    graph = Graph(device.getTarget(), poplar.replication_factor(replicas))
    popops.addCodelets(graph)
    gcl.addCodelets(graph)
    data = graph.addVariable(FLOAT, [32], poplar.VariableMappingMethod.LINEAR, "data")
    index = graph.addReplicationIndexConstant("index")
    graph.setTileMapping(index, 0)
    own = graph.addHostToDeviceFIFO("own", FLOAT, 32, ReplicatedStreamMode.REPLICATE)
    all_ = graph.addHostToDeviceFIFO("all", FLOAT, 32, ReplicatedStreamMode.BROADCAST)
    assert all_.replicatedMode() is ReplicatedStreamMode.BROADCAST
    shared = graph.clone(data, "shared")
    prog = Sequence([Copy(own, data), Copy(all_, shared)])
    popops.addInPlace(graph, data, shared, prog, "bias")
    popops.addInPlace(graph, data, popops.cast(graph, index, FLOAT, prog, "index"), prog, "index")
    summed = gcl.allReduceCrossReplica(graph, data, gcl.CollectiveOperator.ADD, prog, "allReduce", {})
    within = gcl.CommGroup(gcl.CommGroupType.CONSECUTIVE, 2)
    pairs = gcl.allReduceCrossReplica(graph, data, gcl.CollectiveOperator.MAX, prog, within, "pairs", OptionFlags({}))
    graph.createHostRead("summed", summed)
    graph.createHostRead("pairs", pairs)
    engine = Engine(graph, prog)
    engine.load(device)
    hOwn, hAll = numbers(replicas, 32), numbers(32)
    engine.connectStream("own", hOwn)
    engine.connectStream("all", hAll)
    engine.run(0)
    each = hOwn + hAll + np.arange(replicas)[:, None]
    got = np.asarray(engine.readTensor("summed")).reshape(replicas, 32)
    np.testing.assert_allclose(got, np.broadcast_to(each.sum(0), (replicas, 32)), rtol=1e-5, atol=1e-5)
    largest = np.repeat(each.reshape(2, 2, 32).max(1), 2, axis=0)
    np.testing.assert_allclose(np.asarray(engine.readTensor("pairs")).reshape(replicas, 32), largest, rtol=1e-5)


def test_remote_buffers__with_offsets_in_a_loop__hold_rows() -> None:
    device = model()
    graph = Graph(device.getTarget())
    popops.addCodelets(graph)
    row = graph.addVariable(FLOAT, [16], poplar.VariableMappingMethod.LINEAR, "row")
    rb = graph.addRemoteBuffer("rows", FLOAT, row.numElements(), 5, True, True)
    assert (rb.handle(), rb.numElements(), rb.getRepeats(), rb.elementType()) == ("rows", 16, 5, FLOAT)
    if not device.supportsRemoteBuffers():
        pytest.fail("the device has remote buffers")

    def body(i: Tensor) -> Program:
        inner = Sequence()
        offset = i.reshape([1])
        inner.add(Copy(rb, row, offset, "load"))
        popops.mulInPlace(graph, row, 3.0, inner, "triple")
        inner.add(Copy(row, rb, offset, "store"))
        return inner

    prog = popops.countedLoop(graph, rb.getRepeats(), body, "overRows")
    engine = Engine(graph, prog)
    engine.load(device)
    rows = numbers(5, 16)
    for i in range(5):
        engine.copyToRemoteBuffer(rows[i], rb.handle(), i)
    engine.run(0)
    got = np.empty(16, np.float32)
    for i in range(5):
        engine.copyFromRemoteBuffer("rows", got, i)
        np.testing.assert_allclose(got, 3 * rows[i], rtol=1e-6)


def test_perceptron_training_step__with_a_planning_cache__equals_numpy() -> None:
    batch, inputs, hidden, classes = 8, 12, 16, 5
    device = model()
    graph = Graph(device.getTarget())
    for library in (popops, poplin, popnn):
        library.addCodelets(graph)
    cache = poplin.PlanningCache()
    fwd = {"fullyConnectedPass": "TRAINING_FWD", "partialsType": "float"}
    bwd, wu = {"fullyConnectedPass": "TRAINING_BWD"}, {"fullyConnectedPass": "TRAINING_WU"}
    X = poplin.createMatMulInputLHS(graph, FLOAT, FLOAT, [batch, inputs], [inputs, hidden], "X", fwd, cache)
    W1 = poplin.createMatMulInputRHS(graph, FLOAT, [batch, inputs], [inputs, hidden], "W1", fwd, cache)
    W2 = poplin.createMatMulInputRHS(graph, FLOAT, [batch, hidden], [hidden, classes], "W2", fwd, cache)
    labels = graph.addVariable(UNSIGNED_INT, [batch], "labels")
    lr = graph.addConstant(FLOAT, [], -0.1, "lr")
    graph.setTileMapping(labels, 0)
    graph.setTileMapping(lr, 0)

    prog = Sequence()
    H = poplin.matMul(graph, X, W1, prog, FLOAT, "fc1/fwd", fwd, cache)
    popnn.nonLinearityInPlace(graph, popnn.NonLinearityType.RELU, H, prog, "relu")
    Z = poplin.matMul(graph, H, W2, prog, "fc2/fwd", fwd, cache)
    popnn.nonLinearityInPlace(graph, popnn.NonLinearityType.SOFTMAX, Z, prog, {"softmax"})
    loss = graph.addVariable(FLOAT, [batch], poplar.VariableMappingMethod.LINEAR, "loss")
    deltas = graph.clone(Z, "deltas")
    numCorrect = graph.addVariable(UNSIGNED_INT, [], "numCorrect")
    graph.setTileMapping(numCorrect, 0)
    prog.add(popnn.calcLoss(graph, Z, labels, loss, deltas, numCorrect, popnn.LossType.CROSS_ENTROPY_LOSS, "loss"))
    dH = poplin.matMul(graph, deltas, W2.transpose(), prog, FLOAT, "fc2/bwd", bwd, cache)
    poplin.matMulAcc(graph, W2, lr, H.transpose(), deltas, prog, "fc2/wu", wu, cache)
    dH = popnn.nonLinearityInputGradient(graph, popnn.NonLinearityType.RELU, H, dH, prog, "relu/bwd")
    poplin.matMulAcc(graph, W1, -0.1, X.transpose(), dH, prog, "fc1/wu", wu, cache)
    for name, tensor in (("X", X), ("W1", W1), ("W2", W2), ("labels", labels)):
        graph.createHostWrite(name, tensor)
        graph.createHostRead(name, tensor)
    graph.createHostRead("loss", loss)
    graph.createHostRead("numCorrect", numCorrect)

    engine = Engine(graph, [prog, Sequence()])
    engine.load(device)
    x, w1, w2 = numbers(batch, inputs), numbers(inputs, hidden), numbers(hidden, classes)
    y = RNG.integers(0, classes, batch).astype(np.uint32)
    for name, value in (("X", x), ("W1", w1), ("W2", w2), ("labels", y)):
        engine.writeTensor(name, value)
    engine.run(0)

    h = np.maximum(x.astype(np.float64) @ w1, 0)
    z = h @ w2
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    d = p - np.eye(classes)[y]
    dh = (d @ w2.T) * (h > 0)
    np.testing.assert_allclose(engine.readTensor("W2"), w2 - 0.1 * h.T @ d, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(engine.readTensor("W1"), w1 - 0.1 * x.T @ dh, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(engine.readTensor("loss"), -np.log(p[np.arange(batch), y]), rtol=1e-4, atol=1e-4)
    assert int(np.asarray(engine.readTensor("numCorrect")).reshape(())) == int((z.argmax(1) == y).sum())


def test_map_expressions__in_classes_and_operators__equal_numpy() -> None:
    device = model(16)
    graph = Graph(device.getTarget())
    popops.addCodelets(graph)
    a, b, c = (graph.addVariable(FLOAT, [5, 7], poplar.VariableMappingMethod.LINEAR, n) for n in "abc")
    prog = Sequence()
    axpy = popops.map(graph, pe.Add(pe.Mul(pe._1, pe.Const(0.5)), pe._2), [a, b], prog, {"axpy"})
    swish = popops.map(graph, pe._1 * pe.Sigmoid(pe._1), [a], prog, "swish", {"enableGenerateCodelet": "false"})
    norm = popops.map(graph, pe.Sqrt(pe.Square(pe._1) + pe.Square(pe._2) + pe.Square(pe._3)), [a, b, c], prog, "norm")
    chosen = popops.map(graph, pe.Select(pe._1, pe.Neg(pe._2), pe.Gt(pe._1, pe.Const(0.0))), [a, b], prog, "select")
    half = popops.map(graph, pe.Cast(pe.Add(pe.Cast(pe._1, HALF), pe.ConstHalf(1.0)), FLOAT), [a], prog, "half")
    popops.mapInPlace(graph, pe.Clamp(pe._1, pe.Const(-0.5), pe.Const(0.5)), [c], prog, "clamp")
    ge = popops.map(graph, pe.BinaryOpType.GREATER_THAN_EQUAL, a, b, prog, "ge")
    two = popops.map(graph, [pe.Any(pe.Max(pe._1, pe._2)), pe.Any(pe.Min(pe._1, pe._2))], [a, b], prog, "both")
    results = {"axpy": axpy, "swish": swish, "norm": norm, "chosen": chosen, "half": half, "c": c, "ge": ge}
    results |= {"max": two[0], "min": two[1]}
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        graph.createHostWrite(name, tensor)
    for name, tensor in results.items():
        graph.createHostRead(name + "-out", tensor)
    assert ge.elementType() == BOOL
    engine = Engine(graph, prog)
    engine.load(device)
    h = {name: numbers(5, 7) for name in "abc"}
    for name, value in h.items():
        engine.writeTensor(name, value)
    engine.run(0)
    ha, hb, hc = h["a"], h["b"], h["c"]
    wanted = {
        "axpy": 0.5 * ha + hb,
        "swish": ha / (1 + np.exp(-ha)),
        "norm": np.sqrt(ha**2 + hb**2 + hc**2),
        "chosen": np.where(ha > 0, ha, -hb),
        "half": (ha.astype(np.float16) + np.float16(1)).astype(np.float32),
        "c": np.clip(hc, -0.5, 0.5),
        "ge": ha >= hb,
        "max": np.maximum(ha, hb),
        "min": np.minimum(ha, hb),
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(engine.readTensor(name + "-out"), value, rtol=2e-3, atol=2e-3, err_msg=name)


def test_embedding__looked_up_and_updated__equals_numpy() -> None:
    entries, width, lookups = 50, 8, 12
    device = model()
    graph = Graph(device.getTarget())
    popops.addCodelets(graph)
    options = OptionFlags({"usedForUpdate": "true", "availableMemoryProportion": "0.6"})
    plan = popops.embedding.plan(graph, FLOAT, entries, width, lookups, options)
    table = popops.createSliceableTensor(graph, FLOAT, [entries, width], [0], [1], plan, options, "table")
    indices = popops.createIndicesTensor(graph, [0], lookups, plan, options, "indices")
    prog = Sequence()
    rows = popops.multiSlice(graph, table, indices, [0], [1], prog, plan, options, "lookup")
    grads = popops.createSliceTensor(graph, table, [0], [1], lookups, plan, options, "grads")
    scale = graph.addConstant(FLOAT, [], -0.5, "scale")
    graph.setTileMapping(scale, 0)
    popops.multiUpdateAdd(graph, table, grads, indices, scale, [0], [1], prog, plan, options, "update")
    for name, tensor in (("table", table), ("indices", indices), ("grads", grads)):
        graph.createHostWrite(name, tensor)
    graph.createHostRead("rows", rows)
    graph.createHostRead("table-out", table)
    engine = Engine(graph, prog)
    engine.load(device)
    hTable, hGrads = numbers(entries, width), numbers(lookups, 1, width)
    hIndices = RNG.integers(0, entries, lookups).astype(np.uint32)
    engine.writeTensor("table", hTable)
    engine.writeTensor("grads", hGrads)
    engine.writeTensor("indices", hIndices.reshape(lookups, 1))
    engine.run(0)
    np.testing.assert_allclose(np.asarray(engine.readTensor("rows")).reshape(lookups, width), hTable[hIndices])
    np.add.at(hTable, hIndices, -0.5 * hGrads[:, 0])
    np.testing.assert_allclose(engine.readTensor("table-out"), hTable, rtol=1e-5, atol=1e-5)


def test_control_flow__loops_branches_and_switches__counts_as_numpy_does() -> None:
    device = model(4)
    graph = Graph(device.getTarget())
    popops.addCodelets(graph)
    count = graph.addVariable(INT, [], "count")
    total = graph.addVariable(FLOAT, [3], "total")
    limit = graph.addConstant(INT, [], 10, "limit")
    for t in (count, total, limit):
        graph.setTileMapping(t, 0)
    prog = Sequence()
    popops.zero(graph, total, prog, "zero")
    popops.fill(graph, count, prog, 0, "fill")
    cond, body, odd, even = Sequence(), Sequence(), Sequence(), Sequence()
    goesOn = popops.lt(graph, count, limit, cond, "less")
    isOdd = popops.eq(graph, popops.rem(graph, count, 2, body, "rem"), 1, body, "odd")
    popops.addInPlace(graph, total[0], 1.0, odd)
    popops.addInPlace(graph, total[1], 10.0, even)
    body.add(If(isOdd, odd, even, "branch"))
    popops.addInPlace(graph, count, 1, body, "next")
    prog.add(RepeatWhileTrue(cond, goesOn, body, "while"))
    once = Sequence()
    popops.addInPlace(graph, total[2], 1.0, once)
    prog.add(Repeat(7, once, "seven"))
    prog.add(program.Switch.switchWithBoundsChecking(count, [(10, once), (11, Sequence())]))
    prog.add(program.Call(graph.addFunction(once), "called"))
    prog.add(program.Sync(poplar.SyncType.INTERNAL))
    prog.add(WriteUndef(count, "dead"))
    graph.createHostRead("total", total)
    engine = Engine(graph, [prog])
    engine.load(device)
    engine.run(0, "counting")
    np.testing.assert_array_equal(engine.readTensor("total"), [5, 50, 9])


def test_convolution_layer__with_pooling_norm_and_bias__equals_pytorch() -> None:
    torch = pytest.importorskip("torch")
    device = model()
    graph = Graph(device.getTarget())
    cache = poplin.PlanningCache()
    params = poplin.ConvParams(FLOAT, 2, [10, 10], [3, 3], 4, 8, 1)
    params.inputTransform.paddingLower = [1, 1]
    params.inputTransform.paddingUpper = [1, 1]
    acts = poplin.createInput(graph, params, "acts", {}, cache)
    weights = poplin.createWeights(graph, params, "weights", {}, cache)
    prog = Sequence()
    out = poplin.convolution(graph, acts, weights, params, False, prog, "conv", {"partialsType": "float"}, cache)
    biases = poplin.createBiases(graph, out, "biases")
    poplin.addBias(graph, out, biases, prog, "addBias", {})
    mean, invStdDev = popnn.bn.batchNormStatistics(graph, out, 1e-3, prog, False, True, FLOAT, "stats")
    gamma, beta = popnn.bn.createBatchNormParams(graph, out, "bn")
    normed, _ = popnn.bn.batchNormalise(graph, out, gamma, beta, mean, invStdDev, prog, "norm")
    popnn.nonLinearityInPlace(graph, popnn.NonLinearityType.RELU, normed, prog, "relu")
    pool = popnn.pooling.PoolParams(popnn.PoolingType.MAX, [10, 10], [2, 2], [2, 2], [0, 0], [0, 0], 8, 2, FLOAT)
    pooled = popnn.pooling.pool(graph, pool, normed, prog, "pool", {})
    given = {"acts": acts, "weights": weights, "biases": biases, "gamma": gamma, "beta": beta}
    for name, tensor in given.items():
        graph.createHostWrite(name, tensor)
    graph.createHostRead("pooled", pooled)
    engine = Engine(graph, prog)
    engine.load(device)
    h = {name: numbers(*tensor.shape()) for name, tensor in given.items()}
    for name, value in h.items():
        engine.writeTensor(name, value)
    engine.run(0)
    t = {name: torch.tensor(value) for name, value in h.items()}
    y = torch.nn.functional.conv2d(t["acts"], t["weights"][0], t["biases"], padding=1)
    y = torch.nn.functional.batch_norm(y, None, None, t["gamma"], t["beta"], training=True, eps=1e-3)
    y = torch.nn.functional.max_pool2d(torch.relu(y), 2)
    np.testing.assert_allclose(engine.readTensor("pooled"), y.numpy(), rtol=1e-3, atol=1e-3)


def test_recurrent_layer_and_dropout__by_poplibs_calls__run() -> None:
    device = model(16)
    graph = Graph(device.getTarget())
    poprand.addCodelets(graph)
    prog = Sequence()
    params = lstm.LstmParams(FLOAT, 2, 5, [4, 8], popnn.NonLinearityType.TANH, popnn.NonLinearityType.SIGMOID)
    options = OptionFlags({"inferenceOnly": "true"})
    sequence = lstm.createInput(graph, params, "input", options)
    state = lstm.createInitialState(graph, params, "state", options)
    weights = lstm.createWeights(graph, params, "weights", options)
    popops.zero(graph, state.output, prog, "zero")
    popops.zero(graph, state.cell_state, prog, "zero")
    result = lstm.lstmFwd(graph, params, state, sequence, weights, None, prog, "fwd", options, poplin.PlanningCache())
    seed = graph.addVariable(UNSIGNED_INT, [2], "seed")
    graph.setTileMapping(seed, 0)
    graph.setInitialValue(seed, [1, 2])
    kept = poprand.dropout(graph, seed, 7, result.output, result.output, 0.5, 2.0, prog, "dropout")
    noise = poprand.uniform(graph, seed, 3, result.output, FLOAT, -1.0, 1.0, prog, "noise")
    for name, tensor in (("out", result.output), ("kept", kept), ("noise", noise)):
        graph.createHostRead(name, tensor)
    for name, tensor in (("x", sequence), ("wi", weights.input), ("wo", weights.output), ("b", weights.biases)):
        graph.createHostWrite(name, tensor)
    engine = Engine(graph, prog)
    engine.load(device)
    h = {"x": numbers(5, 2, 4), "wi": numbers(4, 4, 8), "wo": numbers(4, 8, 8), "b": numbers(4, 8)}
    for name, value in h.items():
        engine.writeTensor(name, value)
    engine.run(0)
    out, cell = np.zeros((2, 8)), np.zeros((2, 8))
    for t in range(5):
        f, i, c, o = h["x"][t] @ h["wi"] + out @ h["wo"] + h["b"][:, None]
        f, i, o = (1 / (1 + np.exp(-g)) for g in (f, i, o))
        cell = f * cell + i * np.tanh(c)
        out = o * np.tanh(cell)
    got = np.asarray(engine.readTensor("out"))
    np.testing.assert_allclose(got[-1], out, rtol=1e-3, atol=1e-3)
    dropped = np.asarray(engine.readTensor("kept"))
    assert np.isclose(dropped, 0).any()
    np.testing.assert_allclose(dropped[dropped != 0], 2 * got[dropped != 0], rtol=1e-5)
    drawn = np.asarray(engine.readTensor("noise"))
    assert (np.abs(drawn) <= 1).all()
    assert drawn.std() > 0.2


def test_intervals__of_regions_between_workers__cover_a_tile() -> None:
    device = model(4)
    graph = Graph(device.getTarget())
    x = graph.addVariable(HALF, [1000], poplar.VariableMappingMethod.LINEAR, "x")
    target, seen = graph.getTarget(), 0
    for regions in graph.getTileMapping(x):
        for worker in poputil.splitRegionsBetweenWorkers(target, regions, target.getVectorWidth(HALF), 8):
            seen += sum(interval.size() for interval in worker)
            assert all(isinstance(interval, Interval) for interval in worker)
    assert seen == x.numElements()

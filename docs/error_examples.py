"""An example of each kind of error, and what to do about it: what the page of errors is made of."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True)
class Example:
    """A way into an error, and the way out.

    Attributes:
        code: A program that ends in the error; None for a kind of which only sub-kinds are raised, or that needs what
            a page cannot show.
        advice: Advice for the reader, in Markdown.
    """

    code: str | None
    advice: str


def _code(text: str) -> str:
    return dedent(text).strip()


EXAMPLES: dict[str, Example] = {
    "AbeleError": Example(
        None,
        "Catch it to catch all of the kinds below. `str(error)` has the message and the lines `at`, `because` and "
        "`try`; "
        "the attributes `message`, `at`, `because` and `remedy` have them one by one.",
    ),
    "MachineError": Example(
        _code(
            """
            import abele as ab

            ab.systems.get("bow2000")
            """
        ),
        "`abele systems` lists the presets; [machines](machine.md) says how to describe one of your own.",
    ),
    "InvalidOptionError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            ab.Engine(graph, ab.WriteUndef(x), mode="fast")
            """
        ),
        "The message names the option and what it takes. Poplar's engine options are listed in [the "
        "engine](engine.md).",
    ),
    "MissingPackageError": Example(
        None,
        "Install the extra that the error names, such as `pip install 'abele[plot]'`.",
    ),
    "PackingError": Example(
        _code(
            """
            from abele.packing import pack

            pack([120, 80, 33], 128, depth=0)
            """
        ),
        "The message names what cannot be: no items, a capacity or depth below 1, items other than those that were "
        "planned for, packs that do not make whole steps. [Packing](packing.md) says what each call takes.",
    ),
    "ItemSizeError": Example(
        _code(
            """
            from abele.packing import pack

            pack([120, 80, 140], 128)
            """
        ),
        'Items have at least one token. Sequences over the capacity are refused unless `too_long="split"` says that '
        "they may be cut into pieces.",
    ),
    "TensorError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (6, 4), name="x").map(0)
            x.reshape(5, 5)
            """
        ),
        "Compare the shapes in the message. Views follow NumPy's rules.",
    ),
    "TensorIndexError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (6, 4), name="x").map(0)
            x[6]
            """
        ),
        "It is an `IndexError` too, so that loops over a tensor's rows end as they do in NumPy.",
    ),
    "TensorCreationError": Example(
        _code(
            """
            import abele as ab

            ab.Graph("bow").variable(ab.f32, (-1, 4), name="x")
            """
        ),
        "Give a shape of numbers from 0 on, and initial values that fit it.",
    ),
    "ElementRangeError": Example(
        None,
        "The machine computes in 32 bits at most: an int64 of PyTorch that is larger cannot go there. Scale or split "
        "the values, or compute them on the host.",
    ),
    "TypeMismatchError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            half = graph.variable(ab.f16, (4,), name="half").map(0)
            single = graph.variable(ab.f32, (4,), name="single").map(0)
            ab.concat([half, single])
            """
        ),
        "Convert with `popops.cast` on the device, or with `array.astype` on the host.",
    ),
    "TileMappingError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x")
            y = graph.variable(ab.f32, (4,), name="y").map(0)
            ab.compile_program(graph, ab.Copy(y, x))
            """
        ),
        "Every element needs a tile: `x.map(0)`, `x.map_linear()`, or `Graph(…, auto_map=True)`.",
    ),
    "GraphConnectionError": Example(
        _code(
            """
            import abele as ab
            from abele import Input, Output, Vector, f32


            @ab.codelet
            class Scale(ab.Vertex):
                x: Input[Vector[f32]]
                y: Output[Vector[f32]]

                def compute(self):
                    for i in range(len(self.y)):
                        self.y[i] = 2.0 * self.x[i]


            graph = ab.Graph("bow")
            x = graph.variable(f32, (4,), name="x").map(0)
            step = graph.compute_set("step")
            step.vertex(Scale, tile=0, x=x)
            ab.compile_program(graph, ab.Execute(step))
            """
        ),
        "Connect every field that the codelet declares, to something of its rank and element type.",
    ),
    "UnknownFieldError": Example(
        _code(
            """
            import abele as ab
            from abele import InOut, Vector, f32


            @ab.codelet
            class Double(ab.Vertex):
                values: InOut[Vector[f32]]

                def compute(self):
                    for i in range(len(self.values)):
                        self.values[i] *= 2.0


            graph = ab.Graph("bow")
            vertex = graph.compute_set("step").vertex(Double, tile=0)
            vertex["vales"] = graph.variable(f32, (4,), name="x").map(0)
            """
        ),
        "",
    ),
    "UnknownVertexTypeError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            graph.addVertex(graph.addComputeSet("step"), "Adder")
            """
        ),
        'Load the codelet first: `graph.addCodelets("file.cpp")`, or decorate the class with `@ab.codelet` and give '
        "the "
        "class.",
    ),
    "FieldOverflowError": Example(
        _code(
            """
            import abele as ab
            from abele import Output, f32, u8


            @ab.codelet
            class Fill(ab.Vertex):
                y: Output[f32]
                value: u8

                def compute(self):
                    self.y = self.value


            graph = ab.Graph("bow")
            y = graph.variable(f32, (1,), name="y").map(0)
            graph.compute_set("step").vertices(Fill, tile=[0], y=y, value=300)
            """
        ),
        "Declare the state with more bits, or the vector with another layout.",
    ),
    "MemoryElementError": Example(
        _code(
            """
            import abele as ab
            from abele import Input, Output, Vector, f32


            @ab.codelet
            class Copied(ab.Vertex):
                constraints = "elem(*a) != elem(*c)"
                a: Input[Vector[f32]]
                b: Output[Vector[f32]]

                def compute(self):
                    for i in range(len(self.b)):
                        self.b[i] = self.a[i]
            """
        ),
        "A constraint names two edges of the codelet. Where constraints cannot be met, lay the operands out as "
        "different "
        "variables, or smaller ones.",
    ),
    "DataRaceError": Example(
        _code(
            """
            import abele as ab
            from abele import Output, Vector, f32


            @ab.codelet
            class Zero(ab.Vertex):
                y: Output[Vector[f32]]

                def compute(self):
                    for i in range(len(self.y)):
                        self.y[i] = 0.0


            graph = ab.Graph("bow")
            y = graph.variable(f32, (6,), name="y").map(0)
            step = graph.compute_set("step")
            step.vertex(Zero, tile=0, y=y[:4])
            step.vertex(Zero, tile=0, y=y[3:])
            ab.compile_program(graph, ab.Execute(step))
            """
        ),
        "Vertices of one compute set run at the same time. Give each its own elements, or put one into a compute "
        "set that "
        "runs later.",
    ),
    "TensorAccessError": Example(
        _code(
            """
            import numpy as np

            import abele as ab

            graph = ab.Graph("bow")
            x = graph.addVariable(ab.f32, (4,), name="x")
            x.map(0)
            engine = ab.Engine(graph, ab.WriteUndef(x))
            engine.writeTensor("weights", np.zeros(4, np.float32))
            """
        ),
        'Before compiling, `graph.createHostWrite("weights", x)` and `createHostRead` name what the host may reach. '
        "`engine[x]` needs no names.",
    ),
    "ConstantWriteError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            one = graph.constant(ab.f32, (4,), 1.0, name="one").map(0)
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            ab.compile_program(graph, ab.Copy(x, one))
            """
        ),
        "Copy a constant or a broadcast view into a variable, and write that.",
    ),
    "CodeletError": Example(
        _code(
            """
            import abele as ab
            from abele import Output, Vector, f32


            @ab.codelet
            class Words(ab.Vertex):
                y: Output[Vector[f32]]

                def compute(self):
                    words = {"one": 1.0}
                    self.y[0] = words["one"]


            graph = ab.Graph("bow")
            y = graph.variable(f32, (1,), name="y").map(0)
            step = graph.compute_set("step")
            step.vertex(Words, tile=0, y=y)
            ab.Engine(graph, ab.Execute(step)).run()
            """
        ),
        "`at` is the line. [Codelets](codelets.md) says what the vertex language has.",
    ),
    "VectorSizeError": Example(
        _code(
            """
            import abele as ab
            from abele import Input, Output, Vector, f32


            @ab.codelet
            class Sums(ab.Vertex):
                rows: Vector[Input[Vector[f32]]]
                total: Output[f32]

                def compute(self):
                    self.total = self.rows[0][0]


            graph = ab.Graph("bow")
            x = graph.variable(f32, (2, 4), name="x").map(0)
            vertex = graph.compute_set("step").vertex(Sums, tile=0)
            graph.connect(vertex["rows"][0], x[0])
            """
        ),
        'Set the size first: `graph.setFieldSize(vertex["rows"], 2)`, or connect a list of tensors at once.',
    ),
    "CodeletParseError": Example(
        _code(
            """
            from pathlib import Path

            import abele as ab

            Path("broken.cpp").write_text(
                "#include <poplar/Vertex.hpp>\\n"
                "struct Broken : poplar::Vertex { poplar::Output<float> y; void compute() { *y = 1.0f } };\\n"
            )
            ab.Graph("bow").addCodelets("broken.cpp")
            """
        ),
        "`at` and `because` are what clang said. [C++ codelets](cpp_codelets.md) says what is there to be included.",
    ),
    "CodeletLoadError": Example(
        _code(
            """
            import abele as ab

            ab.Graph("bow").addCodelets("no_such_file.cpp")
            """
        ),
        "",
    ),
    "CodeletLinkError": Example(
        None,
        "A C++ codelet calls a function that is declared and nowhere defined, or one that only the hardware has. "
        "Define it in "
        "the same file, or write it in portable C++.",
    ),
    "SymbolError": Example(
        _code(
            """
            import abele as ab
            from abele import InOut, f32


            @ab.codelet
            class Step(ab.Vertex):
                x: InOut[f32]

                def compute(self):
                    self.x += 1.0


            first = Step


            @ab.codelet
            class Step(ab.Vertex):
                x: InOut[f32]

                def compute(self):
                    self.x -= 1.0


            graph = ab.Graph("bow")
            graph.codelets.add(first)
            graph.codelets.add(Step)
            """
        ),
        "Give the codelets of one graph different names.",
    ),
    "MissingPerfEstimateError": Example(
        None,
        "The cost of a codelet depends on data, and it cannot be counted as it runs. Give it a `cycles` function, or "
        "register one with `graph.register_perf_estimator`.",
    ),
    "CodeletAccessError": Example(
        _code(
            """
            import abele as ab
            from abele import InOut, Vector, f32


            @ab.codelet
            class Shift(ab.Vertex):
                x: InOut[Vector[f32]]

                def compute(self):
                    for i in range(len(self.x)):
                        self.x[i] = self.x[i + 1]


            graph = ab.Graph("bow")
            x = graph.variable(f32, (4,), name="x", initial=0.0).map(0)
            step = graph.compute_set("step")
            step.vertex(Shift, tile=0, x=x)
            ab.Engine(graph, ab.Execute(step), checks="bounds").run()
            """
        ),
        'It needs `checks="bounds"` or `debug=True` to be found.',
    ),
    "ControlProgramError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            y = graph.variable(ab.f32, (5,), name="y").map(0)
            ab.Copy(x, y)
            """
        ),
        "Source and destination of a copy agree in shape and type; a predicate is one element; a count is from 0 on.",
    ),
    "GraphRecursionError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            body = ab.Sequence()
            again = graph.function(body, "again")
            body.add(ab.Call(again))
            ab.compile_program(graph, ab.Call(again))
            """
        ),
        "Use `Repeat` or `RepeatWhileTrue`: the machine has no call stack for control programs.",
    ),
    "GraphReplicationError": Example(
        _code(
            """
            import abele as ab

            ab.Graph("bow-2000", replicas=3)
            """
        ),
        "The number of replicas divides the number of IPUs.",
    ),
    "FittingError": Example(
        _code(
            """
            from abele.fitting import FitSpace, Model, fit_network
            from abele.machine import systems
            from abele.network import NetworkBuilder
            from abele.network.ops import build

            def model(batch):
                net = NetworkBuilder()
                x, weight = net.input((batch, 64), "f32", "x"), net.parameter((64, 64), "f32", "w")
                net.output(build.linear(net, x, weight))
                return Model(net.finish(), None)

            fit_network(model, FitSpace(system=systems.get("bow-2000"), batch=6, micro_batches=(4,)))
            """
        ),
        "Micro-batches times replicas divide the batch.",
    ),
    "RemoteBufferError": Example(
        _code(
            """
            import numpy as np

            import abele as ab

            graph = ab.Graph("bow-2000")
            rows = graph.addRemoteBuffer("rows", ab.f32, 4, 8)
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            engine = ab.Engine(graph, ab.Copy(rows, x))
            engine.copyToRemoteBuffer(np.zeros(4, np.float32), "rows", 8)
            """
        ),
        "Rows are numbered from 0; the message says how many there are.",
    ),
    "StreamMemoryError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            graph.addHostToDeviceFIFO("images", ab.f32, 1 << 30)
            """
        ),
        "Stream in several copies, or use a system with more streaming memory.",
    ),
    "StreamConnectionError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            stream = graph.host_stream_in("images", ab.f32, (4,))
            ab.Engine(graph, ab.Copy(stream, x)).run()
            """
        ),
        'Connect every stream that a program uses before it runs: `engine.connect("images", array)`.',
    ),
    "UnsupportedOpError": Example(
        None,
        "A PyTorch operation has no lowering or no derivative here. The message names it and the line of the model; "
        "express it "
        "by others, or move it out of the model. [What is not there yet](status.md) lists what is known to be "
        "missing.",
    ),
    "UnknownPrimitiveError": Example(
        None,
        "`tile_map` calls vertices: those of the primitives on [the page](tessellate.md), and those that "
        "`create_ipu_tile_primitive` and `declare_ipu_tile_primitive` make. Compute others outside, on `x.array`.",
    ),
    "NetworkError": Example(
        _code(
            """
            from abele.network import NetworkBuilder, verify

            net = NetworkBuilder()
            x = net.input((2, 3), "f32", "x")
            net.output(net.emit("permute", [x], (2, 3), "f32", order=(1, 0)))
            verify(net.finish())
            """
        ),
        "Each kind of op says which operands, attributes and results are legal, in `abele/network/ops`; the functions "
        "of `abele.network.ops.build` keep to it. If a pass made the network, the error names the pass: report it.",
    ),
    "StageOrderError": Example(
        _code(
            """
            from abele.network import NetworkBuilder, Place, inference_pipeline
            from abele.network.ops import build

            net = NetworkBuilder()
            hidden = net.input((2, 3), "f32", "x")
            for stage in (1, 0):
                with net.at(place=Place(ipu=stage, pipeline_stage=stage)):
                    hidden = build.nonlinearity(net, "tanh", hidden)
            net.output(hidden)
            inference_pipeline().run(net.finish())
            """
        ),
        "Number the stages of a pipeline in the order in which the model runs them, or put all ops in stage 0: IPUs "
        "then work one after the other. From PyTorch the error names the blocks "
        "([several IPUs](poptorch.md#several-ipus)).",
    ),
    "NetworkTextError": Example(
        _code(
            """
            from abele.network import parse

            parse("network { input %x: f32[2] output %y }")
            """
        ),
        "The line and column say where reading stopped. `print(net)` writes text that reads back.",
    ),
    "FileFormatError": Example(
        _code(
            """
            from pathlib import Path

            from abele import Report

            Path("run.abele-report").write_text("not a report")
            Report.load("run.abele-report")
            """
        ),
        "Write the file again with the program that made it. Nothing in a file is executed, whoever made it.",
    ),
    "EngineError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            engine = ab.Engine(graph, {"train": ab.WriteUndef(x)})
            engine.run("trian")
            """
        ),
        "",
    ),
    "ProfilingDisabledError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            engine = ab.Engine(graph, ab.WriteUndef(x), options={"debug.instrument": "false"})
            engine.runs
            """
        ),
        "",
    ),
    "SessionError": Example(
        _code(
            """
            from abele.network import NetworkBuilder
            from abele.expr.derivative import arg
            from abele.network.ops import build
            from abele.session import Session

            net = NetworkBuilder()
            net.outputs.append(build.map_(net, arg(0) * 2.0, [net.input((4,), "f32", "x")]))
            session = Session.of(net.finish())
            session.close()
            session([1.0, 2.0, 3.0, 4.0])
            """
        ),
        "The message names the status that the request needs; [sessions](session.md) says how a session gets there.",
    ),
    "SignatureError": Example(
        _code(
            """
            from abele.network import NetworkBuilder
            from abele.expr.derivative import arg
            from abele.network.ops import build
            from abele.session import Session

            net = NetworkBuilder()
            net.outputs.append(build.map_(net, arg(0) * 2.0, [net.input((4,), "f32", "x")]))
            Session.of(net.finish()).run({"y": [1.0, 2.0, 3.0, 4.0]})
            """
        ),
        "Give what was compiled for, or compile another session; a `SessionCache` keeps one for each signature.",
    ),
    "BatchSizeError": Example(
        _code(
            """
            from abele.session import Schedule
            from abele.session.feeds import micro_batch_shape

            micro_batch_shape((10, 3), Schedule(device_iterations=4))
            """
        ),
        "A host batch holds the micro-batches of a whole run: device iterations times accumulation.",
    ),
    "SparsePatternError": Example(
        _code(
            """
            from abele.poplibs.popsparse import CSRMatrix

            CSRMatrix(2, 4, [1.0, 2.0, 3.0], [0, 3, 4], [0, 2, 3])
            """
        ),
        "Indices count elements from 0 and are multiples of the block; pointers count values.",
    ),
    "SparseOverflowError": Example(
        None,
        "Declare more non-zeros, or raise `metaInfoBucketOversizeProportion`, which makes all buckets larger.",
    ),
    "PatternMismatchError": Example(
        _code(
            """
            from abele.graph import Graph
            from abele.poplibs.popsparse import CSRMatrix, static_

            params = static_.MatMulParams.createForSparseDense(1, 2, 4, 8)
            partitioner = static_.Partitioner(params, "half", Graph("bow"))
            partitioner.createSparsityDataImpl(CSRMatrix(2, 4, [1.0, 2.0], [0, 3], [0, 1, 2]))
            partitioner.createSparsityDataImpl(CSRMatrix(2, 4, [1.0, 2.0], [0, 2], [0, 1, 2]))
            """
        ),
        "Use the sparse tensor with the pattern, parameters and options that it was created with.",
    ),
    "PackedDataError": Example(
        _code(
            """
            import numpy as np

            from abele.packing.data import Ragged, Samples

            Samples({"input_ids": Ragged.of([[5, 3, 8], [2, 2]]), "samples": np.array([0, 1])})
            """
        ),
        "[Training on packs](packed_data.md) says what samples, recipes and rows are.",
    ),
    "SampleLengthError": Example(
        _code(
            """
            from abele.packing.data import Ragged, Samples

            Samples({"input_ids": Ragged.of([[5, 3, 8], [2, 2]]), "labels": Ragged.of([[1, 0, 1], [1]])})
            """
        ),
        "Fields along tokens have equal length in each sample. What has another length has an `axis=` of its own.",
    ),
    "PackMembersError": Example(
        _code(
            """
            import numpy as np

            from abele.packing import Packs
            from abele.packing.data import PackedRows, Ragged, RowShape, Samples

            samples = Samples({"input_ids": Ragged.of([[5, 3, 8], [2, 2], [7]])})
            PackedRows(samples, Packs(np.array([0, 1, 1]), np.array([0, 2, 3])), RowShape(6, depth=2))
            """
        ),
        "Make packs of the sizes of these samples, for this shape: `pack_rows(samples, shape)` does both.",
    ),
    "PlaceError": Example(
        _code(
            """
            from abele.packing.data import Ragged
            from abele.packing.tasks import squad

            ids = Ragged.of([[5, 3, 8], [2, 2]])
            squad(ids, token_type_ids=ids, start_positions=[1, 1], end_positions=[2, 2])
            """
        ),
        "Places count from 0 at the start of their own sample. Answers that were cut off have the place that "
        "`nowhere=` names.",
    ),
    "PaddingError": Example(
        _code(
            """
            from abele.packing.data import Field, Ragged, Recipe, Samples

            recipe = Recipe({"input_ids": Field(padding=0, reserved_padding=True)})
            Samples({"input_ids": Ragged.of([[5, 0, 8]])}, recipe)
            """
        ),
        "Choose a padding value that the type holds and, where models look for it, that samples do not.",
    ),
    "UnknownArrayError": Example(
        _code(
            """
            from abele.session import SharedArrays

            weights = SharedArrays({"fc.weight": [[1.0, 2.0]]})
            weights["fc.weigth"]
            """
        ),
        "",
    ),
    "MissingDatumError": Example(
        _code(
            """
            import abele as ab
            from abele import pva

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            report = pva.openReport(ab.compile_program(graph, ab.WriteUndef(x)).report)
            report.compilation.tiles[0].memory.category.vertexFieldData
            """
        ),
        "The message says what tells something similar; [pva](pva.md) lists what reports hold of what libpva knows. It "
        "is an `AttributeError` too.",
    ),
    "ReportIndexError": Example(
        _code(
            """
            import abele as ab
            from abele import pva

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            report = pva.openReport(ab.compile_program(graph, ab.WriteUndef(x)).report)
            report.compilation.tiles[1472]
            """
        ),
        "",
    ),
    "QueryError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            report = ab.compile_program(graph, ab.WriteUndef(x)).report
            report.sql("select nmae, bytes from variables")
            """
        ),
        "The error lists the tables, or the columns of the tables that the query names; [queries](pva.md#sql) "
        "has examples.",
    ),
    "ProgramRuntimeError": Example(
        None,
        "Raised as one of the kinds below. State is as of the last finished step, and the engine stays usable.",
    ),
    "ApplicationRuntimeError": Example(
        _code(
            """
            import abele as ab
            from abele import poplar

            graph = ab.Graph("bow")
            flag = graph.variable(ab.i32, (), name="flag", initial=1).map(0)
            ab.Engine(graph, poplar.program.AbortOnCondition(flag, "the loss is not finite")).run()
            """
        ),
        "Look at the program where `at` points. Floating-point exceptions are found with "
        '`options={"debug.floatPointOpException": "true"}`.',
    ),
    "ReplicaDivergenceError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow-2000", replicas=4)
            flag = graph.variable(ab.i32, (), name="flag", initial=0).map(0)
            x = graph.variable(ab.i32, (), name="x", initial=0).map(0)
            engine = ab.Engine(graph, ab.If(flag, ab.Copy(flag, x), ab.Copy(x, flag)))
            engine["flag"] = [1, 0, 1, 1]
            engine.run()
            """
        ),
        "Reduce what steers the branch over the replicas first, such as with `gcl.all_reduce_cross_replica`.",
    ),
    "LaunchError": Example(
        None,
        "Look at what `mpiexec` says, and whether it starts anything: `mpiexec -n 2 hostname`. Hosts must be "
        "reachable, by `ssh` unless a scheduler starts processes, and have Python and Abele at the same paths. "
        "See [ranks](ranks.md).",
    ),
    "RankLostError": Example(
        None,
        "Look at what the rank does: it died, or it is somewhere else in the program. The report has the step and the "
        "last line that it printed; [ranks](ranks.md) says how long others wait for it, and `abele run --timeout` "
        "allows more.",
    ),
    "RankDisagreementError": Example(
        None,
        "Let all ranks make the same calls in the same order, with the same options, and begin with the same weights: "
        "the same seed, or the same checkpoint. See [ranks](ranks.md).",
    ),
    "UninitialisedReadError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (4,), name="x").map(0)
            y = graph.variable(ab.f32, (4,), name="y").map(0)
            ab.Engine(graph, ab.Copy(x, y), checks="uninitialised").run()
            """
        ),
        "Write the variable before it is read, or give it `initial=`.",
    ),
    "OutOfMemoryError": Example(
        _code(
            """
            import abele as ab

            graph = ab.Graph("bow")
            x = graph.variable(ab.f32, (400, 500), name="x").map(3)
            y = graph.variable(ab.f32, (400, 500), name="y").map_linear()
            ab.compile_program(graph, ab.Copy(y, x))
            """
        ),
        "Spread what is large over more tiles (`map_linear`), lower `availableMemoryProportion`, use f16, or more "
        "IPUs. "
        '`allow_out_of_memory=True` compiles all the same, and `report.plot("memory")` shows the tiles. '
        "`error.tiles` has the "
        "worst ones as numbers.",
    ),
}

"""Programs over one state: prefill and decode loop of a model with a cache, as one executable and in eager PyTorch."""

import copy
import math
import threading

import pytest
import torch
from torch import nn

from abele import poptorch
from abele.errors import AbeleError, ElementRangeError, SignatureError, TypeMismatchError, UnknownArrayError

WORDS, WIDTH, HEADS, ROWS = 24, 16, 2, 32
END = 23


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(ROWS, HEADS, WIDTH // HEADS))

    def forward(self, x, place):
        q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in self.qkv(x).chunk(3, -1))
        self.keys.index_copy_(0, place, k)
        self.values.index_copy_(0, place, v)
        scores = torch.einsum("qhd,khd->hqk", q, self.keys) / math.sqrt(WIDTH // HEADS)
        seen = torch.arange(ROWS)[None, None] <= place[None, :, None]
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -1e4).softmax(-1), self.values)
        return x + self.out(mixed.flatten(1))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.register_buffer("tokens", torch.zeros(ROWS, dtype=torch.int32))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("alive", torch.tensor([False]))

    def forward(self, tokens, place):
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, place)
        return self.head(x)


class Prefill(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, prompt):
        model, count = self.model, len(prompt)
        token = model(prompt, torch.arange(count))[-1:].argmax(-1).to(torch.int32)
        model.tokens[count : count + 1] = token
        model.place.fill_(count)
        model.alive.fill_(True)
        return token


class Decode(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, bias):
        model = self.model
        logits = model(model.tokens[model.place], model.place) + bias
        token = logits.argmax(-1).to(torch.int32)
        model.place += 1
        model.tokens.index_copy_(0, model.place, token)
        model.alive.copy_((token != END) & (model.place < ROWS - 1))
        return logits


class Written(nn.Module):
    """Only reads."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self):
        return self.model.tokens.sum()


PROMPT, BIAS = torch.tensor([3, 1, 4, 1, 5]), torch.zeros(WORDS)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def programs(model):
    modules = {
        "prefill": Prefill(model),
        "decode": poptorch.Loop(Decode(model), most="count", while_="model.alive"),
        "written": Written(model),
    }
    with poptorch.programs(modules, examples={"prefill": (PROMPT,), "decode": {"bias": BIAS}}) as made:
        yield made


@torch.no_grad()
def test_programs__by_turns__generate_what_pytorch_does(programs, model):
    eager = copy.deepcopy(model)
    prefill, decode = Prefill(eager), Decode(eager)
    for prompt, count, bias in (PROMPT, 6, BIAS), (PROMPT.flip(0), 3, BIAS), (PROMPT, 100, BIAS + 0.1):
        assert programs.prefill(prompt) == prefill(prompt)
        for calls in (count, 2):
            logits, trips = programs.run("decode", bias, count=calls), 0
            expected = torch.zeros(1, WORDS)
            while eager.alive.any() and trips < calls:
                expected, trips = decode(bias), trips + 1
            torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
        assert programs.written() == eager.tokens.sum()
        for name in ("tokens", "place", "alive"):
            assert torch.equal(programs.state[f"model.{name}"], getattr(eager, name))
        torch.testing.assert_close(programs.state["model.layers.0.keys"], eager.layers[0].keys, rtol=1e-3, atol=1e-4)


def test_programs__with_a_written_page__use_it(programs):
    programs.prefill(PROMPT)
    cache = programs.state["model.layers.0.keys"]
    programs.state["model.tokens"] = torch.arange(ROWS)
    programs.state["model.alive"] = [False]
    assert programs.written() == ROWS * (ROWS - 1) // 2
    assert not programs.decode(BIAS, count=5).any()  # Nobody is alive.
    assert torch.equal(programs.state["model.layers.0.keys"], cache)


def test_programs__have_one_of_each_cache(programs):
    large = [v.name for v in programs.executable.graph.variables if v.size >= ROWS * WIDTH and "keys" in v.name]
    assert len(large) == 2, "one of each layer"
    names = programs.report().steps["name"]
    assert not any(name.startswith("write_back") and "keys" in name for name in names)


class Counter(nn.Module):
    """States of several types; draws a number."""

    def __init__(self):
        super().__init__()
        for dtype in (torch.int64, torch.int32, torch.int8, torch.uint8, torch.float16, torch.bfloat16, torch.float32):
            self.register_buffer(f"of_{str(dtype)[6:]}", torch.zeros(3, dtype=dtype))
        self.register_buffer("drawn", torch.zeros(4, 2))

    def forward(self, step):
        for buffer in self.children_states():
            buffer += step.to(buffer.dtype)
        self.drawn.index_copy_(0, self.of_int64[:1] - 1, torch.rand(1, 2))
        return self.of_float32 * 2

    def children_states(self):
        return [b for name, b in self.named_buffers() if name != "drawn"]


def test_state__of_each_type__goes_from_trip_to_trip():
    counter = Counter()
    programs = poptorch.programs({"count": poptorch.Loop(counter, most=3), "other": Counter()}, examples=examples())
    with programs:
        assert not counter.of_int64.any()
        assert torch.equal(programs.count(torch.tensor(1)), torch.full((3,), 6.0))
        programs.other(torch.tensor(2))
        for name, buffer in counter.named_buffers():
            found, other = programs.state[f"count.{name}"], programs.state[f"other.{name}"]
            assert found.dtype == buffer.dtype
            if name != "drawn":
                assert torch.equal(found, torch.full_like(buffer, 3))
                assert torch.equal(other, torch.full_like(buffer, 2))
        assert len(programs.state["count.drawn"][:3].unique()) == 6
        with pytest.raises(UnknownArrayError, match="'of_int8' is the name of 2 tensors"):
            programs.state["of_int8"]
        threads = [threading.Thread(target=lambda: programs.other(torch.tensor(0))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.equal(programs.state["other.of_int32"], torch.full((3,), 2, dtype=torch.int32))
    assert torch.equal(counter.of_int64, torch.full((3,), 3))  # Closed, they leave their state to the modules.


def examples():
    return {"count": torch.tensor(1), "other": torch.tensor(1)}


WRONG_STATES = [
    ("model.tokns", torch.zeros(ROWS), UnknownArrayError, "did you mean 'model.tokens'"),
    ("model.tokens", torch.zeros(3), SignatureError, r"has shape \[32\], got \[3\]"),
    ("model.tokens", torch.zeros(ROWS), TypeMismatchError, "torch.int32, got torch.float32"),
    ("model.place", torch.tensor([1 << 40]), ElementRangeError, "cannot hold 1099511627776"),
]


@pytest.mark.parametrize(("name", "values", "kind", "text"), WRONG_STATES)
def test_state__written_with_something_else__is_refused(programs, name, values, kind, text):
    with pytest.raises(kind, match=text):
        programs.state[name] = values


WRONG_CALLS = [
    (lambda p: p.run("decod", BIAS), "did you mean 'decode'"),
    (lambda p: p.decode(BIAS), "was not told how many trips"),
    (lambda p: p.decode(BIAS, count=-1), "count of the program 'decode' is -1"),
    (lambda p: p.decode(BIAS[:3], count=1), r"Shape mismatch for bias[\s\S]*the program 'decode'"),
    (lambda p: p.decode(count=1), "Mandatory parameter bias missing"),
]


@pytest.mark.parametrize(("call", "text"), WRONG_CALLS)
def test_call__that_does_not_fit__is_refused(programs, call, text):
    with pytest.raises(poptorch.Error, match=text):
        call(programs)


class Changing(nn.Module):
    def forward(self, x):
        return x.add_(1)


def trained():
    linear = nn.Linear(2, 2)
    return poptorch.trainingModel(linear, optimizer=torch.optim.SGD(linear.parameters(), lr=0.1))


WRONG_PROGRAMS = [
    (dict, "there are no programs"),
    (lambda: {"a": trained()}, "wrapped by poptorch.trainingModel"),
    (lambda: {"a": print}, "not a module"),
    (lambda: {"run": Changing(), "a": Changing()}, "cannot be called 'run'"),
    (lambda: {"a": Changing()}, "changes its input 'x'"),
    (lambda: {"a": poptorch.Loop(Changing(), 2, "alive")}, r"no buffer 'alive'"),
    (lambda: {"a": poptorch.Loop(Changing(), "x")}, "has an argument 'x' itself"),
    (lambda: {"a": poptorch.Loop(Changing(), -1)}, "no -1 trips"),
    (lambda: {"b": Changing()}, "an example for 'a'"),
]


@pytest.mark.parametrize(("make", "text"), WRONG_PROGRAMS)
def test_programs__that_are_none__are_refused(make, text):
    with pytest.raises(AbeleError, match=text):
        poptorch.programs(make(), examples={"a": torch.zeros(2)}).compile()


def test_programs__of_several_iterations__are_refused():
    options = poptorch.Options().deviceIterations(2)
    with pytest.raises(poptorch.Error, match="deviceIterations is 2"):
        poptorch.programs({"a": Changing()}, options)


class Split(nn.Module):
    """A step on two IPUs."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("x", torch.randn(2, 4))
        self.register_buffer("history", torch.zeros(8, 4))
        self.register_buffer("n", torch.zeros(1, dtype=torch.int64))

    def forward(self):
        with poptorch.Block(ipu_id=0):
            x = self.first(self.x)
        with poptorch.Block(ipu_id=1):
            self.history.index_copy_(0, self.n, x[:1])
            y = self.second(x) + self.history.sum(0)
        with poptorch.Block(ipu_id=0):
            self.x.copy_(torch.tanh(y))
            self.n += 1
            return self.x.sum()


@torch.no_grad()
def test_programs__on_two_ipus__do_as_pytorch():
    step = Split()
    eager = copy.deepcopy(step)
    options = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
    with poptorch.programs({"one": step, "many": poptorch.Loop(step, 4)}, options) as programs:
        assert programs.session.compiled.executable.report.target["num_ipus"] == 2
        for call, trips in ((programs.one, 1), (programs.many, 4)):
            expected = [eager() for _ in range(trips)][-1]
            torch.testing.assert_close(call(), expected, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(programs.state["history"], eager.history, rtol=1e-3, atol=1e-4)


class Halving(nn.Module):
    """Is alive until its share of the input is below one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("alive", torch.tensor(True))
        self.register_buffer("trips", torch.zeros(1))

    def forward(self, x):
        self.trips += 1
        self.alive.copy_((x.abs().sum() > self.trips).all())
        return x * 2


def test_programs__on_replicas__go_on_while_one_has_to():
    options = poptorch.Options().replicationFactor(2).broadcastBuffers(False)
    step = Halving()
    step.register_buffer("alive", torch.tensor([True, True]))
    step.register_buffer("trips", torch.zeros(2, 1))
    x = torch.tensor([[1.0], [5.0]])
    with poptorch.programs({"a": poptorch.Loop(step, "most", "alive")}, options, examples={"a": x}) as programs:
        assert torch.equal(programs.a(x, most=20), 2 * x)
        assert programs.state["trips"].flatten().tolist() == [5.0, 5.0]

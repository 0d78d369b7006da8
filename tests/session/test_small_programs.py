"""One host thread runs small programs."""

from abele.expr.derivative import arg
from abele.network import NetworkBuilder
from abele.network.ops import build
from abele.session import Session, Settings
from abele.session.small_programs import is_small


def loop(rows: int, trips: int):
    net = NetworkBuilder()
    x = net.input((rows, 64), "f32", "x")
    (y,) = build.loop(net, trips, [x], lambda body, trip, v: [build.map_(body, arg(0) * 0.5, [v])])
    net.output(y)
    return net.finish()


def test_is_small__by_work_of_a_run_and_of_its_steps() -> None:
    assert is_small(loop(4, 10))
    assert is_small(loop(4, 100_000))  # every step is shorter than threads take to meet
    assert not is_small(loop(1_000, 100))
    assert not is_small(loop(100, 1_000))


def test_session__of_a_small_program__has_one_thread() -> None:
    with Session.of(loop(4, 10)) as session:
        assert session.compiled.small
    with Session.of(loop(1_000, 100), settings=Settings(threads=1)) as session:
        assert not session.compiled.small

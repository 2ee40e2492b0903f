import numpy as np
import pytest

from almac.compiler.graph import Graph, Table, Value
from almac.compiler.importer import import_model
from almac.compiler.passes.merge_moves import merge_moves
from almac.compiler.passes.remove_dead import remove_dead
from almac.compiler.pipeline import run
from almac.sim.golden import evaluate

NEGATE = tuple(min(127, -code) for code in range(-128, 128))
A = Table(inputs=("x",), output="a", table=NEGATE)
B = Table(inputs=("a",), output="b", table=NEGATE)
C = Table(inputs=("a",), output="c", table=NEGATE)


def graph(*ops, outputs):
    values = {name: Value(shape=(4,)) for name in "xabc"}
    return Graph(ops=(), values={}, inputs=("x",), outputs=outputs).with_ops(ops, values)


def test_removes_a_chain():
    after = run(graph(A, B, outputs=("x",)), [remove_dead])
    assert after.ops == ()
    assert set(after.values) == {"x"}


def test_removes_a_branch():
    assert run(graph(A, B, C, outputs=("c",)), [remove_dead]).ops == (A, C)


@pytest.mark.parametrize(("ops", "outputs"), [
    ((A, B), ("b",)),
    ((A, B, C), ("b", "c")),
    ((A, B), ("a", "b")),
])
def test_keeps(ops, outputs):
    before = graph(*ops, outputs=outputs)
    assert run(before, [remove_dead]) == before


def test_preserves_meaning():
    before = graph(A, B, C, outputs=("c",))
    x = np.random.default_rng(0).integers(-128, 128, (16, 4)).astype(np.int8)
    np.testing.assert_array_equal(evaluate(before, {"x": x})["c"], evaluate(remove_dead(before), {"x": x})["c"])


def test_what_moves_leave_behind(parse):
    model = parse("""g (float[N,2,3,4] x) => (int8[N,4,2,3] y, int8[N,2,3,4] q) <float s = {1}, int8 z = {0}> {
        q = QuantizeLinear(x, s, z)
        a = Transpose <perm = [0,2,3,1]> (q)
        y = Transpose <perm = [0,2,3,1]> (a) }""")
    before = import_model(model)
    after = run(before, [merge_moves, remove_dead])
    assert [type(op).__name__ for op in before.ops].count("Move") == 2
    assert [type(op).__name__ for op in after.ops].count("Move") == 1

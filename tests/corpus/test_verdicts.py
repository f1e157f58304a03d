"""Each check is judged from what was measured."""

from dataclasses import replace

import pytest

from aotlens.render.text.closing import ATTENTION
from corpus.records import Graphs, Line, Ran, TensorError, Values, dumps, loads
from corpus.verdicts import NOT_COMPILED, UNEQUAL, Check, Ratio, judge
from tests.corpus.made import PROGRAM, REFUSED, TEXTS, measured, ran


def test_a_program_that_is_fine() -> None:
    judged = judge(PROGRAM, measured())
    assert [judged.exit_code, judged.output, judged.values, judged.graphs, judged.verify] == [
        Check("pass", "0"),
        Check("pass", "equal"),
        Check("pass", "1e-06 / 2e-06"),
        Check("pass", "2"),
        Check("pass", "equal"),
    ]
    assert judged.inductor_runs
    assert judged.same_end


def test_times_and_memory_beside_inductor() -> None:
    judged = judge(PROGRAM, measured(step_s=0.02))
    assert judged.first_step == Ratio(1.0, 2.0)
    assert judged.warm == Ratio(1.25, 1.5)
    assert judged.memory == Ratio(1000, 2000)
    assert judged.steady.ours == pytest.approx(0.02)
    assert judged.steady.inductor == pytest.approx(0.01)
    assert judged.steady.value == pytest.approx(2.0)


def test_the_clock_of_the_wall_and_of_two_processes() -> None:
    assert judge(PROGRAM, measured(), "wall").first_step == Ratio(2.0, 4.0)
    assert judge(replace(PROGRAM, processes=2), measured(), "cpu").first_step == Ratio(2.0, 4.0)


def test_lines_without_clocks_give_no_times() -> None:
    silent = Ran(0, False, 9.0, tuple(map(Line, TEXTS)), "")
    judged = judge(PROGRAM, measured(silent))
    assert judged.first_step == Ratio(None, 2.0)
    assert judged.first_step.value is None


@pytest.mark.parametrize(
    ("ours", "exit_code", "output"),
    [
        (
            ran(TEXTS[:3], exit_code=2),
            Check("fail", "2, eager 0, inductor 0"),
            Check("fail", f"line 4: no line instead of `{TEXTS[3]}` (inductor: equal)"),
        ),
        (
            ran((*TEXTS[:-1], "step 5: loss 0.7")),
            Check("pass", "0"),
            Check("fail", "line 7: `step 5: loss 0.7` instead of `step 5: loss 0.4` (inductor: equal)"),
        ),
    ],
)
def test_another_end(ours: Ran, exit_code: Check, output: Check) -> None:
    judged = judge(PROGRAM, measured(ours))
    assert (judged.exit_code, judged.output) == (exit_code, output)
    assert not judged.same_end


def test_an_output_that_differs_less_than_inductors() -> None:
    eager = measured()
    runs = tuple(
        replace(run, ran=ran((*TEXTS[:-1], f"step 5: loss {loss}")))
        for run, loss in zip(eager.runs, ("0.400", "0.440", "0.420", "0.4", "0.4", "0.4", "0.4"), strict=True)
    )
    assert judge(PROGRAM, replace(eager, runs=runs)).output == Check("pass", "5e-02 off, inductor 9e-02")
    same = (*runs[:2], replace(runs[1], way="aotlens"), *runs[3:])
    assert judge(PROGRAM, replace(eager, runs=same)).output == Check("pass", "as inductor")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (5e-4, Check("pass", "5e-04 / 2e-06")),
        (5e-3, Check("fail", "5e-03 / 2e-06 (`weight` 5e-03 / 2e-06)")),
    ],
)
def test_values_beyond_the_tolerance_of_their_dtype(error: float, expected: Check) -> None:
    assert judge(PROGRAM, measured(error=error)).values == expected


def test_rounding_of_the_same_size_as_inductors() -> None:
    done = measured()
    inductor = Values((TensorError("bias", "float32", 0.5), TensorError("weight", "float32", 1e-6)))

    def values(bias: float) -> Check:
        ours = Values((TensorError("bias", "float32", bias), TensorError("weight", "float32", 1e-6)))
        return judge(PROGRAM, replace(done, values={"aotlens": ours, "inductor": inductor})).values

    assert values(1.4) == Check("pass", "1e+00 / 5e-01")
    assert values(1.6) == Check("fail", "2e+00 / 5e-01 (`bias` 2e+00 / 5e-01)")


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (("entropy",), Check("pass", "0e+00 / 0e+00; as inductor, without entropy")),
        ((), Check("fail", "0e+00 / 0e+00; only in one run: entropy")),
    ],
)
def test_a_buffer_that_dynamo_leaves_out(theirs: tuple[str, ...], expected: Check) -> None:
    same = (TensorError("weight", "float32", 0.0),)
    values = {"aotlens": Values(same, ("entropy",)), "inductor": Values(same, theirs)}
    assert judge(PROGRAM, replace(measured(), values=values)).values == expected


def test_the_tolerance_of_the_header() -> None:
    assert judge(replace(PROGRAM, tolerance=1e-2), measured(error=5e-3)).values.state == "pass"


@pytest.mark.parametrize(
    ("graphs", "expected"),
    [
        (None, Check("unknown", "no report")),
        (Graphs(0, ()), Check("fail", "0")),
        (
            Graphs(3, (replace(REFUSED, cause="graph break"),)),
            Check("pass", "3; 1 that Dynamo leaves to eager"),
        ),
        (
            Graphs(3, (REFUSED, REFUSED)),
            Check("fail", "3; not compiled: AL402 Net net.py:4: `x | y` is not supported (+1)"),
        ),
    ],
)
def test_graphs(graphs: Graphs | None, expected: Check) -> None:
    assert judge(PROGRAM, measured(graphs=graphs)).graphs == expected


def test_the_words_of_a_failed_verification() -> None:
    assert judge(PROGRAM, measured(verify_exit=1)).verify == Check("fail", "exit 1: MISMATCH net: gradient")


def test_a_verification_with_eagers_kernels_says_so() -> None:
    full = measured()
    runs = (*full.runs[:-1], replace(full.runs[-1], way="quick"))
    expected = Check("pass", "equal with eager's kernels")
    assert judge(PROGRAM, replace(full, runs=runs)).verify == expected


@pytest.mark.parametrize(
    ("headings", "state"),
    [
        (["Not compiled"], "pass"),
        (["Not compiled", "Not verified"], "fail"),
        (["Not compiled", "Differs from eager"], "fail"),
        ([], "fail"),
    ],
)
def test_code_that_dynamo_leaves_to_eager_is_no_difference(headings: list[str], state: str) -> None:
    full = measured(verify_exit=1)
    last = full.runs[-1]
    stderr = "\n".join(["aotlens: 1 function", *headings, "Compiled", ""])
    runs = (*full.runs[:-1], replace(last, ran=replace(last.ran, stderr_tail=stderr)))
    assert judge(PROGRAM, replace(full, runs=runs)).verify.state == state


def test_headings_are_those_of_the_closing_table() -> None:
    assert {NOT_COMPILED, *UNEQUAL} <= set(ATTENTION)


def test_what_was_not_run_is_not_passed() -> None:
    only_eager = replace(measured(), runs=measured().runs[:1], values={})
    judged = judge(PROGRAM, only_eager)
    assert {judged.exit_code.state, judged.output.state, judged.values.state, judged.verify.state} == {
        "unknown"
    }
    assert not judged.inductor_runs
    assert not judged.same_end


def test_measurements_survive_a_file() -> None:
    full = measured(graphs=Graphs(3, (REFUSED,)))
    assert loads(dumps(full)) == full
    assert loads(dumps(replace(full, graphs=None))) == replace(full, graphs=None)

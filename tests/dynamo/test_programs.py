"""What is reported of each small program: every fact, with its columns, and nothing else."""

import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import clear_compilation_metrics, get_compilation_metrics, graph_break_reasons

from aotlens.dynamo.compile_time import Clock
from aotlens.dynamo.listener import Listener
from aotlens.model.dynamo import Break, Dynamo, DynamoFunction
from aotlens.model.source import Span
from aotlens.model.spans import source_line
from aotlens.session.dynamo.log import DynamoLog
from aotlens.torch_api.patches.compilers import LISTEN
from aotlens.torch_api.patches.scopes import patched
from tests.dynamo import programs_breaks
from tests.dynamo.program import Expected, Program, compiled
from tests.dynamo.programs_breaks import BREAKS
from tests.dynamo.programs_constants import CONSTANTS
from tests.dynamo.programs_recompilations import RECOMPILATIONS

PROGRAMS = {
    f"{kind}-{program.name}": program
    for kind, programs in (("break", BREAKS), ("again", RECOMPILATIONS), ("constant", CONSTANTS))
    for program in programs.entries
}
LEAST_PROGRAMS = 60


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    clear_compilation_metrics()
    graph_break_reasons.clear()
    yield
    torch._dynamo.reset()


def observed(program: Program) -> Dynamo | None:
    log = DynamoLog()
    with warnings.catch_warnings(), log.listening():
        warnings.simplefilter("ignore")  # Dynamo warns of what the program is about
        program.run()
    return log.dynamo()


def facts(functions: tuple[DynamoFunction, ...]) -> Expected:
    """What is reported, in the form in which programs expect it."""
    causes = [entry.cause for one in functions for entry in one.compilations if entry.cause is not None]
    return Expected(
        breaks=tuple((one.text, one.code, one.effect) for function in functions for one in function.breaks),
        causes=tuple((cause.kind, cause.name, cause.old, cause.new) for cause in causes),
        constants=tuple(
            (one.name, one.value, one.kind, one.text)
            for function in functions
            for one in function.specialisations
        ),
        skipped=tuple(one.reason for function in functions for one in function.skipped if one.is_loss),
        limit_hit=any(function.limit_hit for function in functions),
    )


def text_at(span: Span) -> str:
    """The source between the span's columns."""
    line = source_line(span.file, span.line)
    assert span.end_line == span.line
    return line.encode()[span.col : span.end_col].decode()


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    program = PROGRAMS[name]
    dynamo = observed(program)
    functions = dynamo.functions if dynamo is not None else ()
    expected = program.expected
    found = facts(functions)
    assert found == Expected(
        expected.breaks, expected.causes, "", expected.constants, expected.skipped, expected.limit_hit
    )
    _check_columns(program, functions)
    _check_against_dynamo(functions)


def _check_columns(program: Program, functions: tuple[DynamoFunction, ...]) -> None:
    """Each expression stands between its columns, in a marked line where the program marks one."""
    marked = program.marked_lines
    for function in functions:
        for entry in function.breaks:
            assert text_at(entry.span) == entry.text
            assert not marked or entry.span.line in marked
        for constant in function.specialisations:
            assert constant.span is not None
            assert text_at(constant.span) == constant.text
            assert constant.span.line in marked
        for compilation in function.recompilations:
            cause = compilation.cause
            if program.expected.guarded:
                assert cause is not None
                assert cause.span is not None
                assert text_at(cause.span) == program.expected.guarded
                assert cause.span.line in marked


def _check_against_dynamo(functions: tuple[DynamoFunction, ...]) -> None:
    """Each compilation and recompilation that Dynamo counts is reported once, each break at its line."""
    metrics = [entry for entry in get_compilation_metrics() if entry.is_forward and entry.co_name]
    ours = [entry for function in functions for entry in function.compilations]
    counted = {entry.compile_id for entry in metrics if entry.fail_type != "RecompileLimitExceeded"}
    ids = Counter(entry.id for entry in ours)
    assert {one for one in ids if ids[one] > 1} == set()
    assert counted <= set(ids)
    again = {entry.compile_id for entry in metrics if entry.recompile_reason}
    assert again == {entry.id for entry in ours if entry.cause is not None and entry.id in counted}
    broken = [entry for function in functions for entry in function.breaks]
    lines = {(span.file, span.line) for entry in broken for span in (entry.span, *_spans_below(entry))}
    stacks = [reason.user_stack for reason in graph_break_reasons if reason.user_stack]
    assert {(frame.filename, frame.lineno) for *_, frame in stacks} <= lines


def _spans_below(entry: Break) -> tuple[Span, ...]:
    return tuple(related.span for related in entry.related)


def test_the_list_is_long_enough() -> None:
    assert len(PROGRAMS) >= LEAST_PROGRAMS


def test_tensors_that_cross_a_break_are_counted() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y, z = x.sin(), x.cos()
        torch._dynamo.graph_break()
        return y + z

    log = DynamoLog()
    with log.listening():
        torch.compile(f, backend="eager")(torch.ones(8))
    dynamo = log.dynamo()
    assert dynamo is not None
    (entry,) = dynamo.breaks
    assert (entry.graphs, entry.tensors, entry.bytes) == (2, 2, 2 * 8 * 4)


def fusions_across(function: Any) -> list[tuple[str, str]]:
    """Run a function of two 4x4 matrices; return the operators that its break keeps from fusing, with their
    lines relative to the `def`."""
    log = DynamoLog()
    with log.listening():
        torch.compile(function, backend="eager")(torch.ones(4, 4), torch.ones(4, 4))
    dynamo = log.dynamo()
    assert dynamo is not None
    (entry,) = dynamo.breaks
    first = function.__code__.co_firstlineno

    def words(name: str, span: Span | None) -> str:
        return f"{name}, line {span.line - first}" if span is not None else name

    return [
        (words(pair.producer, pair.producer_span), words(pair.consumer, pair.consumer_span))
        for pair in entry.fusions
    ]


def test_the_operators_that_a_break_keeps_from_fusing() -> None:
    def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.relu(x + y).reshape(2, 8)
        torch._dynamo.graph_break()
        w = z.T / 3
        return torch.softmax(z, -1).sum() + w.sum()

    def product_before(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x @ y
        torch._dynamo.graph_break()
        return z.relu_()

    def product_after(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x.exp_()
        torch._dynamo.graph_break()
        return torch.nn.functional.linear(z, y)

    assert fusions_across(pointwise) == [
        ("relu, line 1", "div, line 3"),
        ("relu, line 1", "softmax, line 4"),
    ]
    assert fusions_across(product_before) == []
    assert fusions_across(product_after) == []


def test_a_call_runs_no_hook_once_it_is_compiled() -> None:
    """The compiled graph stands under its own name again after its first run."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    log = DynamoLog()
    with log.listening():
        compiled = torch.compile(f, backend="eager")
        compiled(torch.ones(2))
        first = log.listener.clock.by_phase
        compiled(torch.ones(2))
        compiled(torch.ones(2))
        assert log.listener.clock.by_phase == first


def test_guards_are_timed_when_asked() -> None:
    log = DynamoLog(time_guards=True)
    with log.listening():
        compiled = torch.compile(lambda x: x + 1, backend="eager")
        for _ in range(3):
            compiled(torch.ones(2))
    dynamo = log.dynamo()
    assert dynamo is not None
    (function,) = dynamo.functions
    assert function.calls == 3
    assert function.guard_nanoseconds is not None
    assert 0 < function.guard_nanoseconds < 1e6
    shares = [guard.nanoseconds or 0.0 for guard in function.guards]
    assert 0 < sum(shares) <= function.guard_nanoseconds * 1.001


def test_the_phases_cover_the_compile_time() -> None:
    log = DynamoLog()
    with log.listening():
        torch.compile(lambda x: x.sin(), backend="aot_eager")(torch.ones(2, requires_grad=True))
    dynamo = log.dynamo()
    assert dynamo is not None
    seconds = dynamo.compile_seconds
    assert seconds.attributed == pytest.approx(seconds.total)
    assert {"Dynamo", "guards", "AOT", "first run"} <= set(seconds.by_phase)
    (function,) = dynamo.functions
    (compilation,) = function.compilations
    assert compilation.seconds.total == pytest.approx(
        compilation.seconds.dynamo + compilation.seconds.backend
    )
    assert sum(line.seconds for line in seconds.by_line) <= seconds.by_phase["Dynamo"]


def test_a_thread_that_builds_code_for_another_does_not_count() -> None:
    clock = Clock()
    clock.begin("entire_frame_compile", "0/0")
    clock.begin("async_compile.wait", "0/0")

    def build() -> None:
        clock.begin("compile_file", "0/0")
        time.sleep(0.02)
        clock.end("compile_file")

    builder = threading.Thread(target=build)
    start = time.perf_counter()
    builder.start()
    builder.join()
    clock.end("async_compile.wait")
    spent = time.perf_counter() - start
    clock.end("entire_frame_compile")
    assert 0.02 <= clock.by_phase["C++ and Triton"] < spent + 0.01


def test_a_thread_that_compiles_by_itself_counts() -> None:
    """Such as the one in which autograd runs a backward on a GPU."""
    clock = Clock()
    clock.begin("entire_frame_compile", "0/0")

    def backward() -> None:
        clock.begin("entire_backward_compile", "0/0")
        time.sleep(0.02)
        clock.end("entire_backward_compile")

    thread = threading.Thread(target=backward)
    thread.start()
    thread.join()
    clock.end("entire_frame_compile")
    assert clock.by_phase["AOT"] >= 0.02


def test_lines_of_libraries_count_for_the_user_line_that_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a function of the user's that the library called has returned."""
    listener, seconds = Listener(), iter(range(10))
    monkeypatch.setattr(listener.clock, "tracing_seconds", lambda: float(next(seconds)))
    library, outer, inner = (torch.__file__, 1), ("model.py", 10), ("model.py", 20)
    for depth, lines in (
        (0, [outer]),
        (1, [library, outer]),
        (2, [inner, library, outer]),
        (3, [library, inner, library, outer]),
        (1, [library, outer]),
        (0, [("model.py", 11)]),
    ):
        listener.starts_line(compile("", lines[0][0], "exec"), depth, iter(lines))
    assert listener.line_seconds == {outer: 2.0, inner: 1.0}


def test_after_a_reset_compilations_have_numbers_of_their_own() -> None:
    log = DynamoLog()
    with log.listening():
        for _ in range(2):
            torch._dynamo.reset()
            torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    dynamo = log.dynamo()
    assert dynamo is not None
    ids = [entry.id for function in dynamo.functions for entry in function.compilations]
    assert len(ids) == len(set(ids)) == 2


@pytest.mark.rotates
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("break-")])
def test_what_fails_under_fullgraph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A break is an error under `fullgraph=True` where the report says so."""
    program = PROGRAMS[name]
    dynamo = observed(program)
    expected = any(entry.fails_fullgraph for entry in dynamo.breaks) if dynamo is not None else False
    torch._dynamo.reset()
    monkeypatch.setattr(programs_breaks, "compiled", _whole)
    failed = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.run()
    except torch._dynamo.exc.TorchDynamoException:
        failed = True
    assert failed == expected


def _whole(function: Any = None, **options: Any) -> Any:
    return compiled(function, fullgraph=True, **options)


class Raising:
    """A listener that fails whatever it hears."""

    counts_calls = False

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


def test_a_fault_of_ours_does_not_reach_the_program(caplog: pytest.LogCaptureFixture) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return y * x.shape[0]

    listener: Any = Raising()
    with patched(LISTEN, listener):
        whole = torch.compile(f, backend="eager", dynamic=True)
        assert whole(torch.ones(3)).tolist() == [6.0, 6.0, 6.0]
        assert whole(torch.ones(1)).tolist() == [2.0]
    assert {record.name for record in caplog.records if record.levelname == "WARNING"} == {"aotlens.dynamo"}

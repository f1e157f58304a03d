"""Judge one program's measurements, check by check.

Invariant: a check that could not be made says so; it is never counted as passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Literal

from corpus.output import Difference, compare_output
from corpus.program import Program
from corpus.records import Line, Measured, Run, TensorError, Values
from corpus.values import TOLERANCES

__all__ = [
    "Check",
    "Clock",
    "Judged",
    "Ratio",
    "first_step_ratio",
    "judge",
    "quick_checks",
    "steady_ratio",
]

ROUNDING_OF_THE_SAME_SIZE = 3.0
"""Errors of one tensor within this factor are the same rounding: where a value is pure rounding (a bias
before a batch norm under Adam), neither compiler is closer to eager.
"""

NOT_COMPILED = "Not compiled"
UNEQUAL = frozenset({"Differs from eager", "Not verified"})
"""Headings of the closing table of `aotlens run --verify`."""

TELLING = ("MISMATCH", "differs", "not verified", "comparison failed", "raised ")
"""Words of the line that says why a run with `--verify` does not end like eager."""

Clock = Literal["cpu", "wall"]
State = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check, and its text in the table."""

    state: State
    text: str


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours and inductor's, in the same unit; None if either is unknown."""

    ours: float | None
    inductor: float | None

    @property
    def value(self) -> float | None:
        if not self.ours or not self.inductor:
            return None
        return self.ours / self.inductor


@dataclass(frozen=True, slots=True)
class Judged:
    """All checks of one program."""

    program: Program
    inductor_runs: bool
    """Whether the unchanged program runs under torch.compile: otherwise the targets do not apply."""
    exit_code: Check
    output: Check
    values: Check
    graphs: Check
    verify: Check
    steady: Ratio
    first_step: Ratio
    warm: Ratio
    memory: Ratio

    @property
    def same_end(self) -> bool:
        """Return True for the same exit code and output."""
        return self.exit_code.state == "pass" and self.output.state == "pass"


def judge(program: Program, measured: Measured, clock: Clock = "cpu") -> Judged:
    """Return every check from the measurements; times by the CPU's clock or the wall's."""
    clock = _clock_of(program, clock)
    eager, inductor = measured.first("eager"), measured.first("inductor")
    runs = eager is not None and inductor is not None and _exit(inductor) == _exit(eager) == 0
    pair = measured.first("aotlens"), inductor
    warm = measured.runs_of("aotlens-warm"), measured.runs_of("inductor-warm")
    return Judged(
        program,
        runs,
        _exit_codes(measured),
        _outputs(program, measured),
        _values(program, measured),
        _graphs(measured),
        _verify(measured),
        steady_ratio(program, measured.runs, clock),
        first_step_ratio(program, measured.runs, clock),
        Ratio(*(_least([_until_first_step(run, clock) for run in side]) for side in warm)),
        Ratio(*(None if run is None else run.peak_bytes for run in pair)),
    )


def quick_checks(program: Program, measured: Measured) -> tuple[Check, Check, Check]:
    """Return output, graphs and verdict of an eager run and one way `quick`; no compiler is measured."""
    eager, ours = measured.first("eager"), measured.first("quick")
    if eager is None or ours is None:
        return Check("unknown", "not run"), _graphs(measured), Check("unknown", "not run")
    difference = compare_output(ours.ran.stdout, eager.ran.stdout, program.tolerance)
    where = f"line {difference.line}: {difference.text}"
    output = Check("pass", "equal") if difference.equal else Check("fail", where)
    return output, _graphs(measured), _verdict_of(ours, eager)


def steady_ratio(program: Program, runs: Sequence[Run], clock: Clock = "cpu") -> Ratio:
    """Return the seconds of a compiled step, from the cold runs and the warm ones."""
    sides = [[run for run in runs if run.way in (way, f"{way}-warm")] for way in ("aotlens", "inductor")]
    return Ratio(*(_steady(side, _clock_of(program, clock)) for side in sides))


def first_step_ratio(program: Program, runs: Sequence[Run], clock: Clock = "cpu") -> Ratio:
    """Return the seconds of the first step with empty caches, the best of the runs."""
    sides = [[run for run in runs if run.way in (way, f"{way}-cold")] for way in ("aotlens", "inductor")]
    return Ratio(*(_least([_first_step(run, _clock_of(program, clock)) for run in side]) for side in sides))


def _clock_of(program: Program, clock: Clock) -> Clock:
    """Return the wall clock for other processes: their CPU time is known only when they have ended."""
    return "wall" if program.processes > 1 else clock


def _exit(run: Run) -> int | str:
    return "time limit" if run.ran.timed_out else run.ran.exit_code


def _exit_codes(measured: Measured) -> Check:
    eager, inductor, ours = (measured.first(way) for way in ("eager", "inductor", "aotlens"))
    if eager is None or inductor is None or ours is None:
        return Check("unknown", "not run")
    codes = [_exit(run) for run in (eager, inductor, ours)]
    if codes[0] == codes[2] or codes[1] == codes[2]:
        return Check("pass", str(codes[2]))
    return Check("fail", f"{codes[2]}, eager {codes[0]}, inductor {codes[1]}")


def _outputs(program: Program, measured: Measured) -> Check:
    eager, inductor, ours = (measured.first(way) for way in ("eager", "inductor", "aotlens"))
    if eager is None or inductor is None or ours is None:
        return Check("unknown", "not run")
    mine, theirs = (
        compare_output(run.ran.stdout, eager.ran.stdout, program.tolerance) for run in (ours, inductor)
    )
    if mine.equal:
        return Check("pass", "equal")
    if compare_output(ours.ran.stdout, inductor.ran.stdout, program.tolerance).equal:
        return Check("pass", "as inductor")
    if mine.relative <= theirs.relative < float("inf"):
        return Check("pass", f"{mine.relative:.0e} off, inductor {theirs.relative:.0e}")
    return Check("fail", _difference(mine, theirs))


def _difference(mine: Difference, theirs: Difference) -> str:
    other = "equal" if theirs.equal else f"{theirs.relative:.0e} off"
    return f"line {mine.line}: {mine.text} (inductor: {other})"


def _values(program: Program, measured: Measured) -> Check:
    ours, inductor = (measured.values.get(way, Values()) for way in ("aotlens", "inductor"))
    if not ours.tensors:
        return Check("unknown", "none observed")
    text = f"{_worst(ours):.0e} / {_worst(inductor):.0e}" if inductor.tensors else f"{_worst(ours):.0e} / –"
    own = [name for name in ours.missing if name not in inductor.missing]  # else Dynamo leaves it out
    if own:
        return Check("fail", f"{text}; only in one run: {', '.join(own[:3])}")
    if ours.missing:
        text += f"; as inductor, without {', '.join(ours.missing[:3])}"
    theirs = {tensor.name: tensor.error for tensor in inductor.tensors}
    beyond = [
        tensor
        for tensor in ours.tensors
        if tensor.error > _allowed(tensor, program)
        and not tensor.error <= ROUNDING_OF_THE_SAME_SIZE * theirs.get(tensor.name, 0.0)
    ]
    if not beyond:
        return Check("pass", text)
    worst = max(beyond, key=lambda tensor: tensor.error)
    return Check("fail", f"{text} (`{worst.name}` {worst.error:.0e} / {theirs.get(worst.name, 0.0):.0e})")


def _worst(values: Values) -> float:
    return max(tensor.error for tensor in values.tensors)


def _allowed(tensor: TensorError, program: Program) -> float:
    return program.tolerance or TOLERANCES.get(tensor.dtype, 0.0)


def _graphs(measured: Measured) -> Check:
    graphs = measured.graphs
    if graphs is None:
        return Check("unknown", "no report")
    by_engine = [entry for entry in graphs.not_compiled if entry.by_engine]
    breaks = len(graphs.not_compiled) - len(by_engine)
    count = f"{graphs.compiled}; {breaks} that Dynamo leaves to eager" if breaks else str(graphs.compiled)
    if not by_engine:
        return Check("pass" if graphs.compiled else "fail", count)
    first = by_engine[0]
    more = f" (+{len(by_engine) - 1})" if len(by_engine) > 1 else ""
    reason = f"{first.code} {first.name} {first.location}: {first.reason}"
    return Check("fail", f"{count}; not compiled: {reason}{more}")


def _verify(measured: Measured) -> Check:
    eager, run = measured.first("eager"), measured.first("verify") or measured.first("quick")
    if eager is None or run is None:
        return Check("unknown", "not run")
    check = _verdict_of(run, eager)
    return check if run.way == "verify" else replace(check, text=f"{check.text} with eager's kernels")


def _verdict_of(run: Run, eager: Run) -> Check:
    if _exit(run) == _exit(eager):
        return Check("pass", "equal")
    headings = set(run.ran.stderr_tail.splitlines())
    if _exit(run) == 1 and NOT_COMPILED in headings and not headings & UNEQUAL:
        return Check("pass", "equal where compiled")  # the rest is eager: column `graphs` counts it
    return Check("fail", f"exit {_exit(run)}: {_last_words(run.ran.stderr_tail)}")


def _last_words(text: str) -> str:
    """Return the line that says what is wrong, in at most 200 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line for word in TELLING)]
    return ((telling or lines or [""])[0 if telling else -1])[:200]


def _clock(line: Line, clock: Clock) -> float:
    return line.tree_cpu_s if clock == "cpu" else line.wall_s


def _clocked(run: Run) -> tuple[Line, ...]:
    """Return the lines; empty if the clocks were not recorded."""
    return run.ran.lines if run.ran.lines and run.ran.lines[0].wall_s else ()


def _first_step(run: Run, clock: Clock) -> float | None:
    """Return the seconds from the line that says the program is set up to the line of its first step."""
    lines = _clocked(run)
    return _clock(lines[1], clock) - _clock(lines[0], clock) if len(lines) > 1 else None


def _until_first_step(run: Run, clock: Clock) -> float | None:
    """Return the seconds from the start of the process to the line of its first step."""
    lines = _clocked(run)
    return _clock(lines[1], clock) if len(lines) > 1 else None


def _steady(runs: Sequence[Run], clock: Clock) -> float | None:
    """Return the median seconds of a step over the second half of the steps, each the best of the runs."""
    each = [times for run in runs if len(times := _steps(run, clock)) > 2]
    if not each:
        return None
    best = [min(times) for times in zip(*each, strict=False)]
    return median(best[len(best) // 2 :])


def _steps(run: Run, clock: Clock) -> list[float]:
    """Return the seconds of each step but the first."""
    lines = _clocked(run)[1:]
    times = [line.thread_cpu_s if clock == "cpu" else line.wall_s for line in lines]
    return [after - before for before, after in pairwise(times)]


def _least(times: list[float | None]) -> float | None:
    """Return the best of the rounds: disturbances only make a run slower."""
    return min((time for time in times if time is not None), default=None)

"""Write `docs/real-programs.md`: the targets with the measurements, then one row per program.

Invariant: every program has a row; one that was not run says so and does not count in the figures above.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from corpus.program import GROUPS, Program
from corpus.quick import QuickRow
from corpus.verdicts import Check, Clock, Judged, Ratio

__all__ = ["page", "quick_section"]

INTRODUCTION = """# Real programs

`make corpus` writes this page. Each program in `corpus/programs` is run unmodified in three ways: with
`torch.compile` disabled (eager), as written (inductor), and under `aotlens run`. Every compiler starts with
empty caches of its own; then a second process of each runs with what the first one left.

{state}

{checks}

{clock}
"""

CHECKS = (
    ("exit", "the exit code under `aotlens run` is the script's own"),
    ("output", "stdout equals eager's line by line; a number may differ by one in the last printed digit."),
    ("", "`as inductor`: equal to inductor's, which differs from eager's."),
    ("", "`x off`: the largest relative difference, which is not larger than inductor's."),
    (
        "values",
        "parameters, gradients and buffers at exit: largest relative error against eager, ours / inductor's.",
    ),
    ("", "A tensor fails beyond its dtype's tolerance and three times inductor's error of that tensor."),
    ("graphs", "how many graphs the engine compiled, and which it did not, with the reason"),
    ("verify", "the verdict of `aotlens run --verify`; `with eager's kernels`: under `--backend eager`,"),
    ("", "since Inductor does not compile the program within ten minutes"),
    ("steady", "a step, ours / inductor: median of the second half of the steps, each the best of the runs;"),
    ("", "where that is above 1.05, both are run up to four times more, to tell noise from a slower program"),
    ("first step", "from the line that says the program is set up to its first step's, both caches cold;"),
    (
        "",
        "where that is above 1.15, both start up to twice more with empty caches; the best of each counts",
    ),
    ("second process", "from the start of a second process to the line of its first step"),
    (
        "memory",
        "largest sum of tensors allocated at a time in the last two steps, as torch's allocator counts",
    ),
)
"""The columns of the table; a row without a name continues the one above."""

CLOCKS: dict[Clock, str] = {
    "cpu": "Times are times on the CPU with one thread each, compilers that are started included, since the "
    "machine is shared; programs with two processes are timed by the wall clock.",
    "wall": "Times are wall-clock times with one thread each.",
}

WORST_STEADY = 1.1
WORST_FIRST_STEP = 1.2
"""The targets for a single program; second process and memory have one for the median only."""

QUICK = """`python -m corpus --quick` ran these in eager and under `aotlens run --verify --backend eager`: our
graphs, with eager's kernels. It says whether the program prints what eager prints, which graphs were
compiled, and whether each equals eager; it measures no times and builds no kernels. `equal where compiled`:
Dynamo left the rest to eager.
"""

BY_MODE = """
Training has a partition, which saves fewer bytes than torch's by default. For that, the backward recomputes
values that its matrix products read, in kernels of their own: a step takes less memory, and the first step
builds more kernels, some for each kind of layer. It builds them in groups, one library for each thread that
compiles, in about half the time of one library for each. `--policy default` recomputes nothing.

| median, ours / inductor | programs | steady | first step | second process | memory |
|---|--:|--:|--:|--:|--:|"""
QUICK_HEADER = "| program | mode | output | graphs | verify |\n|---|---|---|---|---|"

HEADER = (
    "| program | mode | exit | output | values | graphs | verify | steady | first step | second process "
    "| memory | why not |\n|---|---|---|---|---|---|---|--:|--:|--:|--:|---|"
)


def page(
    programs: Sequence[Program],
    judged: Mapping[str, Judged],
    notes: Mapping[str, str],
    clock: Clock,
    outdated: int = 0,
) -> str:
    """Return the document; `outdated` rows were measured with another engine or other libraries."""
    rows = [judged[program.name] for program in programs if program.name in judged]
    measurable = [row for row in rows if row.inductor_runs]
    unmeasured = len(rows) - len(measurable)
    state = f"{len(rows)} of {len(programs)} programs were run."
    if len(rows) < len(programs):
        state += f" `not run` marks the other {len(programs) - len(rows)}; the targets say nothing of them."
    if outdated:
        state += f" Rows measured with an earlier state of the engine, or with other libraries: {outdated}."
    if unmeasured:
        state += (
            f" {unmeasured} do not run under torch.compile as installed here, so the targets leave them out."
        )
    parts = [
        INTRODUCTION.format(state=state, checks=_legend(), clock=CLOCKS[clock]),
        "## Targets\n",
        _targets(measurable),
        _by_mode(measurable),
    ]
    for group in GROUPS:
        members = [program for program in programs if program.group == group]
        if members:
            parts += [f"\n## {group.capitalize()}\n", HEADER]
            parts += [_row(program, judged.get(program.name), notes) for program in members]
    return "\n".join(parts) + "\n"


def quick_section(programs: Sequence[Program], rows: Mapping[str, QuickRow]) -> str:
    """Return the programs that were only checked; empty if there are none."""
    members = [program for program in programs if program.name in rows]
    if not members:
        return ""
    fine = sum(not rows[program.name].failures for program in members)
    state = f"{fine} of {len(members)} pass every check.\n"
    lines = [_quick_row(program, rows[program.name]) for program in members]
    return "\n".join(["\n## Checked without times\n", QUICK, state, QUICK_HEADER, *lines]) + "\n"


def _quick_row(program: Program, row: QuickRow) -> str:
    cells = (_check(row.output), _check(row.graphs), _check(row.verify))
    return f"| {_link(program)} | {program.mode} | {' | '.join(cells)} |"


def _legend() -> str:
    meanings: dict[str, str] = {}
    for name, meaning in CHECKS:
        last = name or next(reversed(meanings))
        meanings[last] = f"{meanings.get(last, '')} {meaning}".strip()
    lines = [f"| {name} | {meaning} |" for name, meaning in meanings.items()]
    return "\n".join(["| check | meaning |", "|---|---|", *lines])


def _targets(rows: Sequence[Judged]) -> str:
    worse = sum(row.values.state == "fail" for row in rows)
    entries = (
        (
            "programs that run under torch.compile and end with the same exit code and output",
            "100 %",
            _share(rows, lambda row: row.same_end),
        ),
        (
            "programs in which our engine compiles every graph",
            "at least 95 %",
            _share(rows, lambda row: row.graphs.state == "pass"),
        ),
        (
            "programs whose error against eager exceeds inductor's error",
            "0",
            str(worse) if rows else "not run",
        ),
        ("steady-state time, ours / inductor", "median at most 1.0, worst 1.1", _spread(rows, _steady)),
        (
            "first step, ours / inductor, both caches cold",
            "median at most 1.0, worst 1.2",
            _spread(rows, _first),
        ),
        ("second process (warm start), ours / inductor", "median at most 1.0", _spread(rows, _warm)),
        ("peak memory of a step, ours / inductor", "median at most 1.0", _spread(rows, _memory)),
    )
    return "\n".join(["| | target | measured |", "|---|---|---|", *(f"| {' | '.join(e)} |" for e in entries)])


def _by_mode(rows: Sequence[Judged]) -> str:
    """Return the medians of training and inference, which differ because only training has a partition."""
    lines = [BY_MODE]
    for mode in ("training", "inference"):
        members = [row for row in rows if row.program.mode == mode]
        cells = [_median(members, ratio) for ratio in (_steady, _first, _warm, _memory)]
        lines.append(f"| {mode} | {len(members)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _median(rows: Sequence[Judged], ratio: Callable[[Judged], Ratio]) -> str:
    values = [value for row in rows if (value := ratio(row).value) is not None]
    return f"{median(values):.2f}" if values else "–"


def _steady(row: Judged) -> Ratio:
    return row.steady


def _first(row: Judged) -> Ratio:
    return row.first_step


def _warm(row: Judged) -> Ratio:
    return row.warm


def _memory(row: Judged) -> Ratio:
    return row.memory


def _share(rows: Sequence[Judged], passes: Callable[[Judged], bool]) -> str:
    if not rows:
        return "not run"
    passed = sum(passes(row) for row in rows)
    return f"{passed} of {len(rows)} ({100 * passed / len(rows):.0f} %)"


def _spread(rows: Sequence[Judged], ratio: Callable[[Judged], Ratio]) -> str:
    values = {row.program.name: value for row in rows if (value := ratio(row).value) is not None}
    if not values:
        return "not measured"
    worst = max(values, key=lambda name: values[name])
    return f"median {median(values.values()):.2f}, worst {values[worst]:.2f} (`{worst}`), of {len(values)}"


def _row(program: Program, row: Judged | None, notes: Mapping[str, str]) -> str:
    link = _link(program)
    note = _cell(notes.get(program.name, ""))
    if row is None:
        return f"| {link} | {program.mode} |" + " not run |" + " |" * 8 + f" {note} |"
    if not row.inductor_runs and not note:
        note = "does not run under torch.compile here"
    checks = (row.exit_code, row.output, row.values, row.graphs, row.verify)
    times = (
        _ratio(row.steady, _duration, WORST_STEADY),
        _ratio(row.first_step, _duration, WORST_FIRST_STEP),
        _ratio(row.warm, _duration),
    )
    cells = [*map(_check, checks), *times, _ratio(row.memory, _size)]
    unmet = any(cell.startswith("**") for cell in cells)
    return f"| {link} | {program.mode} | " + " | ".join([*cells, note or "**not explained**" * unmet]) + " |"


def _link(program: Program) -> str:
    return f"[{program.path.stem}](../corpus/programs/{program.name}.py)"


def _check(check: Check) -> str:
    text = _cell(check.text)
    return f"**{text}**" if check.state == "fail" else text


def _cell(text: str) -> str:
    """Return text that cannot end a cell of the table."""
    return " ".join(text.replace("|", "\\|").split())


def _ratio(ratio: Ratio, shown: Callable[[float], str], worst: float | None = None) -> str:
    if ratio.value is None or ratio.ours is None or ratio.inductor is None:
        return "–"
    text = f"{ratio.value:.2f} ({shown(ratio.ours)} / {shown(ratio.inductor)})"
    return f"**{text}**" if worst is not None and ratio.value > worst else text


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:.1f} MiB" if size_bytes >= 2**20 else f"{size_bytes / 2**10:.0f} KiB"

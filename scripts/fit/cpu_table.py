"""Compare the peaks that `aotlens fit` predicts with torch's CPU allocator, and write the table.

    python scripts/fit/cpu_table.py [--write] [SCRIPT…]

Each script runs twice in processes of its own: on fake tensors until its steps repeat, and on real tensors
for as many steps under torch's profiler, whose events give the peak of the last step.  A script whose sizes
depend on data runs on real tensors both times, which the table says.  Both run what the script compiles with
the engine's backend `eager`.
"""

import argparse
import gc
import importlib
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aotlens.errors import UserError
from aotlens.model.fit import Fit
from aotlens.view.quantities import human_bytes
from scripts.docs.marked_tables import write_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "fit.md"
BEGIN, END = "<!-- written by scripts/fit/cpu_table.py -->", "<!-- end of the table -->"
SECONDS = 240
WORKERS = 2
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Some kernels allocate per thread."""
EXAMPLES = ("examples/train_gpt.py", "examples/batchnorm_cnn.py")
RECIPES = "corpus/programs/recipes"
NEEDS_VALUES = "add --real"
"""In the error of a script whose sizes depend on data."""
SEVERAL_PROCESSES = "processes=2"
AnyRow = TypeVar("AnyRow")


@dataclass(frozen=True, slots=True)
class Row:
    """One script; `problem` says why it has no figures."""

    script: str
    predicted: int = 0
    measured: int = 0
    problem: str = ""
    is_real: bool = False
    """Whether the prediction needs real tensors."""

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def main() -> int:
    """Measure, print, and write the table if requested."""
    arguments = script_arguments()
    rows = rows_of(compared, arguments.scripts or (*EXAMPLES, *recipes()), _line)
    if arguments.write:
        write_table(PAGE, BEGIN, END, table(rows))
    return 0


def script_arguments() -> argparse.Namespace:
    """Parse the command line of a table whose rows are scripts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("scripts", nargs="*")
    return parser.parse_args()


def rows_of(
    measure: Callable[[str], AnyRow | None],
    scripts: Iterable[str],
    line: Callable[[AnyRow], str],
    workers: int = WORKERS,
) -> list[AnyRow]:
    """Measure the scripts, print the line of each, and return the rows of those that are not left out."""
    os.environ.update(ONE_THREAD)
    for module in ("torch._dynamo", "torch.profiler", "aotlens.fit.child"):
        importlib.import_module(module)  # before the processes that need it are forked
    rows = []
    with ThreadPoolExecutor(workers) as pool:
        for row in pool.map(measure, scripts):
            if row is not None:
                rows.append(row)
                print(line(row), flush=True)
    return rows


def recipes() -> Iterator[str]:
    """Yield the recipes that train in one process."""
    for path in sorted((ROOT / RECIPES).glob("*.py")):
        note = _note(path)
        if "mode=training" in note and SEVERAL_PROCESSES not in note:
            yield f"{RECIPES}/{path.name}"


def _note(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith("# corpus:")), "")


def argv_of(script: str) -> list[str]:
    """Return the arguments that the note in a script states."""
    return shlex.split(_note(ROOT / script).partition("args=")[2])


def compared(script: str) -> Row:
    """Predict, then measure the same step."""
    words = argv_of(script)
    fit, problem = in_fork(lambda: predicted(script, words, is_real=False))
    is_real = NEEDS_VALUES in problem
    if is_real:
        fit, problem = in_fork(lambda: predicted(script, words, is_real=True))
    if problem:
        return Row(script, problem=problem)
    if not fit.step:
        return Row(script, problem="no optimizer step")
    size_bytes, problem = in_fork(lambda: measured(script, words, *calls_of(fit)))
    if problem:
        return Row(script, problem=problem)
    return Row(script, fit.step_peak_bytes, size_bytes, is_real=is_real)


def predicted(script: str, argv: Sequence[str], is_real: bool) -> Fit:
    """Return what `aotlens fit` reports."""
    from aotlens.fit.child import fit_script
    from aotlens.fit.job import FitJob

    end, report = fit_script(FitJob(script, tuple(argv), is_real=is_real))
    if end.failure is not None or report.fit is None:
        raise UserError(end.failure.message if end.failure is not None else "no report")
    return report.fit


def calls_of(fit: Fit) -> tuple[int, int]:
    """Return the calls of `step` until the end of the displayed step, and in it."""
    return fit.step * fit.calls_per_step, fit.calls_per_step


def in_fork(work: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of work in a process of its own, and the reason if there is none."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(work, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(SECONDS):
            return None, f"not done after {SECONDS} s"
        answer: tuple[Any, str] = receiver.recv()
        return answer
    except EOFError:
        return None, "the process ended without a result"
    finally:
        process.kill()
        process.join()


def _send(work: Callable[[], Any], sender: Any) -> None:
    os.chdir(ROOT)
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    try:
        answer = work(), ""
    except BaseException as error:  # noqa: BLE001 (a script may raise anything)
        answer = None, f"{type(error).__name__}: {error}".splitlines()[0].removeprefix("UserError: ")
    sender.send(answer)


def measured(script: str, argv: Sequence[str], calls: int, length: int) -> int:
    """Return the peak of bytes during the last `length` of `calls` calls of `step`."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.profiler import ProfilerActivity, profile

    from aotlens.session.collector import Collector, StopScript
    from aotlens.session.compile_router import CompileRouter, intercepting_compile
    from aotlens.session.script.source import load_script, new_module, run_script
    from aotlens.torch_api.fake.process_groups import in_backward

    ends: list[int] = []
    collector = Collector(script)
    watched = [0]

    def after_step(*ignored: Any) -> None:
        if in_backward():  # a hook updates one parameter
            return
        if len(collector.compiled) != watched[0]:  # as the prediction does, where a compilation leaves cycles
            watched[0] = len(collector.compiled)
            gc.collect()
        ends.append(time.time_ns())
        if len(ends) == calls:
            raise StopScript

    register_optimizer_step_post_hook(after_step)
    loaded = load_script(script)
    module = new_module(loaded, "__main__")
    router = CompileRouter.for_observation(collector)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        try:
            with collector.listening(), intercepting_compile(router):
                run_script(loaded, module, tuple(argv))
        except StopScript:
            pass
    return peak_of(profiler, ends[-1 - length] if len(ends) > length else 0, ends[-1])


def peak_of(profiler: Any, first_ns: int, last_ns: int) -> int:
    """Return the peak within the window, counting memory that was alive before it."""
    live = peak = 0
    for event in profiler.profiler.kineto_results.events():  # by time
        if event.name() != "[memory]" or event.start_ns() > last_ns:
            continue
        live += event.nbytes()
        if event.start_ns() >= first_ns:
            peak = max(peak, live)
    return peak


def table(rows: Sequence[Row]) -> str:
    """Return Markdown, with scripts without figures and their reasons below."""
    done = sorted((row for row in rows if not row.problem), key=lambda row: abs(row.error))
    within = [sum(abs(row.error) <= limit for row in done) for limit in (0.05, 0.10)]
    return table_text(
        f"{len(done)} scripts: {within[0]} within 5 %, {within[1]} within 10 %.",
        ("predicted", "measured", "predicted / measured"),
        map(_table_row, done),
        ((row.script, row.problem) for row in rows),
    )


def table_text(
    summary: str, columns: Sequence[str], rows: Iterable[str], problems: Iterable[tuple[str, str]]
) -> str:
    """Return a summary, a table of scripts, and each script that has a problem instead of figures."""
    head = [summary, "", f"| script | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    missing = [f"- `{script}`: {problem}" for script, problem in problems if problem]
    return "\n".join((*head, *rows, *(("", "Not compared:", "", *missing) if missing else ())))


def _table_row(row: Row) -> str:
    script = f"`{row.script}`" + (", with `--real`" if row.is_real else "")
    sizes = f"{human_bytes(row.predicted)} | {human_bytes(row.measured)}"
    return f"| {script} | {sizes} | {1 + row.error:.3f} |"


def _line(row: Row) -> str:
    if row.problem:
        return f"{row.script}: {row.problem}"
    return f"{row.script}: {row.predicted} predicted, {row.measured} measured, {100 * row.error:+.1f} %"


if __name__ == "__main__":
    sys.exit(main())

"""Time the five tasks of docs/tasks.md on real scripts, and write the table there.

    python scripts/docs/task_times.py [NAME…] [--write]

Each begins with empty caches in a terminal of its own (tmux), as a user would: the command is started, each
key is sent once the screen shows what it acts on, and the clock stops when the screen shows the answer.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.harness import cpu_name  # noqa: E402
from scripts.docs.marked_tables import write_table  # noqa: E402
from tests.tui.terminal import new_terminal  # noqa: E402

PAGE = ROOT / "docs" / "tasks.md"
BEGIN, END = "<!-- times: python scripts/docs/task_times.py --write -->", "<!-- /times -->"
AOTLENS = (sys.executable, "-m", "aotlens")
COLUMNS, LINES = 146, 42
LIMIT_S = 180.0
LOOK_S = 0.05
CACHES = ("AOTLENS_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@dataclass(frozen=True, slots=True)
class Step:
    """Something to wait for, and the keys that follow it."""

    shown: str
    """A regular expression for the screen."""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A question, and how it is answered."""

    name: str
    question: str
    command: tuple[str, ...]
    """The words after `aotlens`."""
    steps: tuple[Step, ...]
    """The last is the answer."""
    on_branch: bool = False
    """Whether it runs in a repository whose branch differs from `main`."""


TASKS = (
    Task(
        "saved",
        "the largest saved value, and its cost",
        ("tui", "examples/train_gpt.py"),
        (
            Step("traced in", ("5",)),
            Step("MiB in .* values", ("f",)),
            Step(r"what if(?s:.*)recomputed .*FLOP →"),
        ),
    ),
    Task(
        "copy",
        "the line that causes a copy",
        ("tui", "examples/aliasing.py::mutation_with_gradient"),
        (
            Step("traced in", ("7",)),
            Step("copy back mutated", ("o",)),
            Step(r"› \+ +copy back mutated"),
        ),
    ),
    Task(
        "recompiles",
        "why a function recompiles",
        ("tui", "examples/slow_start.py"),
        (Step("traced in", ("w",)), Step(r"the guard `self\.step == 0` failed")),
    ),
    Task(
        "changed",
        "what changed since `main`",
        ("diff", "--git", "main...HEAD", "examples/train_gpt.py"),
        (Step(r"GPT\.forward(?!: no difference)(?s:.*)ended \d"),),
        on_branch=True,
    ),
    Task(
        "kernel",
        "the slowest backward kernel on an H100",
        ("tui", "examples/train_gpt.py", "--gpu", "h100"),
        (
            Step("traced in", ("8",)),
            Step("generated kernels", ("o",)),
            Step("µs▼", ("/", "backward", "Enter")),
            Step(r"›[^\n]* bw (?s:.*)not fused with"),
        ),
    ),
)
EDIT = ("self.dropout(scores.softmax(-1))", "scores.softmax(-1)")
"""The change of the branch."""


def main() -> None:
    parser = argparse.ArgumentParser(description="time the tasks of docs/tasks.md", allow_abbrev=False)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    arguments = parser.parse_args()
    chosen = [task for task in TASKS if not arguments.names or task.name in arguments.names]
    seconds = {task.name: timed(task) for task in chosen}
    text = table(chosen, seconds)
    print(text)
    if arguments.write:
        write_table(PAGE, BEGIN, END, text)


def timed(task: Task) -> tuple[float, ...]:
    """Return the seconds from the start of the command until each step's text is on the screen."""
    with tempfile.TemporaryDirectory() as scratch, contextmanager(new_terminal)(Path(scratch)) as terminal:
        folder = changed_repository(Path(scratch) / "repository") if task.on_branch else ROOT
        caches = [f"{name}={scratch}/{name}" for name in CACHES]
        command = ["env", *caches, *AOTLENS, *task.command]
        shell = f"unset COLUMNS LINES; {' '.join(command)}; echo ended $?; exec sleep 600"
        began = time.monotonic()
        terminal.tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), "-c", str(folder), shell)
        reached = []
        for step in task.steps:
            while not re.search(step.shown, screen := terminal.screen()):
                if time.monotonic() - began > LIMIT_S:
                    raise SystemExit(f"{task.name}: the screen never showed {step.shown!r}:\n{screen}")
                time.sleep(LOOK_S)
            reached.append(time.monotonic() - began)
            for key in step.keys:
                terminal.keys(key)
        print(f"{task.name}: {', '.join(f'{second:.1f} s' for second in reached)}", flush=True)
        print(terminal.screen(), flush=True)
    return tuple(reached)


def changed_repository(folder: Path) -> Path:
    """Return a repository with the examples, whose branch drops a dropout of the GPT."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    variables = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull}
    who = ("-c", "user.name=aotlens", "-c", "user.email=aotlens@localhost")

    def git(*words: str) -> None:
        subprocess.run(["git", *who, *words], cwd=folder, env=variables, check=True, capture_output=True)

    git("init", "-b", "main")
    git("add", ".")
    git("commit", "-m", "Start")
    git("switch", "-c", "without-dropout")
    script = folder / "examples" / "train_gpt.py"
    text = script.read_text(encoding="utf-8")
    if EDIT[0] not in text:
        raise SystemExit(f"{script} has no {EDIT[0]}")
    script.write_text(text.replace(*EDIT), encoding="utf-8")
    git("commit", "-am", "Drop a dropout")
    return folder


def table(tasks: list[Task], seconds: dict[str, tuple[float, ...]]) -> str:
    """Return the measured times, with the machine."""
    machine = f"{cpu_name()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    rows = [
        f"| {task.question} | `aotlens {' '.join(task.command)}` | {seconds[task.name][-1]:.0f} s |"
        for task in tasks
    ]
    head = ["| task | measured with | until the answer |", "|---|---|---:|"]
    return "\n".join([*head, *rows, "", f"From the start of the command, with empty caches ({machine})."])


if __name__ == "__main__":
    main()

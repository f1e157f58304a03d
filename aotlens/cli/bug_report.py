"""Write the bug report of `aotlens doctor --report`: everything needed to examine a fault, as Markdown.

Invariant: user code runs only in its own processes, and a fault in one of them is a line of the report.
"""

import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from aotlens.cli.targets import TargetName
from aotlens.cli.trace_target import trace_target
from aotlens.errors import UserError
from aotlens.model.codec import dumps
from aotlens.model.failure import Failure
from aotlens.model.report import Report
from aotlens.model.source import Span
from aotlens.render.anonymous import Anonymiser
from aotlens.view.quantities import human_bytes, limit_text
from aotlens.worker.protocol import TraceOptions
from aotlens.worker.stacks import is_user_file

__all__ = ["BugReport", "Program", "collect", "json_file", "written"]

TIME_LIMIT_S = 600.0
LARGEST_INLINE = 40_000
"""Characters of JSON that fit into an issue with the rest; an issue holds 65,536."""
MINIMISED = "Minimised by `aotlens verify --minimise`"
LONGEST_PROGRAM = 150
"""The longest script, in lines, that a report includes."""
SETTINGS = re.compile(r"AOTLENS_|TORCH|PYTORCH_|TRITON_|OMP_|MKL_|CUDA_|CXX$|CC$|PYTHONHASHSEED$")
"""Environment variables that affect a trace."""


@dataclass(frozen=True, slots=True)
class Program:
    """The code that shows the fault."""

    source: str
    about: str
    """Its origin, or why there is none, in one sentence."""


@dataclass(frozen=True, slots=True)
class BugReport:
    """The parts of a report."""

    installed: str
    """The rows of `aotlens doctor`."""
    settings: Mapping[str, str]
    command: str
    verdict: str
    """The output of `aotlens verify`; empty without a target."""
    failure: Failure | None
    program: Program
    report: Report | None


def collect(
    target: TargetName | None, argv: Sequence[str], options: TraceOptions, installed: str
) -> BugReport:
    """Trace the target and compare it with eager, each in its own process."""
    settings = {name: value for name, value in sorted(os.environ.items()) if SETTINGS.match(name)}
    if target is None:
        about = "No program: `aotlens doctor --report SCRIPT` adds a trace of the script."
        return BugReport(installed, settings, "", "", None, Program("", about), None)
    traced = trace_target(target, list(argv), options, TIME_LIMIT_S, fresh=True)
    verdict, small = _verified(target, argv, options)
    program = _small(small, target.path) if small else _script(target.path)
    words = [str(target), *argv]
    command = f"aotlens doctor --report --backend {options.backend} {' '.join(words)}"
    return BugReport(installed, settings, command, verdict, traced.failure, program, traced.report)


def _verified(target: TargetName, argv: Sequence[str], options: TraceOptions) -> tuple[str, str]:
    """Return the output of `aotlens verify` and the small script that it wrote; empty if nothing differs."""
    with tempfile.TemporaryDirectory(prefix="aotlens-report-") as folder:
        small = Path(folder, "small.py")
        own = ["--backend", options.backend, "--policy", options.policy, "--minimise", str(small)]
        own += ["--dynamic"] if options.dynamic else []
        command = [sys.executable, "-m", "aotlens", "verify", *own, str(target), "--", *argv]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=TIME_LIMIT_S,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"aotlens verify was stopped after {limit_text(TIME_LIMIT_S)}", ""
        output = done.stdout.strip() or done.stderr.strip()
        return f"{output}\nexit code {done.returncode}", small.read_text() if small.exists() else ""


def _small(small: str, path: str) -> Program:
    """Return the minimised script and the definitions that it loads."""
    about = f"{MINIMISED}."
    if "runpy.run_path(" not in small:
        return Program(small, about)
    script = _script(path)
    about = f"{MINIMISED}; it loads the definitions of `{path}`{', which follow' if script.source else ''}."
    return Program(f"{small}\n\n# {path}\n{script.source}" if script.source else small, about)


def _script(path: str) -> Program:
    """Return the script itself if it is short enough."""
    source = Path(path).read_text(encoding="utf-8", errors="replace")
    lines = len(source.splitlines())
    if lines <= LONGEST_PROGRAM:
        return Program(source, f"`{path}` unchanged: no difference from eager could be minimised.")
    about = f"`{path}` has {lines} lines. Reduce it to what still fails, and run this command again."
    return Program("", about)


# The text


def written(bug: BugReport, file: str | None, anonymous: bool) -> tuple[str, str | None]:
    """Return the Markdown, and the JSON of a report that is too large for it and needs its own file."""
    hidden = _anonymiser(bug) if anonymous else None
    text = hidden.text if hidden is not None else str
    report = hidden.report(bug.report) if hidden is not None and bug.report is not None else bug.report
    program = bug.program.source
    if hidden is not None and program:
        program = hidden.program(program)
    data = dumps(report) if report is not None else ""
    attachment = data if len(data) > LARGEST_INLINE else None
    parts = [
        "# aotlens bug report\n\nWhat I did, what I expected, and what happened instead: …",
        f"## Installed\n\n{_block(text(bug.installed))}",
        f"## Settings\n\n{_block(text(_lines(bug.settings)))}" if bug.settings else "",
        f"## Command\n\n{_block(text(bug.command))}" if bug.command else "",
        *(f"## {title}\n\n{_block(text(body))}" for title, body in _outcome(bug)),
        f"## Program\n\n{text(bug.program.about)}\n\n{_block(program, 'python') if program else ''}",
        _report_part(data, attachment, file) if data else "",
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n", attachment


def _outcome(bug: BugReport) -> Iterator[tuple[str, str]]:
    if bug.failure is not None:
        yield "Failure", f"{bug.failure.kind}: {bug.failure.message}\n{bug.failure.traceback}"
    if bug.verdict:
        yield "Compared with eager", bug.verdict


def _lines(settings: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in settings.items())


def _block(text: str, language: str = "text") -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.strip()}\n{fence}"


def _report_part(data: str, attachment: str | None, file: str | None) -> str:
    if attachment is None:
        return f"## Report\n\n<details><summary>JSON</summary>\n\n{_block(data, 'json')}\n\n</details>"
    size = human_bytes(len(data.encode()))
    if file is None:
        return (
            f"## Report\n\nIts JSON ({size}) is too large for an issue: `-o FILE` writes it beside the text."
        )
    return f"## Report\n\nAttached as `{json_file(file).name}` ({size})."


def json_file(file: str) -> Path:
    """Return the file for a report that is too large for the text."""
    return Path(file).with_suffix(".json")


# Names and paths


def _anonymiser(bug: BugReport) -> Anonymiser:
    sources = {path: _read(path) for path in _user_files(bug)}
    if bug.program.about.startswith(MINIMISED):
        sources["minimised.py"] = bug.program.source
    people = {platform.node(): "host", str(Path.home()): "~", os.getcwd(): "."}
    with suppress(KeyError, OSError):  # a container may have no name for its user
        people[getuser()] = "user"
    return Anonymiser(sources, public_names(), {key: value for key, value in people.items() if len(key) > 1})


def _user_files(bug: BugReport) -> dict[str, None]:
    """Return the user's files that the report or the failure names."""
    files = {} if bug.report is None else {span.file: None for span in _spans(bug.report)}
    if bug.failure is not None and bug.failure.file is not None:
        files[bug.failure.file] = None
    return {file: None for file in files if is_user_file(str(Path(file).resolve()))}


def _spans(value: object) -> Iterator[Span]:
    """Yield every span in a record."""
    if isinstance(value, Span):
        yield value
    elif isinstance(value, tuple):
        for entry in value:
            yield from _spans(entry)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _spans(getattr(value, name))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"cannot read {path}, whose names must be replaced: {error.strerror}") from error


def public_names() -> frozenset[str]:
    """Return names that reveal nothing of the user's program: torch's functions and their parameters."""
    try:
        import torch  # takes seconds, and is needed only for names
    except ImportError:
        return frozenset()
    nn = torch.nn
    modules = (
        torch,
        torch.Tensor,
        nn,
        nn.Module,
        nn.functional,
        nn.init,
        torch.autograd,
        torch.autograd.Function,
    )
    spaces = (
        *modules,
        torch.optim,
        torch.utils,
        torch.utils.data,
        torch.linalg,
        torch.distributed,
        torch.compiler,
    )
    names = {"aten", "aotlens", "inductor", "eager", "mean", "ctx", "example", "np", "F", "nn"}
    for space in spaces:
        for name in dir(space):
            names.add(name)
            names.update(_parameters(getattr(space, name, None)))
    return frozenset(names)


def _parameters(function: object) -> list[str]:
    """Return parameter names from a signature or from the first line of a docstring."""
    import inspect

    if not callable(function):
        return []
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        text = getattr(function, "__doc__", None)
        first = text.strip().partition("\n")[0] if isinstance(text, str) else ""
        return re.findall(r"[A-Za-z_]\w*", first) if "(" in first else []

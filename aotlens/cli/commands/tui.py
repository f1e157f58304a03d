"""`aotlens tui TARGET`: the terminal app, in this terminal or in a browser."""

from __future__ import annotations

import argparse
import gc
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.cli.saved_reports import add_map, is_trace_path
from aotlens.cli.targets import TargetName, add_project_options, check_gpu, fill_from_project, policy_of
from aotlens.cli.terminal import say, write_data
from aotlens.errors import UserError
from aotlens.worker.protocol import TraceOptions

if TYPE_CHECKING:  # the first paint comes before the report's records
    from aotlens.model.report import Report

LOOPBACK = "127.0.0.1"
PORT = 8000

_START = "import sys; sys.path.append({root!r}); from aotlens.cli import main; sys.exit(main())"
"""Like the command `aotlens`, which may not be installed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        type=TargetName.parse,
        nargs="?",
        help="SCRIPT, SCRIPT::name, or a TORCH_TRACE log",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="open a saved JSON report; with a TARGET, trace it only on request",
    )
    parser.add_argument(
        "--against",
        metavar="FILE",
        help="a saved JSON report to compare with, line by line (key x)",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="retrace when the script changes, or continue when the log grows",
    )
    parser.add_argument("--serve", action="store_true", help="show it in a browser, on this machine only")
    parser.add_argument(
        "--host", metavar="NAME", default=LOOPBACK, help=("with --serve: listen on this address instead")
    )
    parser.add_argument(
        "--port", type=int, default=PORT, help="with --serve (default: %(default)s; 0 takes any free port)"
    )
    parser.add_argument(
        "--keys", action="store_true", help="list the keys, with the names that a keymap uses for them"
    )
    add_project_options(parser)
    add_map(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.keys:
        from tui.commands import key_lines  # Textual takes 0.4 s

        write_data("".join(f"{line}\n" for line in key_lines()), None)
        return 0
    target: TargetName | None = arguments.target
    if target is None and arguments.report is None:
        raise UserError("name a TARGET to trace, or --report FILE to open")
    if arguments.serve:
        policy_of(arguments)
        check_gpu(arguments.gpu)
        return _serve(arguments)
    against = _named_report(arguments.against)
    fill_from_project(arguments, target.path if target is not None else "")
    check_gpu(arguments.gpu)
    policy = str(policy_of(arguments))
    options = TraceOptions(arguments.backend, arguments.dynamic, policy, gpu=arguments.gpu)
    if target is not None and is_trace_path(target.path):
        from aotlens.cli.log_reports import LogReports, first_look, watched_trace  # only for a log
        from tui.launch import run_report  # Textual takes 0.4 s
        from tui.log_questions import LogAnswers

        if arguments.watch:
            report, follow = watched_trace(target.path, target.qualname, arguments.mappings)
            return run_report(str(target), report, follow, against)
        log = LogReports(target.path, arguments.mappings, options)
        report = log.report(target.qualname, first_look())
        return run_report(str(target), report, None, against, LogAnswers(log.what_if, log.read))
    gc.disable()  # all that is loaded for the first screen stays alive: scanning it takes a tenth of the time
    from tui.launch import run as run_app  # Textual takes 0.4 s
    from tui.tracing import TraceTarget

    trace_target = None
    if target is not None:
        trace_target = TraceTarget(target.path, target.qualname, tuple(arguments.argv), options)
    return run_app(trace_target, arguments.report, arguments.watch, against)


def _named_report(file: str | None) -> tuple[str, Report] | None:
    """Return a saved report with its name; None without a file."""
    if file is None:
        return None
    from aotlens.model.files import load_report  # with all records

    return file, load_report(file)


def _serve(arguments: argparse.Namespace) -> int:
    """Start the same command without --serve for each visitor of a page."""
    if find_spec("textual_serve") is None:
        raise UserError("--serve needs textual-serve: pip install 'aotlens[serve]'")
    from tui.serving import listen, serve  # aiohttp takes 0.4 s

    _named_report(arguments.against)
    if arguments.report is not None:
        from tui.launch import read_report  # Textual takes 0.4 s

        read_report(arguments.report)  # report a bad file here, not to each visitor
    own = own_words(arguments)
    root = str(Path(__file__).resolve().parents[3])
    command = [sys.executable, "-P", "-c", _START.format(root=root), "tui", *own]
    with listen(arguments.host, arguments.port) as listening:
        return serve(command, f"aotlens {' '.join(own)}", listening, _announce)


def _announce(address: str) -> None:
    say(f"open {address}")
    say("Ctrl-C stops it")


def own_words(arguments: argparse.Namespace) -> list[str]:
    """Return the command line again, for a process that shows the app."""
    words = [] if arguments.target is None else [str(arguments.target)]
    for option in ("report", "against", "memory_budget", "gpu", "backend"):
        value = getattr(arguments, option)
        words += [] if value is None else [f"--{option.replace('_', '-')}", value]
    words += [word for policy in arguments.policy for word in ("--policy", policy)]
    words += [word for mapping in arguments.mappings for word in ("--map", mapping)]
    words += ["--watch"] if arguments.watch else []
    words += [] if arguments.dynamic is None else ["--dynamic" if arguments.dynamic else "--no-dynamic"]
    return [*words, "--", *arguments.argv] if arguments.argv else words

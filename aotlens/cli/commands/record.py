"""`aotlens record -- CMD…`: runs any command with torch's structured log on, and shows what it compiled."""

import argparse
from pathlib import Path

from aotlens.cli.terminal import say, stdout_on_stderr
from aotlens.trace.logs.recording import Recorded, fresh_folder, record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        dest="output",
        metavar="DIR",
        type=Path,
        help="the folder for the logs (default: a new folder in the current one, named after the time)",
    )
    parser.add_argument("--tui", action="store_true", help="open the terminal app when the command ends")
    parser.add_argument("--no-report", action="store_true", help="only record the logs")
    parser.add_argument(
        "script", metavar="CMD", help="a program with its arguments (python, torchrun, …), or a Python script"
    )


def run(arguments: argparse.Namespace) -> int:
    folder = arguments.output or fresh_folder(Path())
    recorded = record((arguments.script, *arguments.argv), folder)
    if not recorded.logs:
        _report_no_logs(arguments.script, folder)
        return recorded.exit_code
    if not arguments.no_report:
        _show(folder, tui=arguments.tui)
    logs = _log_count_text(recorded)
    say(f"aotlens: {logs} in {folder}; `aotlens tui {folder}` opens {_pronoun(recorded)}")
    return recorded.exit_code


def _show(folder: Path, *, tui: bool) -> None:
    """Show the report; the exit code stays the command's, whatever the report says."""
    from aotlens.cli.app import run_command  # the table of commands imports this module

    if tui:
        run_command(["tui", str(folder)])
        return
    with stdout_on_stderr():  # stdout belongs to the command
        run_command(["inspect", str(folder)])


def _report_no_logs(command: str, folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
    say(
        f"aotlens: nothing was compiled: no process of `{command}` wrote a log; does it reach"
        " torch.compile, and does the command pass its environment on?"
    )


def _log_count_text(recorded: Recorded) -> str:
    count = len(recorded.logs)
    return "1 log" if count == 1 else f"{count} logs, one per process,"


def _pronoun(recorded: Recorded) -> str:
    return "it" if len(recorded.logs) == 1 else "them"

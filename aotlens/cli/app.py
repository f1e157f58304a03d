"""The parser, the table of commands, and the handling of their errors."""

import argparse
import importlib
import os
import sys
from dataclasses import dataclass
from types import ModuleType

from rich_argparse import RichHelpFormatter

from aotlens._version import __version__
from aotlens.cli.command_line import CommandLine, add_script_arguments, own_option_in_script_arguments, split
from aotlens.cli.terminal import internal_error, say, user_error
from aotlens.errors import AotlensError
from aotlens.process import show_logs
from aotlens.torch_versions import note_once

__all__ = ["COMMANDS", "run_command"]


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand; the module of its name has `add_arguments(parser)` and `run(arguments) -> int`."""

    name: str
    help: str
    most_scripts: int = 0
    """How many positional words name scripts; the script's own arguments follow.  0 for a command without
    scripts.

    A module with a function `most_scripts(options)` decides by our options instead.
    """
    needs_torch: bool = True
    """Whether the user is warned about an untested release of torch."""

    def load(self) -> ModuleType:
        return importlib.import_module(f"aotlens.cli.commands.{self.name}")

    def line(self, parser: argparse.ArgumentParser) -> CommandLine:
        """Return how its command line is divided."""
        most = getattr(self.load(), "most_scripts", lambda options: self.most_scripts)
        return CommandLine(self.name, parser, most)


COMMANDS = (
    Command("run", "run a script with its targets compiled by aotlens", 1),
    Command("inspect", "show what compiling a target does: mutations, aliases, saved values, wrapper", 1),
    Command("why", "explain graph breaks, recompilations and compile time of a script, with any backend", 1),
    Command("tui", "show it in a terminal app, beside the source", 1),
    Command("lsp", "run the language server, for editors"),
    Command("mcp", "offer these commands as tools for agents (Model Context Protocol)", needs_torch=False),
    Command("check", "report the diagnostics of every target that has an example, for CI", sys.maxsize),
    Command("diff", "show what changed between two reports, or two git revisions of a target", 2),
    Command(
        "record", "run any command, record torch's log of what it compiles, and show it", 1, needs_torch=False
    ),
    Command("fit", "predict the memory of a training step, and whether it fits a GPU", 1),
    Command("verify", "compare compiled with eager: values, gradients, mutations, aliasing", 1),
    Command("export", "write a target as a standalone Python module", 1),
    Command("rule", "explain a diagnostic", needs_torch=False),
    Command("cache", "show or clear the on-disk cache", needs_torch=False),
    Command("doctor", "show what is installed and works here, or write a bug report", 1, needs_torch=False),
)

INTERRUPTED = 130
"""The exit code of shells for a command that Ctrl-C ends."""

_ABOUT = """\
See what ahead-of-time compilation does to a PyTorch function, at the source line.
TARGET is SCRIPT or SCRIPT::name, for a function, method or module class of the script."""


def run_command(argv: list[str] | None = None) -> int:
    """Parse, run, and turn every error into one message and its exit code."""
    words = sys.argv[1:] if argv is None else argv
    show_logs()
    try:
        return _dispatch(words)
    except AotlensError as error:
        if error.exit_code == 3:
            return internal_error(error)
        return user_error(str(error), error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our stdout has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 (the last place that can turn it into the documented exit code)
        return internal_error(error)


def _dispatch(words: list[str]) -> int:
    chosen = next((command for command in COMMANDS if words[:1] == [command.name]), None)
    if chosen is not None and chosen.needs_torch and (note := note_once()):
        say(f"aotlens: warning: {note}")
    if chosen is not None and chosen.name == "lsp":  # it parses its own options, also when it runs by itself
        return int(chosen.load().main(words[1:]))
    parser, own = _parser(chosen)
    if chosen is None:
        parser.parse_args(words)
        parser.print_help()
        return 2
    if not chosen.most_scripts:
        return _run(parser.parse_args(words))
    line = chosen.line(own)
    divided = split(words[1:], line)
    arguments = parser.parse_args([chosen.name, *divided.own_options, *divided.scripts])
    arguments.argv = list(divided.arguments)
    code = _run(arguments)
    if code == 2 and (option := own_option_in_script_arguments(divided, line)) is not None:
        say(
            f"aotlens: `{option}` was passed to the script, because it follows `{divided.arguments[0]}`;"
            f" options of `aotlens {chosen.name}` come before the script or directly after it"
        )
    return code


def _run(arguments: argparse.Namespace) -> int:
    return int(arguments.run(arguments))


def _parser(chosen: Command | None) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Return the whole parser and the chosen command's; only this command's module is loaded."""
    parser = argparse.ArgumentParser(
        prog="aotlens", description=_ABOUT, formatter_class=_Formatter, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"aotlens {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", prog=parser.prog)
    chosen_parser = parser
    for command in COMMANDS:
        own = commands.add_parser(
            command.name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        if command is chosen:
            module = command.load()
            module.add_arguments(own)
            if command.most_scripts:
                add_script_arguments(own)
            own.set_defaults(run=module.run)
            chosen_parser = own
    return parser, chosen_parser


class _Formatter(RichHelpFormatter):
    """Keeps the line breaks of descriptions."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(f"{indent}{line}" for line in text.splitlines())

"""Divide the command line into our words and the script's, by one rule for every command.

Invariant: our options come before the script or directly after it; everything from the first other word on
belongs to the script, unchanged.  `--` ends our options and is not passed on.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

__all__ = [
    "CommandLine",
    "DividedCommandLine",
    "add_script_arguments",
    "own_option_in_script_arguments",
    "split",
]

_TYPO = 0.9
"""The similarity from which an unknown option counts as a misspelt one of ours."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The facts about a command that the rule needs."""

    name: str
    parser: argparse.ArgumentParser
    most_scripts: Callable[[Sequence[str]], int]
    """How many words may name scripts, given our options so far."""

    @property
    def options(self) -> Mapping[str, argparse.Action]:
        return self.parser._option_string_actions  # the parser's own table, which has no public name


@dataclass(frozen=True, slots=True)
class DividedCommandLine:
    """A command line in its three parts."""

    own_options: tuple[str, ...]
    """Our options with their values."""
    scripts: tuple[str, ...]
    """The words that name scripts: a TARGET, or the paths of `check`."""
    arguments: tuple[str, ...]
    """The script's own arguments."""
    is_explicit: bool = False
    """Whether `--` precedes the script's arguments."""


def add_script_arguments(parser: argparse.ArgumentParser) -> None:
    """Show in the help that the script's arguments follow; `split` removes them before the parser runs."""
    shown = parser.add_argument(
        "argv",
        metavar="ARGS",
        nargs=argparse.REMAINDER,
        help=(
            "the script's arguments, unchanged: from the first word that is not an option of aotlens, or"
            " from `--`"
        ),
    )
    shown.required = False  # otherwise a missing script is reported together with its arguments


def split(words: Sequence[str], command: CommandLine) -> DividedCommandLine:
    """Divide a command line; an ambiguous one ends with the parser's error, which exits."""
    ours: list[str] = []
    scripts: list[str] = []
    index = 0
    while index < len(words) and words[index] != "--":
        values = _values(words[index], command.options, is_after_script=bool(scripts))
        if values is not None:
            ours += words[index : index + 1 + values]
            index += 1 + values
        elif _is_option(words[index]) or len(scripts) >= command.most_scripts(ours):
            break
        else:
            scripts.append(words[index])
            index += 1
    is_explicit = index < len(words) and words[index] == "--"
    rest = list(words[index + is_explicit :])
    if is_explicit and not scripts and rest:
        scripts.append(rest.pop(0))
    divided = DividedCommandLine(tuple(ours), tuple(scripts), tuple(rest), is_explicit)
    _check(divided, command)
    return divided


def own_option_in_script_arguments(words: DividedCommandLine, command: CommandLine) -> str | None:
    """Return our first option among the script's arguments, a likely reason if the script rejects them."""
    if words.is_explicit:
        return None
    ours = (word.partition("=")[0] for word in words.arguments)
    return next((word for word in ours if len(word) > 2 and word in command.options), None)


def _check(words: DividedCommandLine, command: CommandLine) -> None:
    if not words.arguments or words.is_explicit:
        return
    first = words.arguments[0]
    if not words.scripts:
        command.parser.error(
            f"{first} is not an option of `aotlens {command.name}`; arguments of the script follow the script"
        )
    option = first.partition("=")[0]
    if (similar := _closest_option(option, command.options)) is not None:
        command.parser.error(
            f"{option} is not an option of `aotlens {command.name}` (did you mean {similar}?); to pass it"
            f" to the script, write `--` before it: {words.scripts[-1]} -- {first}"
        )


def _values(word: str, options: Mapping[str, argparse.Action], is_after_script: bool) -> int | None:
    """Return how many further words belong to an option of ours; None for any other word.

    `--help` after the script belongs to the script.
    """
    name, equals, _ = word.partition("=")
    if (action := options.get(name)) is not None and not (is_after_script and action.dest == "help"):
        if action.nargs is not None and not isinstance(action.nargs, int):
            raise TypeError(f"{name} takes {action.nargs!r} values, but options here take a fixed number")
        return 0 if equals else 1 if action.nargs is None else action.nargs
    short = options.get(word[:2]) if len(word) > 2 and not word.startswith("--") else None
    return 0 if short is not None and short.nargs is None else None


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _closest_option(option: str, options: Mapping[str, argparse.Action]) -> str | None:
    """Return our option that an unknown one resembles."""
    if not option.startswith("--") or option in options:
        return None
    return next(iter(get_close_matches(option, options, 1, _TYPO)), None)

"""Which words of a command line are ours, and which are the script's: the same rule in every command."""

import argparse
from pathlib import Path

import pytest

from aotlens.cli.app import COMMANDS
from aotlens.cli.command_line import (
    CommandLine,
    DividedCommandLine,
    add_script_arguments,
    own_option_in_script_arguments,
    split,
)
from tests.command import aotlens

ALL = [command.name for command in COMMANDS if command.most_scripts]


def line(name: str) -> CommandLine:
    """The real command with its real options."""
    command = next(command for command in COMMANDS if command.name == name)
    parser = argparse.ArgumentParser(prog=f"aotlens {name}", allow_abbrev=False)
    command.load().add_arguments(parser)
    add_script_arguments(parser)
    return command.line(parser)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("s.py", DividedCommandLine((), ("s.py",), ())),
        ("s.py --lr 0.1 --policy x", DividedCommandLine((), ("s.py",), ("--lr", "0.1", "--policy", "x"))),
        ("s.py -- --policy x", DividedCommandLine((), ("s.py",), ("--policy", "x"), True)),
        ("-- s.py --policy x", DividedCommandLine((), ("s.py",), ("--policy", "x"), True)),
        ("s.py --help", DividedCommandLine((), ("s.py",), ("--help",))),
        ("--help s.py", DividedCommandLine(("--help",), ("s.py",), ())),
        ("s.py -1 -", DividedCommandLine((), ("s.py",), ("-1", "-"))),
    ],
)
def test_every_command_divides_alike(name: str, words: str, expected: DividedCommandLine) -> None:
    assert split(words.split(), line(name)) == expected


@pytest.mark.parametrize("name", [name for name in ALL if "--policy" in line(name).options])
def test_options_stand_on_either_side_of_the_script(name: str) -> None:
    words = "--policy budget --memory-budget=0.5 s.py --policy=save:a --steps 3 --policy b"
    ours = ("--policy", "budget", "--memory-budget=0.5", "--policy=save:a")
    assert split(words.split(), line(name)) == DividedCommandLine(
        ours, ("s.py",), ("--steps", "3", "--policy", "b")
    )


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("run", "s.py train --lr 1", DividedCommandLine((), ("s.py",), ("train", "--lr", "1"))),
        ("inspect", "s.py -oout.txt train", DividedCommandLine(("-oout.txt",), ("s.py",), ("train",))),
        ("tui", "--report r.json", DividedCommandLine(("--report", "r.json"), (), ())),
        ("check", "a.py b --jobs 2 c.py", DividedCommandLine(("--jobs", "2"), ("a.py", "b", "c.py"), ())),
        ("diff", "a.json s.py --lr 1", DividedCommandLine((), ("a.json", "s.py"), ("--lr", "1"))),
        ("diff", "--git A..B s.py train", DividedCommandLine(("--git", "A..B"), ("s.py",), ("train",))),
        ("diff", "s.py --git=A train", DividedCommandLine(("--git=A",), ("s.py",), ("train",))),
    ],
)
def test_what_differs_by_command(name: str, words: str, expected: DividedCommandLine) -> None:
    assert split(words.split(), line(name)) == expected


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        (
            "inspect",
            "--lr 0.1 s.py",
            "--lr is not an option of `aotlens inspect`; arguments of the script follow the script",
        ),
        (
            "export",
            "s.py --dynamics --lr 0.1",
            (
                "--dynamics is not an option of `aotlens export` (did you mean --dynamic?); to pass it to"
                " the script, write `--` before it: s.py -- --dynamics"
            ),
        ),
    ],
)
def test_an_ambiguous_word_is_an_error(
    name: str, words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        split(words.split(), line(name))
    assert (ended.value.code, capsys.readouterr().err.splitlines()[-1]) == (
        2,
        f"aotlens {name}: error: {message}",
    )


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("s.py --lr 1 --format json", "--format"),
        ("s.py --lr 1 --format=json", "--format"),
        ("s.py -- --format json", None),
        ("s.py --lr 1", None),
    ],
)
def test_an_option_of_ours_that_went_to_the_script(words: str, option: str | None) -> None:
    inspect = line("inspect")
    assert own_option_in_script_arguments(split(words.split(), inspect), inspect) == option


PARSES = """\
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, required=True)
width = parser.parse_args().width

# aotlens: example f32[4]
def scaled(x):
    return x * width

print(torch.compile(scaled)(torch.ones(4)).sum())
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "s.py").write_text(PARSES)
    return tmp_path / "s.py"


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--backend", "eager"),
        ("inspect",),
        ("verify", "--backend", "eager"),
        ("export", "--capture", "1"),
        ("check",),
    ],
    ids=lambda words: words[0],
)
def test_a_script_gets_its_arguments(words: tuple[str, ...], script: Path) -> None:
    ended = aotlens(*words, script, "--width", "3")
    assert ended.code == 0, ended.err


def test_diff_of_one_script_with_arguments(script: Path, tmp_path: Path) -> None:
    report = tmp_path / "old.json"
    assert aotlens("inspect", "--format", "json", "-o", report, script, "--width", "3").code == 0
    assert aotlens("diff", report, script, "--width", "3").code == 0


def test_a_rejected_script_argument_of_ours_is_explained(script: Path) -> None:
    ended = aotlens("inspect", script, "--width", "3", "--stage", "joint")
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        "aotlens: `--stage` was passed to the script, because it follows `--width`; options of `aotlens"
        " inspect` come before the script or directly after it"
    )


ONE_SCRIPT = "`--width` is not an option of `aotlens check`, and arguments need a single script: "


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("check", "a.py", "b.py", "--width", "3"),
            ONE_SCRIPT + "there are 2 paths",
        ),
        (
            ("check", ".", "--width", "3"),
            ONE_SCRIPT + ". is a folder",
        ),
        (
            ("diff", "a.json", "b.json", "--width", "3"),
            "`--width` follows two report files, but only a script takes arguments",
        ),
    ],
)
def test_arguments_without_one_script(words: tuple[str, ...], message: str) -> None:
    ended = aotlens(*words)
    assert (ended.code, ended.err) == (2, f"aotlens: error: {message}\n")

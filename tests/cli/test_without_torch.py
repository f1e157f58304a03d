"""What commands say before torch is needed: help, mistakes in the command line, scripts that cannot run."""

import textwrap
from pathlib import Path

import pytest

from aotlens.cli.app import COMMANDS
from tests.command import Ended, aotlens, python
from tests.conftest import Golden


def test_help(golden: Golden) -> None:
    ended = aotlens("--help")
    assert (ended.code, ended.err) == (0, "")
    golden("cli/help.txt", ended.out)


@pytest.mark.parametrize("name", [command.name for command in COMMANDS])
def test_help_of_each_command(golden: Golden, name: str) -> None:
    ended = aotlens(name, "--help")
    assert (ended.code, ended.err) == (0, "")
    golden(f"cli/help_{name}.txt", _wrapped(ended.out))


def _wrapped(text: str) -> str:
    """Return the help with its usage wrapped at words: releases of Python wrap it differently."""
    usage, _, rest = text.partition("\n\n")
    words = " ".join(usage.split())
    usage = textwrap.fill(words, 110, subsequent_indent="    ", break_on_hyphens=False)
    return f"{usage}\n\n{rest}"


@pytest.mark.parametrize("words", ["'--help'", "'rule', 'AL101'", "'inspect', '--help'"])
def test_no_torch_for_help(words: str) -> None:
    program = f"""
import sys
from aotlens.cli import main
try:
    main([{words}])
except SystemExit:
    pass
sys.exit(sorted(sys.modules.keys() & {{"torch", "textual", "pygls", "numpy"}}) or 0)
"""
    assert python("-c", program).code == 0


def test_no_command_prints_the_help() -> None:
    ended = aotlens()
    assert ended.code == 2
    assert "Usage: aotlens" in ended.out


def test_version() -> None:
    assert aotlens("--version").out.startswith("aotlens 0.")


@pytest.mark.parametrize(
    "words",
    [
        ("unknown",),
        ("inspect",),
        ("inspect", "x.py", "--format", "xml"),
        ("inspect", "x.py", "--back", "eager"),  # no prefix of an option is taken for it
        ("inspect", "x.py::"),
        ("run",),
        ("run", "--policy", "best", "x.py"),
    ],
)
def test_a_wrong_command_line_is_the_users_mistake(words: tuple[str, ...]) -> None:
    ended = aotlens(*words)
    assert (ended.code, ended.out) == (2, "")
    assert "error:" in ended.err


COMMANDS_WITH_A_SCRIPT = ("run", "inspect", "verify", "export")


@pytest.mark.parametrize("command", COMMANDS_WITH_A_SCRIPT)
def test_missing_file(command: str) -> None:
    assert aotlens(command, "nothing.py") == Ended(2, "", "aotlens: error: no such file: nothing.py\n")


@pytest.mark.parametrize("command", COMMANDS_WITH_A_SCRIPT)
def test_syntax_error(command: str, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n    pass\n")
    ended = aotlens(command, "broken.py", cwd=tmp_path)
    assert ended == Ended(
        2,
        "",
        "aotlens: error: broken.py:2: syntax error: invalid syntax\n"
        '  File "broken.py", line 2\n    def f(:\n          ^\nSyntaxError: invalid syntax\n',
    )


def test_rule(golden: Golden) -> None:
    ended = aotlens("rule", "al101")
    assert (ended.code, ended.err) == (0, "")
    golden("cli/rule_AL101.txt", ended.out)


def test_rules_are_listed() -> None:
    lines = aotlens("rule").out.splitlines()
    assert lines[0].startswith("AL101  warning")


def test_unknown_rule() -> None:
    ended = aotlens("rule", "AL1011")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("aotlens: error: no rule 'AL1011'; there is AL101")


def test_tui_needs_something_to_show() -> None:
    ended = aotlens("tui")
    assert ended == Ended(2, "", "aotlens: error: name a TARGET to trace, or --report FILE to open\n")


def test_tui_needs_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("")
    ended = aotlens("tui", tmp_path / "x.py")
    assert (ended.code, ended.out) == (2, "")
    assert "aotlens inspect" in ended.err


def test_data_stays_apart_when_the_reader_leaves() -> None:
    ended = python(
        "-c",
        "import subprocess, sys; subprocess.run(f'{sys.executable} -m aotlens rule | head -1', shell=True)",
    )
    assert (len(ended.out.splitlines()), ended.err) == (1, "")

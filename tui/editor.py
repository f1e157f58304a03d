"""The command that opens the user's editor at a line."""

import os
import shlex
from collections.abc import Mapping

AT_LINE = {
    "code": "--goto {file}:{line}",
    "codium": "--goto {file}:{line}",
    "cursor": "--goto {file}:{line}",
    "zed": "{file}:{line}",
    "subl": "{file}:{line}",
    "hx": "{file}:{line}",
    "helix": "{file}:{line}",
    "pycharm": "--line {line} {file}",
}
"""Editors that do not take `+LINE FILE`, which vi, nano, emacs, micro, kak and most others do."""

FALLBACK = "vi"


def editor_command(file: str, line: int, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the command that opens the file at the line, from $VISUAL, else $EDITOR, else vi."""
    chosen = shlex.split(environment.get("VISUAL") or environment.get("EDITOR") or FALLBACK)
    form = AT_LINE.get(os.path.basename(chosen[0]), "+{line} {file}")
    return [*chosen, *(piece.format(file=file, line=line) for piece in form.split())]

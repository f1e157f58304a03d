"""Print the diff of edited files, and write them.

Invariant: a file is written only after its diff was printed, and only if it is unchanged since it was read.
"""

import argparse
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aotlens.cli.terminal import say, write_data
from aotlens.errors import UserError
from aotlens.model.edits import unified_diff
from aotlens.model.spans import shown_path

__all__ = ["EditedFiles"]


@dataclass(frozen=True, slots=True)
class EditedFiles:
    """Files before and after edits; changed files only."""

    originals: Mapping[str, str]
    texts: Mapping[str, str]

    @property
    def diff(self) -> str:
        return "".join(
            unified_diff(shown_path(file), self.originals[file], text) for file, text in self.texts.items()
        )

    def print_diff(self, arguments: argparse.Namespace) -> None:
        """Print the diff, to stdout after the report's text or to stderr."""
        if arguments.format == "text" and arguments.output is None:
            write_data(self.diff, None)
        else:
            say(self.diff.rstrip("\n"))

    def write(self, meanwhile: str, since: float = math.inf) -> None:
        """Write all files.

        `meanwhile` says when a file may have been changed: `while the script ran`.

        Raises:
            UserError: a file was changed after it was read, or after the time `since`.
        """
        for file, original in self.originals.items():
            if Path(file).read_bytes().decode("utf-8") != original or os.stat(file).st_mtime > since:
                raise UserError(f"{file} was changed {meanwhile}, so nothing is written: run it again")
        for file, text in self.texts.items():
            Path(file).write_bytes(text.encode("utf-8"))

"""Compile the engine and the installed libraries to bytecode, as pip does for what it installs.

Invariant: no timed process compiles the source of a library.  Without bytecode that takes 10 s of each
process, and falls into the first step of one compiler and before the first step of another.
"""

import compileall
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from corpus.store import ROOT

__all__ = ["compile_bytecode"]


def compile_bytecode(folders: Sequence[Path] | None = None) -> None:
    """Compile each file without current bytecode; files of another version of Python are left as they are."""
    libraries = Path(sysconfig.get_path("purelib"))
    for folder in folders or (libraries, ROOT / "aotlens", ROOT / "corpus"):
        compileall.compile_dir(folder, quiet=2, workers=1)

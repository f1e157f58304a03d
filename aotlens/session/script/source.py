"""Run a script like `python SCRIPT ARGS` inside this process.

Invariant: the script sees its own `sys.argv`, `sys.path[0]` and `__main__`, its tracebacks show its own
source even after it changes the folder, and the state of this process is restored afterwards.
"""

import ast
import builtins
import io
import linecache
import os
import sys
import tokenize
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from aotlens.errors import TargetError

__all__ = ["Rewrite", "Script", "load_script", "new_module", "run_script"]

Rewrite = Callable[[ast.Module], ast.Module]
"""Changes the tree before it is compiled; positions must not change."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script as it was read: this text runs, whatever happens to the file meanwhile."""

    path: str
    """The path as the user wrote it."""
    source: str

    @property
    def folder(self) -> str:
        return str(Path(self.path).resolve().parent)

    @property
    def name(self) -> str:
        """Return the name under which it would be imported."""
        return Path(self.path).stem

    def code(self, rewrite: Rewrite | None = None) -> CodeType:
        """Compile the script.  Raises SyntaxError with the script's path."""
        if rewrite is None:
            return compile(self.source, self.path, "exec", dont_inherit=True)
        tree = rewrite(ast.parse(self.source, self.path))
        return compile(tree, self.path, "exec", dont_inherit=True)


def load_script(path: str) -> Script:
    """Read a script.  Raises TargetError for a missing file, SyntaxError if it cannot be decoded."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise TargetError(f"no such file: {path}", kind="no-file") from error
    except IsADirectoryError as error:
        raise TargetError(f"{path} is a folder; give a Python script", kind="no-file") from error
    except OSError as error:
        raise TargetError(f"cannot read {path}: {error.strerror}", kind="no-file") from error
    script = Script(path, _decoded(data, path))
    # The entry has no time stamp, so `linecache.checkcache` keeps it: tracebacks show the text that ran.
    linecache.cache[path] = (len(data), None, script.source.splitlines(keepends=True), path)
    return script


def _decoded(data: bytes, path: str) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SyntaxError(f"cannot decode the script: {error}", (path, 1, 1, None)) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise SyntaxError("the script contains a null byte", (path, line, 1, None))
    return text


def new_module(script: Script, name: str) -> ModuleType:
    """Return an empty module for the script's names; `__file__` is absolute, as Python sets it."""
    module = ModuleType(name)
    module.__dict__.update(
        __file__=os.path.abspath(script.path),
        __builtins__=builtins,
        __spec__=None,
        __package__=None,
        __cached__=None,
    )
    return module


def run_script(
    script: Script, module: ModuleType, argv: Sequence[str] = (), rewrite: Rewrite | None = None
) -> None:
    """Run it in the module; whatever it raises, SystemExit included, propagates.

    The module is named `__main__`, like a script's, or by its own name, like an import's.
    """
    code = script.code(rewrite)
    with _as_python_does(script, module, argv):
        exec(code, module.__dict__)  # noqa: S102 (the user asked for their script to run)


@contextmanager
def _as_python_does(script: Script, module: ModuleType, argv: Sequence[str]) -> Iterator[None]:
    saved_argv, saved_path, saved_module = sys.argv, sys.path, sys.modules.get(module.__name__)
    sys.argv = [script.path, *argv]
    # With -P the interpreter adds no first entry that could be replaced.
    sys.path = [script.folder, *(saved_path if sys.flags.safe_path else saved_path[1:])]
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        sys.argv, sys.path = saved_argv, saved_path
        if saved_module is not None:
            sys.modules[module.__name__] = saved_module

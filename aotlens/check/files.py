"""Find the files that have something to check, by reading them; nothing is run.

Invariant: files come in the order of the paths, and sorted within a folder; a file that does not parse is
listed with its failure.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aotlens.check.settings import Settings, settings_for
from aotlens.errors import TargetError
from aotlens.model.failure import Failure
from aotlens.session.errors.failures import failure_of
from aotlens.session.script.source import load_script
from aotlens.worker.targets import StaticTarget, find_targets

__all__ = ["SourceFile", "find_files", "python_files"]

_MENTION = "aotlens"
"""Every example contains it, so a file without it is not parsed."""
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file with targets that have examples."""

    path: str
    """The path as in spans: relative if the user's path is."""
    source: str
    settings: Settings
    targets: tuple[StaticTarget, ...]
    failure: Failure | None = None
    """Why it cannot be parsed as Python."""
    argv: tuple[str, ...] = ()
    """The script's own arguments."""


def find_files(paths: Iterable[str]) -> tuple[SourceFile, ...]:
    """Return the files among the paths, and below folders, that have examples.

    Raises:
        UserError: a path that does not exist; invalid settings.
    """
    files: dict[str, SourceFile] = {}
    for path in python_files(paths):
        file = _read(path) if os.path.realpath(path) not in files else None
        if file is not None:
            files[os.path.realpath(path)] = file
    return tuple(files.values())


def python_files(paths: Iterable[str]) -> Iterator[str]:
    """Yield the files among the paths, and those below folders that the settings do not exclude."""
    for argument in paths:
        path = os.path.normpath(argument)
        if not os.path.exists(path):
            raise TargetError(f"no such file or folder: {argument}", kind="no-file")
        if os.path.isdir(path):
            yield from (file for file in _below(path) if not settings_for(file).excludes(file))
        else:
            yield path


def _below(folder: str) -> Iterator[str]:
    """Yield Python files below a folder, except those of environments, caches and hidden folders."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
        )
        yield from (
            os.path.normpath(os.path.join(parent, name)) for name in sorted(files) if name.endswith(".py")
        )


def _read(path: str) -> SourceFile | None:
    """Return the file, or None without an example.  Raises UserError for invalid settings."""
    source = ""
    try:
        source = load_script(path).source
        every = find_targets(source, path) if _MENTION in source else ()
    except SyntaxError as error:
        return SourceFile(path, source, settings_for(path), (), failure_of(error, path))
    targets = tuple(target for target in every if target.how == "example")
    if not targets:
        return None
    settings = settings_for(path)
    _check_named_targets(path, settings, tuple(target.qualname for target in every if target.qualname))
    return SourceFile(path, source, settings, targets)


def _check_named_targets(path: str, settings: Settings, known: tuple[str, ...]) -> None:
    for name in settings.named_targets(path):
        if name not in known:
            targets = ", ".join(f"`{target}`" for target in known)
            table = f'[tool.aotlens.per-target."{settings.relative(path)}::{name}"]'
            raise TargetError(f"{settings.file}: {table}: {path} has no `{name}`; it has {targets}")

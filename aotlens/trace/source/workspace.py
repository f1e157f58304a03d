"""Find the files of another machine in the open workspace.

Invariant: only Python files below the workspace, below the targets of `--map`, or of installed packages are
ever returned, however a log spells its paths.

The first rule that gives a file decides:

1. `--map OLD=NEW`, the longest OLD first;
2. the same path, if it exists here: the log is from this machine;
3. the same installed package (`…/site-packages/timm/models/vit.py`);
4. the file of the workspace whose path has the longest common suffix; of several, the one with most of
   the logged lines.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath

from aotlens.errors import UserError

__all__ = ["PathMapping", "Workspace", "common_suffix", "definition_text", "parse_mapping"]

MAX_FILES = 50_000
MAX_SOURCE_BYTES = 4 << 20
_SKIPPED = frozenset({"site-packages", "dist-packages", "node_modules", "__pycache__", "build", "dist"})
_WINDOWS = re.compile(r"^(?:[A-Za-z]:[\\/]|\\\\)")
_INSTALLED = frozenset({"site-packages", "dist-packages"})


@dataclass(frozen=True, slots=True)
class PathMapping:
    """A folder of the other machine and its counterpart here."""

    old: str
    new: Path


def parse_mapping(text: str) -> PathMapping:
    """Parse `OLD=NEW`.  Raises UserError for another form, or if NEW is no folder."""
    old, equals, new = text.rpartition("=")
    if not equals or not old or not new:
        raise UserError(f"--map {text}: write OLD=NEW, the folder in the log and the folder here")
    if not Path(new).is_dir():
        raise UserError(f"--map {text}: {new} is not a folder here")
    return PathMapping(old, Path(new).resolve())


class Workspace:
    """The files of one folder, indexed by name on the first search."""

    def __init__(self, folder: Path, mappings: Iterable[PathMapping] = ()) -> None:
        self.folder = folder.resolve()
        self.mappings = tuple(sorted(mappings, key=lambda mapping: -len(mapping.old)))
        self._by_name: dict[str, list[Path]] | None = None

    def find(self, file: str, codes: Mapping[int, str]) -> Path | None:
        """Return the file here for a file of the log; None if no file, or more than one, is possible.

        `codes` are logged lines of the file, by number: they decide among files of equal suffix.
        """
        if not file.endswith(".py") or "\0" in file:  # a path with a null character raises where it is used
            return None
        parts = _parts(file)
        mapped = _first_file(_mapped(parts, self.mappings))
        if mapped is not None:
            return mapped
        if os.path.isabs(file) and ".." not in parts and _is_file(Path(file)):
            return Path(file)
        return _first_file(_installed(parts)) or self._by_suffix(parts, codes)

    def _by_suffix(self, parts: tuple[str, ...], codes: Mapping[int, str]) -> Path | None:
        """Apply rule 4; a file of an installed package is not in the workspace, whatever is named like it."""
        if not parts or _INSTALLED & set(parts):
            return None
        candidates = self._files().get(parts[-1], [])
        shared = {path: common_suffix(parts, path.parts) for path in candidates}
        longest = [path for path in candidates if shared[path] == max(shared.values())]
        agreeing = {path: _agreement(path, codes) for path in longest}
        best = max(agreeing.values(), default=0)
        if codes and best == 0 and (len(longest) > 1 or max(shared.values(), default=0) == 1):
            return None  # another file with the same name
        matching = [path for path in longest if agreeing[path] == best]
        return matching[0] if len(matching) == 1 else None

    def _files(self) -> dict[str, list[Path]]:
        if self._by_name is None:
            self._by_name = defaultdict(list)
            for count, path in enumerate(_python_files(self.folder)):
                if count == MAX_FILES:
                    break
                self._by_name[path.name].append(path)
        return self._by_name


def definition_text(function: str) -> str:
    """Return the beginning of the function's definition, for a line without text in the log."""
    name = function.rpartition(".")[2]
    return f"def {name}(" if name.isidentifier() else ""


def common_suffix(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    """Return how many parts two paths have in common, counted from the end."""
    pairs = zip(reversed(left), reversed(right), strict=False)
    return next(
        (index for index, (part, other) in enumerate(pairs) if part != other), min(len(left), len(right))
    )


def _parts(file: str) -> tuple[str, ...]:
    path: PurePath = PureWindowsPath(file) if _WINDOWS.match(file) else PurePosixPath(file)
    return path.parts


def _mapped(parts: tuple[str, ...], mappings: Iterable[PathMapping]) -> Iterator[Path]:
    for mapping in mappings:
        old = _parts(mapping.old)
        if parts[: len(old)] == old and ".." not in parts:
            yield mapping.new.joinpath(*parts[len(old) :])


def _installed(parts: tuple[str, ...]) -> Iterator[Path]:
    last = next((index for index in reversed(range(len(parts))) if parts[index] in _INSTALLED), None)
    if last is not None and ".." not in parts:
        package, *_ = parts[last + 1 :] or ("",)
        spec = find_spec(package) if package.isidentifier() else None  # imports nothing
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            yield Path(folder).joinpath(*parts[last + 2 :])


def _first_file(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if _is_file(path)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size <= MAX_SOURCE_BYTES
    except (OSError, ValueError):
        return False


def _agreement(path: Path, codes: Mapping[int, str]) -> int:
    """Return how many of the logged lines the file contains, anywhere."""
    try:
        lines = {line.strip() for line in path.read_text("utf-8", "replace").splitlines()}
    except OSError:
        return 0
    definitions = [line for line in lines if line.startswith(("def ", "async def "))]
    return sum(
        bool(code) and (code.strip() in lines or any(line.startswith(code) for line in definitions))
        for code in codes.values()
    )


def _python_files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if name.endswith(".py") and not path.is_symlink() and _is_file(path):
                yield path

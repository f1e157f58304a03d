"""`[tool.aotlens]` of pyproject.toml as a record.

Invariant: standard library only.  An unknown key or an invalid value is an error that names the file, the key
and the valid values; nothing is ignored silently.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, get_args

from aotlens.diagnostics.budgets import NO_LIMITS, Budget
from aotlens.diagnostics.ignores import known_prefix
from aotlens.diagnostics.rules import near_codes
from aotlens.errors import UserError
from aotlens.model.report import Severity
from aotlens.policy import size_bytes
from aotlens.settings import TRACE_SETTINGS, Kind, checked_value, project_table
from aotlens.worker.protocol import TraceOptions

__all__ = ["SEVERITIES", "Section", "Settings", "check_codes", "settings_for"]

SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The most serious first."""


@dataclass(frozen=True, slots=True)
class Section:
    """Settings for the files or targets that match a pattern."""

    pattern: str
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    budget: Budget = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one pyproject.toml, or the defaults."""

    file: Path | None = None
    select: tuple[str, ...] | None = None
    """Codes, or prefixes of codes, that are reported; None reports all."""
    ignore: tuple[str, ...] = ()
    trace: str | None = None
    """A log of torch, relative to the pyproject's folder, whose hints and findings editors show."""
    exclude: tuple[str, ...] = ()
    """Files that are skipped below a folder, as patterns over paths relative to the pyproject's folder."""
    fail_on: Severity = "warning"
    """The least serious severity that makes the command fail."""
    time_limit_s: float = 120.0
    options: TraceOptions = field(default_factory=lambda: TraceOptions(examples=True, gpu_texts=()))
    budget: Budget = NO_LIMITS
    per_file: tuple[Section, ...] = ()
    per_target: tuple[Section, ...] = ()
    """The pattern is `FILE::NAME`."""

    def selects(self, code: str, file: str, qualname: str | None) -> bool:
        """Return True if a finding with that code is reported for that file and target."""
        select, ignore = self.select, self.ignore
        for section in self._matching_sections(file, qualname):
            select = select if section.select is None else section.select
            ignore = (*ignore, *section.ignore)
        return (select is None or code.startswith(select)) and not code.startswith(ignore)

    def budget_of(self, file: str, qualname: str | None = None) -> Budget:
        """Return the limits for a target: the general ones, then the file's, then the target's.

        Without a target, they are the limits of the file.
        """
        budget = self.budget
        for section in self._matching_sections(file, qualname):
            budget = budget.with_limits(section.budget)
        return budget

    def excludes(self, file: str) -> bool:
        path = self.relative(file)
        return any(_fits(path, pattern) for pattern in self.exclude)

    def named_targets(self, file: str) -> tuple[str, ...]:
        """Return the names of the targets of a file that have their own settings."""
        path = self.relative(file)
        pairs = (section.pattern.partition("::") for section in self.per_target)
        return tuple(name for where, _, name in pairs if where == path and not set("*?[") & set(name))

    def _matching_sections(self, file: str, qualname: str | None) -> tuple[Section, ...]:
        """Return what applies to a file, then what applies to its target: later sections take precedence."""
        path = self.relative(file)
        files = (section for section in self.per_file if _fits(path, section.pattern))
        targets = (
            section for section in self.per_target if fnmatchcase(f"{path}::{qualname}", section.pattern)
        )
        return (*files, *(targets if qualname is not None else ()))

    def relative(self, file: str) -> str:
        """Return the path to compare with patterns, relative to the pyproject's folder."""
        path, root = Path(file).resolve(), self.file.parent if self.file is not None else Path.cwd()
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def settings_for(file: str) -> Settings:
    """Return the settings of the nearest pyproject.toml with `[tool.aotlens]`, from the file's folder
    upwards.

    Raises:
        UserError: a pyproject.toml that cannot be read, an unknown key, an invalid value.
    """
    return _of_folder(Path(file).resolve().parent)


@cache
def _of_folder(folder: Path) -> Settings:
    path = folder / "pyproject.toml"
    if path.is_file():
        table = project_table(path)
        if table is not None:
            return _Reader(path).settings(table)
    return Settings() if folder.parent == folder else _of_folder(folder.parent)


def check_codes(codes: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Return the codes in upper case.  Raises UserError for one with which no diagnostic starts."""
    for code in codes:
        if not known_prefix(code.upper()):
            raise UserError(f"{where}: no diagnostic `{code}`; there is {near_codes(code)}")
    return tuple(code.upper() for code in codes)


def _fits(path: str, pattern: str) -> bool:
    """Return True if a pattern matches a path or one of its parent folders."""
    parents = (parent.as_posix() for parent in Path(path).parents)
    return any(fnmatchcase(candidate, pattern.rstrip("/")) for candidate in (path, *parents))


class _Reader:
    """Reads the tables of one file; every error names the file and the table."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def settings(self, table: Mapping[str, Any]) -> Settings:
        known = {**_CODES, **_LIMITS, **_WHOLE, "per-file": "", "per-target": ""}
        self._reject_unknown(table, tuple(known), "tool.aotlens")
        whole = {name: self._value(table, name, "tool.aotlens") for name in _WHOLE if name in table}
        tracing = {name: whole[name] for name in ("backend", "dynamic", "policy", "gpu") if name in whole}
        plain = {name.replace("-", "_"): value for name, value in whole.items() if name not in tracing}
        plain |= {"time_limit_s": plain.pop("time_limit")} if "time_limit" in plain else {}
        section = self._section("", table, "tool.aotlens")
        return Settings(
            file=self._path,
            select=section.select,
            ignore=section.ignore,
            options=replace(TraceOptions(examples=True, gpu_texts=()), **tracing),
            budget=section.budget,
            per_file=self._sections(table, "per-file"),
            per_target=self._sections(table, "per-target"),
            **plain,
        )

    def _sections(self, table: Mapping[str, Any], name: str) -> tuple[Section, ...]:
        where = f"tool.aotlens.{name}"
        rows = table.get(name, {})
        if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
            raise UserError(f'{self._path}: [{where}] takes tables: [{where}."PATTERN"]')
        for pattern, row in rows.items():
            inner = f'{where}."{pattern}"'
            if name == "per-target" and "::" not in pattern:
                raise UserError(f"{self._path}: [{inner}] is not FILE::NAME")
            self._reject_unknown(row, (*_CODES, *_LIMITS), inner)
        return tuple(self._section(pattern, row, f'{where}."{pattern}"') for pattern, row in rows.items())

    def _section(self, pattern: str, table: Mapping[str, Any], where: str) -> Section:
        codes = {
            name: check_codes(self._value(table, name, where), f"{self._path}: [{where}] {name}")
            for name in _CODES
            if name in table
        }
        limits = {
            name.replace("-", "_"): self._value(table, name, where) for name in _LIMITS if name in table
        }
        return Section(pattern, codes.get("select"), codes.get("ignore", ()), Budget(**limits))

    def _reject_unknown(self, table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
        for name in table:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"there is {', '.join(known)}"
                raise UserError(f"{self._path}: [{where}] has no setting `{name}`; {hint}")

    def _value(self, table: Mapping[str, Any], name: str, where: str) -> Any:
        kind = (_CODES | _LIMITS | _WHOLE)[name]
        return checked_value(kind, table[name], f"{self._path}: [{where}] {name}")


def _strings(value: Any) -> tuple[str, ...] | None:
    fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return tuple(value) if fits else None


def _bytes(value: Any) -> int | None:
    return size_bytes(value) if isinstance(value, str) else _count(value)


def _count(value: Any) -> int | None:
    """Return a number that can be a limit: whole, not negative, and no `true` or `false` of TOML."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _one_of(*values: str) -> Kind:
    return Kind(", ".join(f'"{value}"' for value in values), lambda value: value if value in values else None)


_BYTES = Kind('bytes, as 1048576 or "64 MiB"', _bytes)
_COUNT = Kind("a whole number", _count)
_CODES = {
    "select": Kind('a list of codes, as ["AL1", "AL301"]', _strings),
    "ignore": Kind('a list of codes, as ["AL1", "AL301"]', _strings),
}
_LIMITS = {
    "max-saved-bytes": _BYTES,
    "max-peak-bytes": _BYTES,
    "max-wrapper-steps": _COUNT,
    "max-graph-breaks": _COUNT,
    "max-recompilations": _COUNT,
    "step-peak": _BYTES,
}
_WHOLE = {
    "exclude": Kind('a list of patterns, as ["examples/old/*"]', _strings),
    "fail-on": _one_of(*SEVERITIES),
    "trace": Kind("a log of TORCH_TRACE", lambda value: value if isinstance(value, str) and value else None),
    **{setting.key: setting.kind for setting in TRACE_SETTINGS},
}
"""Keys of the top level only; the others are also allowed in `per-file` and `per-target`."""

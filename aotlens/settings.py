"""The settings of a trace: one table for the command line, editors and `[tool.aotlens]` of pyproject.toml.

Invariant: each setting has one name in each of the three and one check of its values.  An option of the
command line comes first, then the editor's setting, then `[tool.aotlens]`, then the default of the command.
Standard library only.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotlens.errors import UserError
from aotlens.policy import FORMS, Policy

__all__ = ["TRACE_SETTINGS", "Kind", "Setting", "checked_value", "project_settings", "project_table"]


@dataclass(frozen=True, slots=True)
class Kind:
    """The values that a setting takes."""

    accepts: str
    read: Callable[[Any], Any]
    """Returns the value, or None for one that does not fit; a UserError with more details is shown too."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    key: str
    """Its key in `[tool.aotlens]`."""
    option: str
    """Its option of `aotlens inspect`."""
    editor: str
    """Its name below `aotlens.` in an editor."""
    field: str
    """Its name in this code."""
    kind: Kind
    means: str


def _one_of(*values: str) -> Callable[[Any], Any]:
    return lambda value: value if value in values else None


def _policy(value: Any) -> str | None:
    return str(Policy.parse(value)) if isinstance(value, str) else None


def _seconds(value: Any) -> float | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if fits else None


TRACE_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "backend",
        "--backend",
        "backend",
        "backend",
        Kind('"eager" or "inductor"', _one_of("eager", "inductor")),
        "code generation; `inductor` generates kernels and shows them",
    ),
    Setting(
        "dynamic",
        "--dynamic",
        "dynamic",
        "dynamic",
        Kind("true or false", lambda value: value if isinstance(value, bool) else None),
        "trace with symbolic sizes",
    ),
    Setting(
        "policy",
        "--policy",
        "policy",
        "policy",
        Kind(f"a policy ({', '.join(FORMS)})", _policy),
        "what is saved for the backward and what is recomputed",
    ),
    Setting(
        "gpu",
        "--gpu",
        "gpu",
        "gpu",
        Kind('a GPU, as "h100"', lambda value: value if isinstance(value, str) and value else None),
        "also show the kernels for this GPU",
    ),
    Setting(
        "time-limit",
        "--time-limit",
        "timeLimitSeconds",
        "time_limit_s",
        Kind("seconds, above 0", _seconds),
        "a trace that runs longer is stopped",
    ),
)


def checked_value(kind: Kind, value: Any, where: str) -> Any:
    """Return the value of the setting that `where` names.

    Raises:
        UserError: it does not fit.
    """
    try:
        checked = kind.read(value)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    if checked is None:
        raise UserError(f"{where} takes {kind.accepts}, found {value!r}")
    return checked


def project_table(path: Path) -> dict[str, Any] | None:
    """Return `[tool.aotlens]` of a pyproject.toml; None without that table.

    Raises:
        UserError: the file cannot be read, or has something else of that name.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("aotlens")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if table is None:
        return None
    if not isinstance(table, dict):
        raise UserError(f"{path}: [tool.aotlens] is not a table")
    return _with_dashes(table)


def _with_dashes(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with `step_peak` as `step-peak`; patterns, which are keys too, stay as they are."""
    dashed = {name.replace("_", "-"): value for name, value in table.items()}
    for name in ("per-file", "per-target"):
        rows = dashed.get(name)
        if isinstance(rows, dict):
            dashed[name] = {
                pattern: _with_dashes(row) if isinstance(row, dict) else row for pattern, row in rows.items()
            }
    return dashed


def project_settings(file: str) -> dict[str, Any]:
    """Return the trace settings of the nearest pyproject.toml with `[tool.aotlens]`, by field.

    Raises:
        UserError: as `project_table`; also if a value does not fit.
    """
    for folder in Path(file).resolve().parents:
        path = folder / "pyproject.toml"
        table = project_table(path) if path.is_file() else None
        if table is not None:
            where = f"{path}: [tool.aotlens]"
            return {
                setting.field: checked_value(setting.kind, table[setting.key], f"{where} {setting.key}")
                for setting in TRACE_SETTINGS
                if setting.key in table
            }
    return {}

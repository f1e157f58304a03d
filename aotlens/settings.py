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

__all__ = ["TRACE_SETTINGS", "Setting", "project_settings"]


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
    accepts: str
    read: Callable[[Any], Any]
    """Returns the value, or None for one that does not fit."""
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
        '"eager" or "inductor"',
        _one_of("eager", "inductor"),
        "code generation; `inductor` generates kernels and shows them",
    ),
    Setting(
        "dynamic",
        "--dynamic",
        "dynamic",
        "dynamic",
        "true or false",
        lambda value: value if isinstance(value, bool) else None,
        "trace with symbolic sizes",
    ),
    Setting(
        "policy",
        "--policy",
        "policy",
        "policy",
        f"a policy ({', '.join(FORMS)})",
        _policy,
        "what is saved for the backward and what is recomputed",
    ),
    Setting(
        "gpu",
        "--gpu",
        "gpu",
        "gpu",
        'a GPU, as "h100"',
        lambda value: value if isinstance(value, str) and value else None,
        "also show the kernels for this GPU",
    ),
    Setting(
        "time-limit",
        "--time-limit",
        "timeLimitSeconds",
        "time_limit_s",
        "seconds, above 0",
        _seconds,
        "a trace that runs longer is stopped",
    ),
)


def project_settings(file: str) -> dict[str, Any]:
    """Return the trace settings of the nearest pyproject.toml with `[tool.aotlens]`, by field.

    Raises:
        UserError: the file cannot be read, or a value does not fit.
    """
    for folder in Path(file).resolve().parents:
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("aotlens")
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        if isinstance(table, Mapping):
            return _values(path, table)
    return {}


def _values(path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in TRACE_SETTINGS:
        value = table.get(setting.key, table.get(setting.key.replace("-", "_")))
        if value is None:
            continue
        where = f"{path}: [tool.aotlens] {setting.key}"
        try:
            values[setting.field] = setting.read(value)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        if values[setting.field] is None:
            raise UserError(f"{where} takes {setting.accepts}, found {value!r}")
    return values

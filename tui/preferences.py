"""What the app reads from the user's settings, and what it remembers by itself.

`tui.toml` in the user's configuration folder is written by the user: a theme, and keys. `tui.json` in the
state folder is written by the app: the split, and the theme that was chosen last.

Invariant: a bad setting is reported and left out; it never keeps the app from starting.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's `tui.toml`."""

    theme: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    """Names of bindings with the keys that replace theirs, several separated by commas."""
    problems: tuple[str, ...] = ()
    """What was left out, as sentences."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The choices of the last session."""

    theme: str | None = None
    shares: Mapping[str, int] = field(default_factory=dict)
    """Percent of the source's part: `beside`, `stacked`."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """Both."""

    settings: Settings = field(default_factory=Settings)
    remembered: Remembered = field(default_factory=Remembered)


def settings_file() -> Path:
    """Return the file that the user writes."""
    return _folder("XDG_CONFIG_HOME", ".config") / "tui.toml"


def state_file() -> Path:
    """Return the file that the app writes."""
    return _folder("XDG_STATE_HOME", ".local/state") / "tui.json"


def _folder(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "aotlens"


def read_settings(file: Path) -> Settings:
    """Return the user's settings; those of a file that does not exist are empty."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, ValueError) as error:
        return Settings(problems=(f"{file} cannot be read: {error}",))
    settings = Settings()
    for name, value in table.items():
        if name == "theme" and isinstance(value, str):
            settings = replace(settings, theme=value)
        elif name == "keys" and _is_text_table(value):
            settings = replace(settings, keys=value)
        else:
            problem = f'{file}: `{name}` is not a setting; there is `theme = "NAME"` and `[keys]`'
            settings = replace(settings, problems=(*settings.problems, problem))
    return settings


def _is_text_table(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(keys, str) and keys for keys in value.values())


KeyGroup = Mapping[str, tuple[str, ...]]
"""Name and keys of bindings that act together."""


def checked(
    settings: Settings, themes: Iterable[str], key_groups: Callable[[], Sequence[KeyGroup]]
) -> Settings:
    """Return the settings without themes and keys that the app does not have.

    `key_groups` is called only for settings with keys, because it loads every tab.
    """
    groups = key_groups() if settings.keys else ()
    themes, names = sorted(themes), sorted({name for group in groups for name in group})
    problems = list(settings.problems)
    theme = settings.theme
    if theme is not None and theme not in themes:
        problems.append(f"there is no theme `{theme}`; {_near(theme, themes)}")
        theme = None
    unknown = [name for name in settings.keys if name not in names]
    problems += [f"[keys] has no binding `{name}`; {_near(name, names)}" for name in unknown]
    keys = {name: value for name, value in settings.keys.items() if name in names}
    problems += (problem for group in groups for problem in _clashes(keys, group))
    return Settings(theme, keys, tuple(problems))


def _clashes(keys: Mapping[str, str], group: KeyGroup) -> Iterator[str]:
    """Yield the bindings of a group that lose their key to another one of it."""
    for name in (name for name in keys if name in group):
        own_keys = {key.strip() for key in keys[name].split(",")}
        for other, own in group.items():
            if other != name and other not in keys and not own_keys.isdisjoint(own):
                yield f"[keys] `{name}` takes the key of `{other}`"


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"there is {', '.join(known)}"


def read_remembered(file: Path) -> Remembered:
    """Return the choices of the last session; those that are missing or damaged have their defaults."""
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Remembered()  # the app writes this file itself, so there is nothing to report
    if not isinstance(table, dict):
        return Remembered()
    theme, shares = table.get("theme"), table.get("shares")
    numbers = shares.items() if isinstance(shares, dict) else ()
    return Remembered(
        theme if isinstance(theme, str) else None,
        {name: share for name, share in numbers if isinstance(share, int) and 0 < share < 100},
    )


def write_remembered(file: Path, remembered: Remembered) -> str | None:
    """Write the choices; return the problem, if there is one."""
    text = json.dumps({"theme": remembered.theme, "shares": dict(remembered.shares)}, indent=1)
    scratch = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(file)
    except OSError as error:
        return f"{file} cannot be written, so the split and the theme are not remembered: {error.strerror}"
    return None

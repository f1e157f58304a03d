"""The releases of torch that aotlens is made for, and what to say of another one.

Invariant: standard library only, so that a command can tell before torch is loaded.
"""

import re
from importlib.util import find_spec
from pathlib import Path

OLDEST, NEWEST = (2, 11), (2, 15)

SUPPORTED = " to ".join(f"{major}.{minor}" for major, minor in (OLDEST, NEWEST))

_has_warned = False


def is_supported(version: str) -> bool:
    """Whether a version of torch, as it names itself, is one of those releases."""
    return OLDEST <= tuple(int(part) for part in version.split(".")[:2]) <= NEWEST


def note_once(version: str | None = None) -> str | None:
    """What to tell of the torch here; None where it is supported, is not there, or this process was told."""
    global _has_warned  # noqa: PLW0603 (a command and the engine below it are one process)
    version = version or installed()
    if _has_warned or version is None or is_supported(version):
        return None
    _has_warned = True
    return f"aotlens is tested with torch {SUPPORTED}; this is torch {version}, with which it may fail"


def installed() -> str | None:
    """The version that `import torch` would give; read from a file, without loading it."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return None
    stated = re.search(
        r"^__version__ = '(.+)'$", Path(torch.origin).with_name("version.py").read_text(), re.M
    )
    return stated[1] if stated else None

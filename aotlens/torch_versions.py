"""The torch releases that aotlens supports, and the warning about other ones.

Invariant: standard library only, so that a command can check before torch is loaded.
"""

import re
from importlib.util import find_spec
from pathlib import Path

OLDEST, NEWEST = (2, 11), (2, 15)

SUPPORTED = " to ".join(f"{major}.{minor}" for major, minor in (OLDEST, NEWEST))

_has_warned = False


def is_supported(version: str) -> bool:
    """Return True if a torch version, as torch states it, is a supported release."""
    return OLDEST <= tuple(int(part) for part in version.split(".")[:2]) <= NEWEST


def note_once(version: str | None = None) -> str | None:
    """Return a warning about the torch version; None if it is supported, missing, or this process has
    warned."""
    global _has_warned  # noqa: PLW0603 (a command and the engine below it are one process)
    version = version or installed()
    if _has_warned or version is None or is_supported(version):
        return None
    _has_warned = True
    return f"aotlens is tested with torch {SUPPORTED}; this is torch {version}, with which it may fail"


def installed() -> str | None:
    """Return the version that `import torch` would load; read from a file, without importing it."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return None
    stated = re.search(
        r"^__version__ = '(.+)'$", Path(torch.origin).with_name("version.py").read_text(), re.M
    )
    return stated[1] if stated else None

"""How the kernels that Inductor writes for the CPU are linked: with gold, where g++ finds it.

The usual linker reads the symbols of libtorch_cpu, over 70,000, for each library: 0.33 of the 0.93 s of CPU
time that building one with a small kernel takes; gold takes 0.15 s.
"""

import shlex
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import PurePath
from typing import Any

from aotlens.torch_api.patches.scopes import around

__all__ = ["link_with_gold"]


@around
def link_with_gold(original: Callable[..., Any], command: str, cwd: str) -> None:
    """How Inductor runs a command of the compiler: `original(command, cwd)`, with gold where it can."""
    if not _links_with_gold(command):
        original(command, cwd)
        return
    try:
        original(f"{command} -fuse-ld=gold", cwd)
    except RuntimeError:  # CppCompileError: of the kernel, or of gold
        original(command, cwd)


def _links_with_gold(command: str) -> bool:
    """Whether a command links with GNU's compiler, where gold is installed."""
    words = shlex.split(command)
    return (
        PurePath(words[0]).name.startswith(("g++", "gcc"))
        and "-shared" in words
        and "-c" not in words
        and not any(word.startswith("-fuse-ld") for word in words)
        and _has_gold()
    )


@cache
def _has_gold() -> bool:
    return shutil.which("ld.gold") is not None

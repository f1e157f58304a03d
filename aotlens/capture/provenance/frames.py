"""Which stack frames belong to the user, and the user's names of Dynamo's resume functions."""

import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from aotlens.ir.origin import Frames
from aotlens.model.report import AFTER

_AOTLENS = str(Path(__file__).absolute().parents[2]) + os.sep  # not resolved: code has the path of its import
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))
"""Part of the path of every installed package, in the environment, for the user or the system."""


def _package_folder(name: str) -> str:
    """Return a package's folder without importing it; a path that no file has if it is missing."""
    spec = find_spec(name)
    return os.path.dirname(spec.origin) + os.sep if spec is not None and spec.origin else "\0"


_TRITON = _package_folder("triton")
"""Its frames lie between a launch and its kernel, as torch's do; it may be outside this environment."""
_TYPING = os.sep + "typing_extensions.py"
"""Its decorator `deprecated` lies between the user's code and functions of torch's."""

_is_user: dict[str, bool] = {}
"""By file, since it is asked for each frame around a recorded operator, and each line that Dynamo traces."""


def is_user_file(filename: str) -> bool:
    """Return True if the file is neither torch's nor ours nor the standard library's."""
    known = _is_user.get(filename)
    if known is None:
        known = _is_user[filename] = _is_users(filename)
    return known


def _is_users(filename: str) -> bool:
    if filename.startswith(("<frozen", "<string>", "<eval_with_key>", "<aotlens")) or filename == "":
        return False
    if filename.startswith((_TORCH, _AOTLENS, _TRITON)) or filename.endswith(_TYPING):
        return False
    return not filename.startswith(_STDLIB) or is_installed_file(filename)


def is_torch_file(filename: str) -> bool:
    return filename.startswith(_TORCH)


def is_installed_file(filename: str) -> bool:
    """Return True if the file belongs to an installed package."""
    return any(folder in filename for folder in _INSTALLED)


def is_first_party_file(filename: str) -> bool:
    """Return True if the user wrote the file, so that it belongs to no installed package."""
    return is_user_file(filename) and not is_installed_file(filename)


def importing_library() -> bool:
    """Return True if the innermost frame outside torch and aotlens is part of a library's import."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    while frame is not None and is_installed_file(frame.f_code.co_filename):
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False


def is_user_code(code: CodeType) -> bool:
    return is_user_file(code.co_filename)


def call_boundary(run: Callable[[], Any]) -> Any:
    """Run a callable; the stack walk for user frames ends at this frame."""
    return run()


def user_frames(boundary: CodeType = call_boundary.__code__) -> Frames:
    """Return the user's frames, innermost first, up to the frame that runs `boundary`, which is not one.

    It runs for each recorded operator and visits every frame of the stack: the memo is read here first, which
    saves two calls a frame.
    """
    frames: list[tuple[CodeType, int]] = []
    frame: FrameType | None = sys._getframe(1)
    known_files = _is_user
    while frame is not None:
        code = frame.f_code
        if code is boundary:
            break
        is_users = known_files.get(code.co_filename)
        if is_users is None:
            is_users = is_user_code(code)
        if is_users:
            frames.append((code, frame.f_lasti))
        frame = frame.f_back
    return Frames(tuple(frames))


def calling_frames() -> Frames:
    """Return the user's own frames around the compiler, innermost first."""
    frames: list[tuple[CodeType, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_first_party_file(frame.f_code.co_filename):
            frames.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return Frames(tuple(frames))


_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>\w+|<\w+>)_at_(?P<line>\d+)$")


def user_qualname(qualname: str, file: str) -> str:
    """Return the user's name: `Net.forward after line 17` for `torch_dynamo_resume_in_forward_at_17`."""
    match = _RESUMED.search(qualname)
    if match is None:
        return qualname
    name, line = match["name"], int(match["line"])
    enclosing = [code for code in _code_objects(file) if code.co_name == name and _contains(code, line)]
    return f"{enclosing[-1].co_qualname if enclosing else name}{AFTER}{line}"


def _code_objects(file: str) -> Iterator[CodeType]:
    """Yield the code of a file and of all its functions and classes, outer ones first."""
    try:
        waiting = [compile("".join(linecache.getlines(file)), file, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):  # a notebook cell, or a file that has changed
        return
    while waiting:
        code = waiting.pop()
        yield code
        waiting += (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _contains(code: CodeType, line: int) -> bool:
    lines = [number for _, _, number in code.co_lines() if number is not None]
    return code.co_firstlineno <= line <= max(lines, default=0)

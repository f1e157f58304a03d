"""Runs exported modules beside eager, in a process that cannot import aotlens."""

import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.exports.facts import Facts, difference, facts
from tests.programs.program import Program, grown

OURS = ("aotlens", "tui", "lsp_server")


class Blocker:
    """An import finder that refuses aotlens."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in OURS:
            raise ImportError(f"an exported module must not need {name}")


def block() -> None:
    """From here on nothing of aotlens can be imported, and nothing was."""
    loaded = [name for name in sys.modules if name.partition(".")[0] in OURS]
    assert not loaded, f"already imported: {loaded}"
    sys.meta_path.insert(0, Blocker())


def load(path: Path) -> types.ModuleType:
    """The exported module."""
    spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exported_call(module: Any, fn: Any) -> Callable[..., Any]:
    """The module's `call`, for a module of the user's with the tensors that this owns."""
    owner: Any = getattr(fn, "__self__", fn)
    return module.bind(owner) if hasattr(module, "OWNED") else module.call


def judged(program: Program, path: Path, grow: bool) -> str | None:
    """What an exported module does otherwise than eager, over calls with different values; None: nothing."""
    with program.context():
        eager, fn = (_made(program) for _ in range(2))
        call = None
        for seed in range(3 if grow else 2):
            expected = _called(program, eager, eager, seed)
            if call is None:  # behind a call in eager, which makes the process group that a module may need
                call = exported_call(load(path), fn)
            wrong = difference(_called(program, call, fn, seed), expected, tolerated=program.tolerated)
            if wrong is not None:
                return f"call {seed + 1}: {wrong}"
    return None


def _made(program: Program) -> Any:
    torch.manual_seed(0)
    with torch.enable_grad():
        return program.make()


def _called(program: Program, call: Callable[..., Any], fn: Any, seed: int) -> Facts:
    torch.manual_seed(seed)
    with torch.enable_grad():
        if seed == 2:
            with grown():
                args = program.make_args()
        else:
            args = program.make_args()
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return facts(call, fn, args)

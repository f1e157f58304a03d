"""Run as a script: exported modules beside eager, in a process that cannot import aotlens.

`python -m tests.engine.standalone FOLDER`: each line of FOLDER/names.txt names a program whose module text
is FOLDER/N.py; prints one line for each program that differs from eager.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class Blocker:
    """An import finder that refuses aotlens."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in ("aotlens", "tui", "lsp_server"):
            raise ImportError(f"an exported module must not need {name}")


if __name__ == "__main__":  # other tests import names from here
    sys.meta_path.insert(0, Blocker())

import torch  # noqa: E402 - after the blocker, so that nothing slips past it
from torch import Tensor, nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from tests.programs import PROGRAMS, Program  # noqa: E402

DIFFERS = "differs: "
"""Starts each line that is a finding; programs may print too."""


def load(path: Path) -> Any:
    """The exported module."""
    spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def inside(tensor: Any) -> list[Any]:
    """The plain tensors inside a wrapper subclass; the tensor itself when it is none."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [plain for name in names for plain in inside(getattr(tensor, name))]


def seen(call: Callable[..., Any], fn: Any, args: Sequence[Any]) -> list[Tensor | None]:
    """Results, arguments after the call, and gradients."""
    torch.manual_seed(1)
    owned = [*fn.parameters(), *fn.buffers()] if isinstance(fn, nn.Module) else []
    inputs = [*owned, *tensors(args)]
    leaves = [tensor for tensor in inputs if tensor.is_leaf and tensor.requires_grad]
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # whatever mode the call leaves behind
        outputs = tensors(call(*args))
    roots = [output for output in outputs if output.grad_fn is not None]
    everything = [plain for tensor in (*outputs, *inputs) for plain in inside(tensor)]
    found: list[Tensor | None] = [tensor.detach().clone() for tensor in everything]
    leaves = [tensor for tensor in leaves if tensor.requires_grad]  # the call may switch it off
    if roots and leaves:
        tangents = [torch.ones_like(root) for root in roots]
        gradients = torch.autograd.grad(roots, leaves, tangents, allow_unused=True)
        found += [plain for gradient in gradients for plain in inside(gradient)]
    return found


def made(program: Program) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    torch.manual_seed(0)
    return program.make(), program.make_args()


def exported_call(module: Any, fn: Any) -> Callable[..., Any]:
    """The module's `call` with what the user's module owns put in front."""
    owned = getattr(module, "OWNED", ())
    if not owned:
        return module.call
    tensors_by_name = {**dict(fn.named_parameters()), **dict(fn.named_buffers())}

    def call(*args: Any) -> Any:
        result = module.call(*(tensors_by_name[name] for name in owned), *args)
        if not hasattr(module, "REBOUND"):
            return result
        result, rebound = result
        for name, tensor in rebound.items():
            owner, _, key = name.rpartition(".")
            setattr(fn.get_submodule(owner), key, tensor)
        return result

    return call


def difference(program: Program, path: Path) -> str | None:
    """What an exported module does otherwise than eager; None when nothing."""
    eager, eager_args = made(program)
    fn, args = made(program)
    with program.context():
        expected = seen(eager, eager, eager_args)
        found = seen(exported_call(load(path), fn), fn, args)
    try:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")
    return None


def main(folder: Path) -> None:
    by_name = {program.name: program for program in PROGRAMS}
    for number, name in enumerate((folder / "names.txt").read_text().split()):
        try:
            wrong = difference(by_name[name], folder / f"{number}.py")
        except Exception as error:  # noqa: BLE001 - reported by name, and the next program runs
            wrong = f"{type(error).__name__}: {error}"
        if wrong is not None:
            sys.stdout.write(f"{DIFFERS}{name}: {wrong}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

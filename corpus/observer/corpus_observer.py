"""Note a program's parameters, gradients, clocks and peak of tensor memory without changing the program.

Invariant: the program's own behaviour stays as it is: `torch.compile` is called with the same arguments, what
stands on stdout passes through unchanged, and a failure here costs the observation alone.
"""

import atexit
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

__all__ = ["install"]

_modules: dict[str, Any] = {}
"""Modules of the program by the name of the variable; without the wrapper of `torch.compile`."""
_script_globals: dict[int, dict[str, Any]] = {}
_ranks = [0]
"""The last one is the rank of this process."""


def install() -> None:
    """Observe this process: what it dumps goes to the folder in `CORPUS_DUMP`."""
    sys.meta_path.insert(0, _TorchFinder())
    atexit.register(_at_exit, os.getpid())
    _Lines(os.environ.get("CORPUS_CLOCKS", ""), os.environ.get("CORPUS_MEMORY_LINES", "")).install()


class _TorchFinder(MetaPathFinder):
    """Find torch as usual, and note what is passed to `torch.compile` from then on."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                if (
                    self in sys.meta_path
                ):  # `find_spec` is also called by who only asks whether there is a torch
                    sys.meta_path.remove(self)
                execute(module)
                _observe_compile(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _observe_compile(torch: Any) -> None:
    """Replace `torch.compile` by itself behind a note of the modules at hand."""
    original = torch.compile

    def compile(*args: Any, **kwargs: Any) -> Any:
        _guarded(_note_frames, sys._getframe(1))
        _guarded(_note_argument, args[0] if args else kwargs.get("model"))
        if os.environ.get("CORPUS_EAGER") and not _is_torchs_own(sys._getframe(1)):
            kwargs["disable"] = True
        return original(*args, **kwargs)

    if os.environ.get("CORPUS_EAGER"):  # TORCH_COMPILE_DISABLE=1 makes fullgraph=True an error
        torch.compiler.set_stance("force_eager")
    compile.__doc__, compile.__wrapped__ = original.__doc__, original  # type: ignore[attr-defined]
    torch.compile = compile


def _is_torchs_own(frame: FrameType) -> bool:
    """Whether an operator such as `scan` or `flex_attention` captures its own functions to run in eager."""
    name = frame.f_globals.get("__name__", "")
    return name.startswith("torch.") and name != "torch.nn.modules.module"


def _guarded(function: Any, *args: Any) -> None:
    try:
        function(*args)
    except Exception:  # noqa: BLE001 (the program must go on; the harness reports what was not observed)
        _write("observer_error.txt", traceback.format_exc())


def _note_frames(frame: FrameType | None) -> None:
    """Modules among the variables of the script's functions that are running."""
    script = os.environ["CORPUS_SCRIPT"]
    while frame is not None:
        if os.path.realpath(frame.f_code.co_filename) == script:
            _script_globals[id(frame.f_globals)] = frame.f_globals
            if frame.f_locals is not frame.f_globals:
                _note_values(frame.f_locals)
        frame = frame.f_back
    _note_rank()


def _note_argument(argument: Any) -> None:
    owner = getattr(argument, "__self__", argument)
    if type(owner).__name__ != "type":
        _note("compiled", owner)


def _note_values(variables: dict[str, Any]) -> None:
    for name, value in list(variables.items()):
        _note(name, value)
        if type(value) in (list, tuple):
            for index, item in enumerate(value):
                _note(f"{name}[{index}]", item)


def _note(name: str, value: Any) -> None:
    nn = sys.modules["torch.nn"]
    value = _unwrapped(value)
    if isinstance(value, nn.Module) and not any(value is known for known in _modules.values()):
        label, number = name, 1
        while label in _modules:
            number += 1
            label = f"{name}#{number}"
        _modules[label] = value


def _unwrapped(value: Any) -> Any:
    """The module itself, where `torch.compile` returned a module around it."""
    inner = getattr(value, "__dict__", {}).get("_modules", {})
    return inner["_orig_mod"] if isinstance(inner, dict) and "_orig_mod" in inner else value


def _note_rank() -> None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        _ranks.append(distributed.get_rank())


def _at_exit(pid: int) -> None:
    if os.getpid() == pid and "torch" in sys.modules:  # not in a process that was forked from this one
        _guarded(_dump)


def _dump() -> None:
    import torch

    for variables in list(_script_globals.values()):
        _note_values(variables)
    tensors: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for name, module in _roots():
            for path, tensor in _tensors(module):
                for suffix, plain in _plain(tensor, torch):
                    tensors[f"{name}.{path}{suffix}"] = plain.detach().clone()
    if tensors and (folder := os.environ.get("CORPUS_DUMP")):
        torch.save(tensors, Path(folder) / f"rank{_ranks[-1]}.pt")


def _roots() -> Iterator[tuple[str, Any]]:
    """Modules that are no part of another one."""
    inner = {id(part) for module in _modules.values() for part in module.modules() if part is not module}
    return ((name, module) for name, module in _modules.items() if id(module) not in inner)


def _tensors(module: Any) -> Iterator[tuple[str, Any]]:
    for name, parameter in module.named_parameters():
        path = name.replace("_orig_mod.", "")
        yield path, parameter
        if parameter.grad is not None:
            yield f"{path}.grad", parameter.grad
    for name, buffer in module.named_buffers():
        yield name.replace("_orig_mod.", ""), buffer


def _plain(tensor: Any, torch: Any) -> Iterator[tuple[str, Any]]:
    """The tensor, or for a subclass the tensors that it is made of."""
    if not isinstance(tensor, torch.Tensor):  # a subclass may also hold other objects (a device mesh)
        return
    if tensor.is_meta or isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return
    if type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        yield "", tensor.data
    elif hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            for suffix, plain in _plain(getattr(tensor, name), torch):
                yield f".{name}{suffix}", plain


class _Lines:
    """Note the clocks at each line of stdout, and profile the allocations of tensors between two lines."""

    def __init__(self, clocks: str, window: str) -> None:
        self.clocks = os.open(clocks, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if clocks else -1
        first, _, last = window.partition("-")
        self.first, self.last = int(first or 0), int(last or 0)
        self.count = 0
        self.profile: Any = None

    def install(self) -> None:
        write = sys.stdout.write

        def counted(text: str) -> int:
            written = write(text)
            for _ in range(text.count("\n")):
                self.line()
            return written

        sys.stdout.write = counted  # type: ignore[method-assign, assignment]

    def line(self) -> None:
        if self.clocks >= 0:
            tree = sum(os.times()[:4])
            os.write(self.clocks, f"{time.monotonic()!r} {tree!r} {time.thread_time()!r}\n".encode())
        self.count += 1
        if self.count == self.first:
            _guarded(self.start)
        elif self.count == self.last and self.profile is not None:
            _guarded(self.stop)

    def start(self) -> None:
        import torch

        self.profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        )
        self.profile.__enter__()

    def stop(self) -> None:
        profile, self.profile = self.profile, None
        profile.__exit__(None, None, None)
        live = peak = 0
        for event in profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                live += event.nbytes()
                peak = max(peak, live)
        _write("memory.json", json.dumps({"peak_bytes": peak}))


def _write(name: str, text: str) -> None:
    if folder := os.environ.get("CORPUS_DUMP"):
        (Path(folder) / name).write_text(text)

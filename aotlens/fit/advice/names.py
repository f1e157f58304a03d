"""Run a script until its first backward, and describe the names that are visible there.

Invariant: the script is ended before the backward runs.
"""

import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from types import FrameType
from typing import Any

import torch
from torch import nn

from aotlens.fit.advice.jobs import EIGHT_BIT_MODULE, OUTCOME, NameFact, NamesJob, NamesOutcome
from aotlens.fit.fake_values import reading_without_values
from aotlens.fit.observer import observing_memory
from aotlens.gpu_emulation.contexts import emulating
from aotlens.model.codec import encode_record
from aotlens.model.spans import is_users_own
from aotlens.session.collector import Collector, StopScript
from aotlens.session.compile_router import CompileRouter, intercepting_compile
from aotlens.session.job_folder import read_job, save_answer
from aotlens.session.run import run_to_end
from aotlens.session.script.source import load_script, new_module, run_script
from aotlens.torch_api.replacements import Replacement, replacing

__all__ = ["main", "names_of"]


def main(folder: str) -> int:
    """Run the job of a folder and write the outcome there; the server calls it in a fork of itself."""
    job = read_job(folder, NamesJob)
    before = frozenset(sys.modules)
    outcome = replace(names_of(job), libraries=tuple(_libraries(before)))
    save_answer(folder, OUTCOME, encode_record(outcome))
    return 0


def names_of(job: NamesJob) -> NamesOutcome:
    """Run the script in this process until its first backward."""
    outcomes: list[NamesOutcome] = []

    def backward(*args: Any, **kwargs: Any) -> None:
        frame = _user_frame(sys._getframe(1))
        if frame is not None:
            outcomes.append(_outcome(frame))
        raise StopScript

    def script() -> None:
        loaded = load_script(job.path)
        router = CompileRouter.for_observation(Collector(job.path))
        with ExitStack() as stack:
            stack.enter_context(intercepting_compile(router))
            stack.enter_context(emulating(job.gpu, fake=not job.is_real))
            if not job.is_real:
                stack.enter_context(reading_without_values())
                stack.enter_context(observing_memory())  # it answers reads of values
            for owner in (torch.Tensor, torch.autograd):
                stack.enter_context(replacing(Replacement(owner, "backward", backward, "ends the script")))
            run_script(loaded, new_module(loaded, "__main__"), job.argv)

    run_to_end(script, job.path)
    return outcomes[0] if outcomes else NamesOutcome()


def _libraries(before: Container[str]) -> Iterator[str]:
    """Yield the modules that were imported from files of installed packages."""
    for name, module in tuple(sys.modules.items()):
        file = getattr(getattr(module, "__spec__", None), "origin", None)
        if name not in before and file and not is_users_own(file):
            yield name


def _user_frame(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not is_users_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _outcome(frame: FrameType) -> NamesOutcome:
    values: dict[str, Any] = {}
    caller: FrameType | None = frame
    while caller is not None:  # the optimizer may be a name of the function that calls the step's
        values = {**caller.f_globals, **caller.f_locals, **values}
        caller = _user_frame(caller.f_back)
    facts, has_eight_bit = tuple(_facts(values)), _is_installed(EIGHT_BIT_MODULE)
    return NamesOutcome(frame.f_code.co_filename, frame.f_lineno, facts, has_eight_bit=has_eight_bit)


def _is_installed(module: str) -> bool:
    """Return True if the path of the script has this module of a package; imports neither."""
    with suppress(ValueError):  # a module that the script itself puts into `sys.modules` may have no spec
        package = find_spec(module.partition(".")[0])
        spec = None if package is None else PathFinder.find_spec(module, package.submodule_search_locations)
        return spec is not None and spec.origin is not None
    return False


def _facts(values: Mapping[str, Any]) -> Iterator[NameFact]:
    for name, value in values.items():
        type_name = type(value).__name__
        if isinstance(value, torch.Tensor):
            yield NameFact(
                name, "tensor", type_name, tuple(map(int, value.shape)), requires_grad=value.requires_grad
            )
        elif isinstance(value, float):
            yield NameFact(name, "number", type_name)
        elif isinstance(value, nn.Module):
            length = len(value) if isinstance(value, nn.Sequential | nn.ModuleList) else 0
            yield NameFact(
                name,
                "module",
                type_name,
                length=length,
                is_compiled=type_name == "OptimizedModule",
                has_submodules=any(True for _ in value.children()),
            )
        elif isinstance(value, torch.optim.Optimizer):
            yield NameFact(name, "optimizer", type_name, options=tuple(map(str, value.defaults)))
        elif isinstance(value, Mapping | list | tuple) and (fact := _several(name, value)) is not None:
            yield fact


def _several(name: str, value: Mapping[Any, Any] | Sequence[Any]) -> NameFact | None:
    """Describe a container of tensors or numbers; None if they are neither rows of a batch nor metrics."""
    is_mapping = isinstance(value, Mapping)
    tensors = list(value.values() if isinstance(value, Mapping) else value)
    if is_mapping and tensors and all(isinstance(item, float) for item in tensors):
        return NameFact(name, "numbers", "float")
    if is_mapping and tensors and all(isinstance(item, torch.Tensor) and not item.dim() for item in tensors):
        return NameFact(name, "numbers", "Tensor")
    if not tensors or not all(isinstance(tensor, torch.Tensor) and tensor.dim() for tensor in tensors):
        return None
    if len({tensor.shape[0] for tensor in tensors}) > 1:
        return None
    if is_mapping and not isinstance(next(iter(value)), (str, int)):
        return None  # the text of another key may not be an expression
    return NameFact(
        name,
        "tensors",
        "dict" if is_mapping else type(value).__name__,
        tuple(map(int, tensors[0].shape)),
        requires_grad=any(tensor.requires_grad for tensor in tensors),
        first=f"[{next(iter(value))!r}]" if is_mapping else "[0]",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

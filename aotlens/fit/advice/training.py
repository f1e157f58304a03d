"""Run a script on real tensors for some steps, and compare its parameters and buffers with a reference run.

Invariant: both runs start from the same random numbers; the reference runs in eager.
"""

import sys
import weakref
from collections.abc import Container, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from aotlens.fit.advice.jobs import OUTCOME, TrainingJob, TrainingOutcome
from aotlens.gpu_emulation.contexts import emulating
from aotlens.model.codec import encode_record
from aotlens.session.collector import Collector, StopScript
from aotlens.session.compile_router import CompileRouter, intercepting_compile
from aotlens.session.job_folder import read_job, save_answer
from aotlens.session.run import run_to_end, seed_random_numbers
from aotlens.session.script.edited import importing_edited, load_edited
from aotlens.session.script.source import new_module, run_script
from aotlens.torch_api.fake.process_groups import in_backward

__all__ = ["distance", "main", "train"]

Tensors = dict[str, torch.Tensor]


@dataclass(slots=True)
class Values:
    """Tensors of the training at one moment, by names that are the same in another run of the script."""

    parameters: Tensors = field(default_factory=dict)
    """What the optimizers update."""
    buffers: Tensors = field(default_factory=dict)
    """Of modules: running statistics, counters, masks."""


class Recorder:
    """The values before the first step and after the last one, and how many steps there were."""

    def __init__(self, calls: int) -> None:
        self._most_calls = calls
        self.calls = 0
        self.before, self.after = Values(), Values()
        self._optimizers: list[Any] = []
        self._buffers: dict[str, list[weakref.ref[nn.Module]]] = {}
        """The modules that register buffers, by their class and the buffer's name, in the script's order."""

    def buffer_is_registered(self, module: nn.Module, name: str, buffer: Any) -> None:
        if torch.compiler.is_compiling():  # or Dynamo would guard on what this changes, and recompile
            return
        if not isinstance(module, GraphModule):  # those belong to compilations, which the reference lacks
            key = f"{type(module).__module__}.{type(module).__qualname__}.{name}"
            self._buffers.setdefault(key, []).append(weakref.ref(module))

    def step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if optimizer not in self._optimizers and not in_backward():
            self._optimizers.append(optimizer)
            self.before.parameters.update(self._parameters(optimizer))
            self.before.buffers = self._values_of_buffers() | self.before.buffers

    def step_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if in_backward():  # a hook updates one parameter
            return
        self.calls += 1
        if self.calls == self._most_calls:
            self.finish()
            raise StopScript

    def finish(self) -> None:
        for optimizer in self._optimizers:
            self.after.parameters.update(self._parameters(optimizer))
        self.after.buffers = self._values_of_buffers()

    def _parameters(self, optimizer: Any) -> Tensors:
        number = self._optimizers.index(optimizer)
        values = [value for group in optimizer.param_groups for value in group["params"]]
        return {f"{number}.{index}": value.detach().clone() for index, value in enumerate(values)}

    def _values_of_buffers(self) -> Tensors:
        values: Tensors = {}
        for key, references in self._buffers.items():
            for index, reference in enumerate(references):
                module = reference()
                buffer = None if module is None else module._buffers.get(key.rpartition(".")[2])
                if buffer is not None:
                    values[f"{key}.{index}"] = buffer.detach().clone()
        return values


def main(folder: str) -> int:
    """Run the job of a folder and write the outcome there."""
    job = read_job(folder, TrainingJob)
    save_answer(folder, OUTCOME, encode_record(train(job)))
    return 0


def train(job: TrainingJob) -> TrainingOutcome:
    """Run the script in this process until it made the job's calls of `step`."""
    recorder = Recorder(job.calls)

    def script() -> None:
        loaded = load_edited(job.path, job.texts)
        seed_random_numbers()
        hooks = (
            register_optimizer_step_pre_hook(recorder.step_begins),
            register_optimizer_step_post_hook(recorder.step_ends),
            register_module_buffer_registration_hook(recorder.buffer_is_registered),
        )
        with ExitStack() as stack:
            for hook in hooks:
                stack.callback(hook.remove)
            if job.is_double:
                stack.callback(torch.set_default_dtype, torch.get_default_dtype())
                torch.set_default_dtype(torch.float64)
            stack.enter_context(importing_edited(job.texts))
            stack.enter_context(emulating(job.gpu, fake=False))
            if job.is_reference:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            else:
                router = CompileRouter.for_observation(Collector(job.path))
                stack.enter_context(intercepting_compile(router))
            try:
                run_script(loaded, new_module(loaded, "__main__"), job.argv)
                recorder.finish()
            except StopScript:
                pass  # the recorder has what it needs

    end = run_to_end(script, job.path)
    if end.failure is not None:
        return TrainingOutcome(end.failure.message)
    if job.is_reference:
        torch.save((asdict(recorder.before), asdict(recorder.after)), job.reference)
        return TrainingOutcome("", recorder.calls, len(recorder.after.parameters))
    before, after = (Values(**values) for values in torch.load(job.reference, weights_only=True))
    edited = recorder.after.buffers
    return TrainingOutcome(
        "",
        recorder.calls,
        len(after.parameters),
        distance(before.parameters, after.parameters, recorder.after.parameters),
        buffer_distance=distance(before.buffers, _only(after.buffers, edited), _only(edited, after.buffers)),
    )


def _only(tensors: Tensors, names: Container[str]) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name in names}


def distance(before: Mapping[str, Any], after: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return how far tensors are from the reference's, relative to how far those have moved."""
    if after.keys() != other.keys() or any(after[name].shape != other[name].shape for name in after):
        return float("inf")
    apart = sum(_squares(other[name], after[name]) for name in after)
    moved = sum(_squares(after[name], before[name]) for name in after if _is_moved(before, after, name))
    if not apart:
        return 0.0
    return float("inf") if not moved or apart != apart else float((apart / moved) ** 0.5)


def _is_moved(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> bool:
    return name in before and before[name].shape == after[name].shape


def _squares(first: Any, second: Any) -> float:
    return float((first.to(torch.float64) - second.to(torch.float64)).square().sum())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

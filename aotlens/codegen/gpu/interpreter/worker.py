"""The interpreter's process: runs the wrappers of graphs on CPU tensors.

`python -m aotlens.codegen.gpu.interpreter.worker DESCRIPTOR`, with TRITON_INTERPRET=1 set before the start,
since Triton reads it when it defines its own functions.
"""

import os
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch

from aotlens.codegen.gpu.interpreter.blocks import enlarge
from aotlens.codegen.gpu.interpreter.cpu_kernels import register_cpu_kernels
from aotlens.codegen.gpu.interpreter.faults import LaunchError, finding_of
from aotlens.codegen.gpu.interpreter.memory import Memory
from aotlens.codegen.gpu.interpreter.operators import (
    IN_MAIN_PROCESS,
    OperatorRequest,
    run_in_main_process,
    with_main_process_operators,
)
from aotlens.codegen.gpu.interpreter.packing import packed, unpacked
from aotlens.codegen.gpu.interpreter.patches import apply, replacements
from aotlens.codegen.gpu.interpreter.random_numbers import RandomNumbers
from aotlens.codegen.gpu.interpreter.records import (
    Answer,
    Job,
    LaunchLocation,
    LaunchRecord,
    OperatorCall,
    OperatorOutput,
    UserLaunch,
    UserLaunchResult,
    ViewOfInput,
)
from aotlens.codegen.gpu.interpreter.user_kernels import launch_user_kernel, user_kernel
from aotlens.codegen.gpu.interpreter.wrapper import CHECK_LAYOUT, FILL_SEEDS, on_cpu, with_promised_layout
from aotlens.torch_api.gpu import interpreting_modules

FOLDER = "TORCHINDUCTOR_CACHE_DIR"


def main(descriptor: int) -> None:
    """Answer requests until the other end closes the connection."""
    connection = Connection(descriptor)
    torch.set_num_threads(1)
    np.seterr(all="ignore")  # masked lanes divide by zero, as on a GPU
    warnings.simplefilter("ignore")  # library warnings are not for the user

    def ask(call: OperatorCall) -> OperatorOutput:
        connection.send_bytes(packed(call))
        answer: OperatorOutput = unpacked(connection.recv_bytes())
        return answer

    worker = Worker(ask)
    while True:
        try:
            received = connection.recv_bytes()
        except EOFError:
            shutil.rmtree(os.environ.get(FOLDER, ""), ignore_errors=True)  # the kernels' sources
            return
        request: Job | UserLaunch = unpacked(received)
        answered = worker.answer(request) if isinstance(request, Job) else worker.launch(request)
        connection.send_bytes(packed(answered))


@dataclass(slots=True)
class Worker:
    """This process; mutable: one graph runs at a time."""

    ask: OperatorRequest
    memory: Memory = field(default_factory=Memory)
    random_numbers: RandomNumbers = field(default_factory=RandomNumbers)
    _registrations: list[Any] = field(default_factory=list)
    _own_blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Original block sizes by kernel: the same source is the same kernel in every job."""

    def __post_init__(self) -> None:
        apply(replacements(self.memory, self.random_numbers))
        self._registrations.append(register_cpu_kernels())

    def answer(self, job: Job) -> Answer:
        """Run one graph; an error is part of the answer."""
        self.random_numbers.start(job.seed)
        torch.set_rng_state(job.random_state)
        launches: list[LaunchRecord] = []
        before = {index: storage.clone() for index, storage in _storages(job.inputs).items()}
        outputs: Any = ()
        finding, wrapper = None, ""
        try:
            module = self._load_module(job, launches)
            wrapper = module.__file__
            with torch.no_grad():
                outputs = module.call(list(job.inputs))
        except Exception as error:  # noqa: BLE001 (told to the other end, whatever it is)
            finding = finding_of(error, wrapper)
        return Answer(
            outputs=tuple(_with_views_of_inputs(outputs, job.inputs)),
            written=_written(job.inputs, before),
            random_state=torch.get_rng_state(),
            launches=tuple(launches),
            seeds=self.random_numbers.seeds,
            random_numbers=self.random_numbers.by_seed(),
            finding=finding,
        )

    def launch(self, launch: UserLaunch) -> UserLaunchResult:
        """Run one of the user's kernels; an error is part of the answer."""
        tensors = {name: value for name, value in launch.arguments.items() if isinstance(value, torch.Tensor)}
        before = {name: value.untyped_storage().clone() for name, value in tensors.items()}
        kernel, finding = None, None
        try:
            kernel = user_kernel(launch)
            self.memory.allow(tensors.values())
            kernel[launch.grid](**launch.arguments)
        except Exception as error:  # noqa: BLE001 (told to the other end, whatever it is)
            file = kernel.fn.__code__.co_filename if kernel is not None else ""
            finding = finding_of(LaunchError(LaunchLocation(launch.kernel), file, error), "")
        after = {name: bytes_of(value.untyped_storage()) for name, value in tensors.items()}
        changed = {name: now for name, now in after.items() if not torch.equal(now, bytes_of(before[name]))}
        return UserLaunchResult(changed, finding)

    def _load_module(self, job: Job, launches: list[LaunchRecord]) -> Any:
        """Load the wrapper as a module for this job, with its kernels wrapped."""
        modules = interpreting_modules()
        called = {
            FILL_SEEDS: self.random_numbers.fill_seeds,
            IN_MAIN_PROCESS: run_in_main_process(self.ask),
            CHECK_LAYOUT: with_promised_layout,
        }
        attributes = {**job.constants, **called}
        key, path = modules.codecache.PyCodeCache.write(with_main_process_operators(on_cpu(job.source)))
        module = modules.codecache.PyCodeCache.load_by_key_path(key, path, attrs=attributes)
        occurrences: Counter[str] = Counter()
        for name, kernel in list(vars(module).items()):
            if isinstance(kernel, modules.autotuner):
                if not kernel.custom_kernel:  # the user's block sizes do not change
                    self._choose_blocks(name, kernel, job, modules.largest_blocks)
                setattr(module, name, _WatchedKernel(name, kernel, job, occurrences, launches, self.memory))
        return module

    def _choose_blocks(self, name: str, kernel: Any, job: Job, largest_blocks: Mapping[str, int]) -> None:
        sizes = kernel.configs[0].kwargs
        own = self._own_blocks.setdefault(id(kernel), dict(sizes))
        sizes.update(own)
        if not job.own_blocks:
            enlarge(name, kernel, largest_blocks)


@dataclass(slots=True)
class _WatchedKernel:
    """Replaces a kernel in the wrapper, which calls `run`; records each launch that runs."""

    name: str
    kernel: Any
    job: Job
    occurrences: Counter[str]
    launches: list[LaunchRecord]
    memory: Memory

    def run(self, *arguments: Any, **options: Any) -> None:
        location = LaunchLocation(self.name, self.occurrences[self.name])
        self.occurrences[self.name] += 1
        known_values = self.job.precomputed.get(location)
        if known_values is not None:  # the kernel cannot be interpreted, and torch computed what it writes
            for index, value in known_values.items():
                arguments[index].copy_(value)
            return
        tensors = [(index, value) for index, value in enumerate(arguments) if isinstance(value, torch.Tensor)]
        before = [value.clone() for _, value in tensors] if self.job.return_buffers else []
        self.memory.allow(value for _, value in tensors)
        config = self.kernel.configs[0]
        try:
            if self.kernel.custom_kernel:
                grid = launch_user_kernel(self.kernel, arguments)
            else:
                grid = self.kernel._interpret_args_grid(arguments, config)[1]
                self.kernel.run(*arguments, **options)
        except Exception as error:
            raise LaunchError(location, self.kernel.fn.fn.__code__.co_filename, error) from error
        changed = (
            (index, value.clone())
            for (index, value), old in zip(tensors, before, strict=False)
            if not same_bits(value, old)
        )
        blocks = tuple((key, value) for key, value in config.kwargs.items() if isinstance(value, int))
        programs = int(grid[0]) * int(grid[1]) * int(grid[2])
        self.launches.append(LaunchRecord(location, programs, blocks, tuple(changed)))


def _storages(inputs: tuple[Any, ...]) -> dict[int, torch.UntypedStorage]:
    """Return the inputs' storages, each by the first input on it."""
    storages: dict[int, tuple[int, torch.UntypedStorage]] = {}
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            storages.setdefault(storage._cdata, (index, storage))
    return dict(storages.values())


def _written(inputs: tuple[Any, ...], before: dict[int, torch.UntypedStorage]) -> dict[int, torch.Tensor]:
    pairs = (
        (index, bytes_of(storage), bytes_of(before[index])) for index, storage in _storages(inputs).items()
    )
    return {index: content for index, content, old in pairs if not torch.equal(content, old)}


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return all bytes of a storage, as a tensor on it."""
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return True if both tensors hold the same bits, NaN included."""
    return torch.equal(_bits(first), _bits(second))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _with_views_of_inputs(outputs: Any, inputs: tuple[Any, ...]) -> Iterator[Any]:
    """Yield the outputs, with those on an input's storage as `ViewOfInput`."""
    known = {storage._cdata: index for index, storage in _storages(inputs).items()}
    for value in outputs:
        index = known.get(value.untyped_storage()._cdata) if isinstance(value, torch.Tensor) else None
        if index is None:
            yield value
        else:
            yield ViewOfInput(index, tuple(value.shape), value.stride(), value.storage_offset(), value.dtype)


if __name__ == "__main__":
    main(int(sys.argv[1]))

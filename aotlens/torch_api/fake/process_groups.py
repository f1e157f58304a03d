"""torch's fake process group: one process acts as one rank of many, and collectives transfer nothing."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from aotlens.torch_api.modes import without_modes
from aotlens.torch_api.operators import tensor_leaves
from aotlens.torch_api.replacements import Replacement

__all__ = [
    "fake_group_patches",
    "finished",
    "gathered_parameter_patches",
    "group_ranks",
    "in_backward",
    "inner_tensors",
    "is_distributed_available",
    "missing_launcher_patches",
    "shard_of",
    "storage_resize_patch",
]

NEW_GROUP_OPTIONS = frozenset({"group_desc", "use_local_synchronization"})
"""Options of `new_group` that do not depend on the backend."""


def is_distributed_available() -> bool:
    """Return True if this build of torch has process groups."""
    return dist.is_available()


def fake_group_patches(
    rank: int, world_size: int, check: Callable[[int, int], None]
) -> Iterator[Replacement]:
    """Yield what makes this process a rank of a fake process group.

    `check` receives the rank and the number of ranks that the script passes, -1 where it passes none, and
    raises if they differ from this process's.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    start, new_group = dist.init_process_group, dist.new_group

    def init_process_group(
        backend: str | None = None,
        init_method: str | None = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        *rest: Any,
        **options: Any,
    ) -> None:
        check(rank, world_size)
        with without_modes():
            start("fake", rank=own_rank, world_size=own_size, store=FakeStore())

    def fake_new_group(
        ranks: Any = None, timeout: Any = None, backend: Any = None, *rest: Any, **options: Any
    ) -> Any:
        options = {name: value for name, value in options.items() if name in NEW_GROUP_OPTIONS}
        with without_modes():
            return new_group(ranks, backend="fake", **options)

    own_rank, own_size = rank, world_size
    why = "no other process exists to communicate with"
    for module in (dist, dist.distributed_c10d, dist.device_mesh):  # each has its own binding
        yield Replacement(module, "init_process_group", init_process_group, why)
        yield Replacement(module, "new_group", fake_new_group, why)
    yield from _mesh_patches()
    yield from _random_patches()
    yield from _reducer_patches()
    yield from _ddp_compiler_patches()


def missing_launcher_patches(fail: Callable[[], None]) -> Iterator[Replacement]:
    """Yield what calls `fail`, which raises, where a script expects the variables of a launcher."""
    start = dist.init_process_group

    def init_process_group(
        backend: Any = None, init_method: str | None = None, *rest: Any, **options: Any
    ) -> None:
        if (
            not rest
            and "rank" not in options
            and init_method in (None, "env://")
            and "RANK" not in os.environ
        ):
            fail()
        start(backend, init_method, *rest, **options)

    for module in (dist, dist.distributed_c10d):
        yield Replacement(
            module, "init_process_group", init_process_group, "torch would name a missing variable"
        )


def _mesh_patches() -> Iterator[Replacement]:
    """Yield what lets a device mesh read its ranks from tensors: its own, which need values."""
    from torch.distributed import device_mesh

    why = "ranks are values of tensors, which fake tensors do not have"
    for name in ("__init__", "__getitem__", "_flatten", "_unflatten", "_concatenate", "get_all_groups"):
        if (method := vars(device_mesh.DeviceMesh).get(name)) is not None:
            yield Replacement(device_mesh.DeviceMesh, name, _outside_modes(method), why)
    create = device_mesh.init_device_mesh
    for module in [each for each in sys.modules.values() if vars(each).get("init_device_mesh") is create]:
        yield Replacement(module, "init_device_mesh", _outside_modes(create), why)


def _random_patches() -> Iterator[Replacement]:
    """Yield what lets random operators on DTensors run like those on other tensors."""
    from torch.distributed.tensor import _dispatch, _random

    for module in (_dispatch, _random):
        why = "fake tensors have no values that ranks could agree on"
        yield Replacement(module, "is_rng_supported_mesh", lambda mesh: False, why)


def _outside_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with without_modes():
            return function(*args, **kwargs)

    return run


def _reducer_patches() -> Iterator[Replacement]:
    """Yield what lets DistributedDataParallel's C++ run on fake tensors."""
    reducer_type: Any = vars(dist)["Reducer"]
    rebuild = reducer_type._rebuild_buckets

    def rebuild_buckets(reducer: Any) -> Any:
        with _RealIndices():
            return rebuild(reducer)

    yield Replacement(
        dist, "_verify_params_across_processes", lambda *args: None, "C++ reads sizes from a tensor"
    )
    yield Replacement(
        reducer_type, "_rebuild_buckets", rebuild_buckets, "C++ reads the buckets' order from a tensor"
    )


def _ddp_compiler_patches() -> Iterator[Replacement]:
    """Yield what makes Dynamo compile the parts of a model in DDP as it compiles others."""
    from torch._dynamo.backends.distributed import DDPOptimizer

    compile_parts: Any = DDPOptimizer.compile_fn
    yield Replacement(
        DDPOptimizer, "compile_fn", _outside_modes(compile_parts), "it calls the backend with modes on"
    )


class _RealIndices(TorchDispatchMode):
    """Makes 32-bit integer tensors real, whose elements C++ writes and reads directly."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = tensor_leaves((args, kwargs))
        if func is torch.ops.aten.empty.memory_format and kwargs.get("dtype") is torch.int32:
            with without_modes():
                return func(*args, **{**kwargs, "device": torch.device("cpu")})
        if tensors and all(type(tensor) is torch.Tensor for tensor in tensors):
            with without_modes():
                return func(*args, **kwargs)
        return func(*args, **kwargs)


def finished(tensors: list[torch.Tensor]) -> Any:
    """Return the handle of a collective that has ended with these tensors, as an operator returns it."""
    from torch._C import _distributed_c10d

    module: Any = _distributed_c10d
    # C++ reads the future's value as a list of tensors, whose type `set_result` would not infer.
    return module._create_work_from_future(torch._C.fork(lambda: tensors)).boxed()


def group_ranks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Return the global ranks of the process group among a collective's arguments; empty if there is none."""
    from torch._C._distributed_c10d import ProcessGroup, _resolve_process_group

    resolve: Any = _resolve_process_group
    for value in (*reversed(args), *kwargs.values()):
        if isinstance(value, torch.ScriptObject) and "ProcessGroup" in value._type().qualified_name():
            return tuple(dist.get_process_group_ranks(ProcessGroup.unbox(value)))
        if isinstance(value, ProcessGroup):
            return tuple(dist.get_process_group_ranks(value))
        if isinstance(value, str) and value in dist.distributed_c10d._world.pg_names.values():
            return tuple(dist.get_process_group_ranks(resolve(value)))
    return ()


def gathered_parameter_patches(gathered: Callable[[torch.Tensor], None]) -> Iterator[Replacement]:
    """Yield what reports the tensor of each gathered parameter of FSDP2 when it is first allocated."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param

    allocate: Any = _fsdp_param.FSDPParam.init_all_gather_outputs

    def init_all_gather_outputs(parameter: Any, *args: Any, **kwargs: Any) -> None:
        is_first = not parameter.all_gather_outputs
        allocate(parameter, *args, **kwargs)
        for tensor in parameter.all_gather_outputs if is_first else ():
            gathered(tensor)

    why = "a gathered parameter is an ordinary tensor"
    yield Replacement(_fsdp_param.FSDPParam, "init_all_gather_outputs", init_all_gather_outputs, why)


def storage_resize_patch(resized: Callable[[Any, int], None]) -> Replacement:
    """Return what reports each storage whose size changes, with its size before."""
    resize: Any = torch.UntypedStorage.resize_

    def resize_and_report(storage: Any, size: int) -> Any:
        before = storage.nbytes()
        result = resize(storage, size)
        resized(storage, before)
        return result

    return Replacement(
        torch.UntypedStorage, "resize_", resize_and_report, "allocates or frees memory without an operator"
    )


def in_backward() -> bool:
    """Return True while autograd runs a backward, which includes the callbacks at its end."""
    return torch._C._current_graph_task_id() != -1


def inner_tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the dense tensors of a tensor: itself, or those that a wrapper or a sparse tensor holds."""
    if is_traceable_wrapper_subclass(value):
        for name in value.__tensor_flatten__()[0]:
            yield from inner_tensors(getattr(value, name))
    elif isinstance(value, torch.Tensor):
        yield from (value,) if value.layout is torch.strided else _sparse_parts(value)


def _sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the indices and values of a sparse tensor; none of an opaque one."""
    with without_modes():
        if tensor.layout is torch.sparse_coo:
            return tensor._indices(), tensor._values()
        if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
            return tensor.crow_indices(), tensor.col_indices(), tensor.values()
        if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
            return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of a parameter that this rank holds."""

    shape: tuple[int, ...]
    """Of the whole parameter."""
    local_shape: tuple[int, ...]
    sharded: tuple[tuple[int, int], ...]
    """Each sharded dimension with the number of its shards."""


def shard_of(value: object) -> Shard | None:
    """Return this rank's part of a DTensor; None for other tensors."""
    from torch.distributed.tensor import DTensor

    if not isinstance(value, DTensor):
        return None
    placements: Any = value.placements
    sharded = tuple(
        (placement.dim, value.device_mesh.size(index))
        for index, placement in enumerate(placements)
        if placement.is_shard()
    )
    return Shard(tuple(value.shape), tuple(value._local_tensor.shape), sharded)

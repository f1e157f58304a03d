"""Let a distributed script run as one rank, in one process, without the other ranks.

Invariant: nothing is sent and no process is started; the functions that the script would run in processes of
its own run in this one.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.multiprocessing

from aotlens.errors import UserError
from aotlens.fit.job import FitJob
from aotlens.torch_api.fake.process_groups import (
    fake_group_patches,
    gathered_parameter_patches,
    is_distributed_available,
    missing_launcher_patches,
)
from aotlens.torch_api.replacements import Replacement, replacing

__all__ = ["acting_as_rank", "observing_gathered_parameters"]


@contextmanager
def acting_as_rank(job: FitJob) -> Iterator[None]:
    """Act as the job's rank within the block; without one, report what a distributed script needs."""
    with ExitStack() as stack:
        if is_distributed_available():
            for patch in _patches(job):
                stack.enter_context(replacing(patch))
        if job.rank is not None:
            set_rank_variables(job.rank, job.world_size)
        yield


@contextmanager
def observing_gathered_parameters(gathered: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Call `gathered` with each tensor that FSDP2 allocates for a gathered parameter."""
    with ExitStack() as stack:
        for patch in gathered_parameter_patches(gathered):
            stack.enter_context(replacing(patch))
        yield


def _patches(job: FitJob) -> Iterator[Replacement]:
    rank = job.rank
    run = _needs_ranks(job) if rank is None else _in_this_process(job, rank)
    why = "runs the function in this process, as the rank that is observed"
    yield Replacement(torch.multiprocessing, "spawn", run, why)
    yield Replacement(torch.multiprocessing, "start_processes", run, why)
    if rank is None:
        yield from missing_launcher_patches(lambda: _raise_missing_ranks(job, "joins a process group", "N"))
    else:
        yield from fake_group_patches(rank, job.world_size, _check(job, rank))


def set_rank_variables(rank: int, world_size: int) -> None:
    """Set the environment variables that `torchrun` sets, for one node."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        GROUP_RANK="0",
        ROLE_RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_WORLD_SIZE=str(world_size),
        ROLE_WORLD_SIZE=str(world_size),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT="29500",
    )


def _raise_missing_ranks(job: FitJob, action: str, ranks: object) -> None:
    raise UserError(
        f"{job.path} {action}: add --ranks {ranks}, and fit observes it one rank at a time, without other"
        " processes"
    )


def _needs_ranks(job: FitJob) -> Callable[..., None]:
    def spawn(fn: Any, args: Any = (), nprocs: int = 1, *rest: Any, **options: Any) -> None:
        _raise_missing_ranks(job, f"starts {nprocs} processes", nprocs)

    return spawn


def _in_this_process(job: FitJob, rank: int) -> Callable[..., None]:
    def spawn(fn: Callable[..., Any], args: Any = (), nprocs: int = 1, *rest: Any, **options: Any) -> None:
        if nprocs != job.world_size:
            raise UserError(
                f"{job.path} starts {nprocs} processes, but --ranks is {job.world_size}:"
                f" pass --ranks {nprocs}"
            )
        fn(rank, *args)

    return spawn


def _check(job: FitJob, rank: int) -> Callable[[int, int], None]:
    def check(own_rank: int, world_size: int) -> None:
        if world_size not in (-1, job.world_size):
            raise UserError(
                f"{job.path} joins a process group of {world_size} ranks, but --ranks is {job.world_size}:"
                f" pass --ranks {world_size}"
            )
        if own_rank not in (-1, rank):
            raise UserError(
                f"{job.path} joins a process group as rank {own_rank}, but fit observes rank {rank}: read the"
                " rank from the environment variable RANK, as torchrun sets it"
            )

    return check

"""Report one rank of a distributed script, in the process that observed it."""

from collections.abc import Iterator

import torch

from aotlens.fit.job import FitJob
from aotlens.fit.observer import Observer
from aotlens.fit.step import moments_of_step
from aotlens.model.fit import Distribution, Fit, FitKind, RankFit, UnevenShard, kinds_of, peak_of
from aotlens.torch_api.fake.process_groups import shard_of

__all__ = ["distribution_of"]


def distribution_of(job: FitJob, observer: Observer, fit: Fit) -> Distribution:
    """Return the record of the job's rank alone."""
    assert job.rank is not None
    assert observer.communication is not None
    first, last = moments_of_step(observer, fit.calls_per_step)
    rank = RankFit(
        rank=job.rank,
        step_peak_bytes=fit.step_peak_bytes,
        by_kind=fit.by_kind,
        gathered_bytes=peak_of_kind(fit, "gathered parameter"),
        communication_bytes=peak_of_kind(fit, "communication"),
        held=kinds_of([each for each in fit.allocations if each.freed is None]),
        uneven_shards=tuple(_uneven_shards(observer.modules())),
    )
    return Distribution(
        world_size=job.world_size,
        ranks=(rank,),
        collectives=observer.communication.rows(first, last, job.bandwidth_gb_per_s),
        bandwidth_gb_per_s=job.bandwidth_gb_per_s,
        shown_rank=job.rank,
    )


def peak_of_kind(fit: Fit, kind: FitKind) -> int:
    """Return the most bytes of one kind that are alive at once."""
    _, peak_bytes = peak_of([each for each in fit.allocations if each.kind == kind])
    return peak_bytes


def _uneven_shards(modules: tuple[torch.nn.Module, ...]) -> Iterator[UnevenShard]:
    for name, parameter in _named_parameters(modules):
        shard = shard_of(parameter)
        if shard is not None and any(shard.shape[dim] % pieces for dim, pieces in shard.sharded):
            yield UnevenShard(name, shard.shape, shard.local_shape)


def _named_parameters(modules: tuple[torch.nn.Module, ...]) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield each parameter once, named from the outermost module that holds it."""
    children = {id(child) for module in modules for child in module.children()}
    seen: set[int] = set()
    for root in modules:
        if id(root) in children:
            continue
        for name, parameter in root.named_parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

"""Distributed scripts, observed one rank at a time without other processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.fit.ring import ring_seconds
from aotlens.model.codec import loads
from aotlens.model.fit import Distribution, FitCollective, RankFit, UnevenShard
from aotlens.view.step_memory.ranks import collectives_summary, rank_difference_lines
from aotlens.view.tabs.fit import fit_notes
from tests.command import aotlens
from tests.fit.sample import sample_fit

SHARDED = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
layers = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(2)], nn.Linear(256, 10, bias=False))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for layer in layers:
    fully_shard(layer, reshard_after_forward=False, mp_policy=policy)
fully_shard(layers, mp_policy=policy)
update = torch.optim.AdamW(layers.parameters(), foreach=False)
for step in range(9):
    layers(torch.ones(4, 256)).sum().backward()
    update.step()
    update.zero_grad()
"""
WEIGHT, HEAD = 4 * 256 * 256, 4 * 256 * 10
"""Bytes of a whole weight of a layer and of the head, in f32."""


@pytest.mark.rotates
def test_fsdp2_on_two_ranks_of_eight(tmp_path: Path) -> None:
    """The head has 10 rows: rank 0 has two of them, and rank 7 none, but FSDP2 pads its shard to two."""
    (tmp_path / "train.py").write_text(SHARDED)
    ended = aotlens("fit", "--ranks", "8", "--format", "json", "train.py", cwd=tmp_path)
    assert ended.code == 0, ended.err
    fit = loads(ended.out).fit
    assert fit is not None
    distribution = fit.distribution
    assert distribution is not None
    assert (distribution.world_size, [row.rank for row in distribution.ranks]) == (8, [0, 7])
    first, last = ({(row.kind, row.state): row.bytes for row in rank.held} for rank in distribution.ranks)
    assert first["parameter", ""] == last["parameter", ""] == 2 * WEIGHT // 8 + 4 * 256 * 2
    assert first["optimizer state", "exp_avg"] == 2 * WEIGHT // 8 + 4 * 256 * 2
    assert last["optimizer state", "exp_avg"] == 2 * WEIGHT // 8
    assert [rank.gathered_bytes for rank in distribution.ranks] == [(2 * WEIGHT + 4 * 256 * 16) // 2] * 2
    (shard,) = distribution.ranks[1].uneven_shards
    assert (shard.shape, shard.local_shape) == ((10, 256), (0, 256))
    calls = [(row.op, row.phase, row.bytes) for row in distribution.collectives for _ in range(row.calls)]
    weight_gathers = [call for call in calls if call == ("all_gather_into_tensor", "forward", WEIGHT // 2)]
    assert len(weight_gathers) == 2
    assert ("all_gather_into_tensor", "backward", WEIGHT // 2) not in calls


COMPILED = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 64, bias=False), nn.Linear(64, 8, bias=False)

    def forward(self, x):
        return self.down(self.up(x).relu())


model = Model()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
model.compile()
update = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
for step in range(9):
    model(torch.ones(4, 8)).square().mean().backward()
    update.step()
    update.zero_grad()
"""


@pytest.mark.rotates
def test_compiled_code_with_sharded_parameters_is_counted_as_compiled(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(COMPILED)
    ended = aotlens("fit", "--ranks", "2", "--rank", "0", "--format", "json", "train.py", cwd=tmp_path)
    assert ended.code == 0, ended.err
    fit = loads(ended.out).fit
    assert fit is not None
    assert any("`Model.forward` is compiled" in line for line in fit.assumptions), fit.assumptions


SPAWNED = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def worker(rank, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:1", rank=rank, world_size=size)
    model = DistributedDataParallel(nn.Linear(512, 512), gradient_as_bucket_view=sys.argv[1] == "view")
    update = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(9):
        update.zero_grad()
        model(torch.ones(4, 512)).sum().backward()
        update.step()


if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
"""
LAYER = 4 * (512 * 512 + 512)


@pytest.mark.parametrize(("kind", "buckets"), [("view", 0), ("copy", LAYER)])
def test_buckets_of_ddp_in_a_spawned_function(tmp_path: Path, kind: str, buckets: int) -> None:
    (tmp_path / "train.py").write_text(SPAWNED)
    ended = aotlens("fit", "--ranks", "2", "--rank", "1", "--format", "json", "train.py", kind, cwd=tmp_path)
    assert ended.code == 0, ended.err
    fit = loads(ended.out).fit
    assert fit is not None
    assert fit.distribution is not None
    (rank,) = fit.distribution.ranks
    assert rank.communication_bytes == buckets
    assert sum(row.bytes for row in rank.held if row.kind == "gradient") == LAYER
    reductions = [row for row in fit.distribution.collectives if row.op == "all_reduce"]
    assert sum(row.bytes * row.calls for row in reductions) == LAYER
    assert {row.span.line for row in reductions if row.span is not None} == {16}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "starts 2 processes: add --ranks 2"),
        (("--ranks", "4"), "starts 2 processes, but --ranks is 4: pass --ranks 2"),
        (("--ranks", "2", "--rank", "2"), "there is no rank 2 of 2: the last is 1"),
        (("--ranks", "2", "--real"), "--real needs the other ranks"),
        (("--rank", "1"), "add --ranks N"),
    ],
)
def test_ranks_that_do_not_fit_the_script_are_named(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    (tmp_path / "train.py").write_text(SPAWNED)
    ended = aotlens("fit", *options, "train.py", "view", cwd=tmp_path)
    assert ended.code == 2
    assert message in ended.err


def test_ring_formulas() -> None:
    seconds = [ring_seconds(op, 8_000_000_000, 8, 100) for op in ("all_reduce", "all_gather", "broadcast")]
    assert seconds == [0.14, 0.07, 0.08]
    assert ring_seconds("all_reduce", 8_000_000_000, 1, 100) == 0


def test_words_of_ranks_that_differ() -> None:
    shards = [UnevenShard("head.weight", (10, 4), (rows, 4)) for rows in (2, 0)]
    ranks = tuple(
        RankFit(rank, peak, uneven_shards=(shard,))
        for rank, peak, shard in zip((0, 7), (4096, 2048), shards, strict=True)
    )
    calls = (FitCollective("all_reduce", 1 << 20, 3, 8, "backward", milliseconds=2.5),)
    distribution = Distribution(8, ranks, calls, 300.0)
    assert list(rank_difference_lines(distribution)) == [
        "rank 0 needs the most: 2.0 KiB more at its peak than rank 7",
        "  `head.weight`, [10, 4] in all, is not split evenly: [2, 4] on rank 0, [0, 4] on rank 7",
    ]
    fit = replace(sample_fit(), distribution=distribution)
    texts = ["".join(part.text for part in line.parts) for line in fit_notes(fit)]
    assert [text.strip() for text in texts[:-2]] == [
        "Ranks",
        "rank 0: 4.0 KiB at the peak",
        "rank 7: 2.0 KiB at the peak",
        *(line.strip() for line in rank_difference_lines(distribution)),
        collectives_summary(distribution),
        "3 × 1.0 MiB  2.5 ms  all_reduce, backward, 8 ranks  no line of yours",
    ]
    expected = "3 collectives in a step: 3.0 MiB, 2.5 ms at 300 GB/s, without overlap"
    assert collectives_summary(distribution) == expected


TENSOR_PARALLEL = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group()
mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))
layers = nn.Sequential(nn.Linear(64, 256, bias=False), nn.ReLU(), nn.Linear(256, 64, bias=False))
parallelize_module(layers, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
update = torch.optim.SGD(layers.parameters(), 0.1, momentum=0.9, foreach=False)
for step in range(9):
    layers(torch.ones(16, 64)).sum().backward()
    update.step()
    update.zero_grad()
"""


def test_tensor_parallel_in_a_mesh_of_two_dimensions(tmp_path: Path) -> None:
    """Rank 5 shares its all-reduce of the output with the other ranks of its row."""
    (tmp_path / "train.py").write_text(TENSOR_PARALLEL)
    ended = aotlens("fit", "--ranks", "8", "--rank", "5", "--format", "json", "train.py", cwd=tmp_path)
    assert ended.code == 0, ended.err
    fit = loads(ended.out).fit
    assert fit is not None
    assert fit.distribution is not None
    (rank,) = fit.distribution.ranks
    held = {row.kind: row.bytes for row in rank.held}
    assert held["parameter"] == held["gradient"] == held["optimizer state"] == 2 * 4 * 64 * 256 // 4
    (reduction,) = fit.distribution.collectives
    assert (reduction.op, reduction.phase, reduction.bytes) == ("all_reduce", "forward", 4 * 16 * 64)
    assert (reduction.group_size, reduction.group) == (4, "ranks 4 to 7")
    assert reduction.span is not None
    assert reduction.span.line == 14

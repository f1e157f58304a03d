"""Occupancy against NVIDIA's calculator, and the roofline against sums done by hand."""

import pytest

from aotlens.codegen.gpu.cost_model.occupancy import Block, Limit, Occupancy, occupancy, waves
from aotlens.codegen.gpu.cost_model.roofline import Work, balance, floor
from aotlens.model.gpus.names import find_target

CASES: dict[str, tuple[str, Block, tuple[int, float, Limit]]] = {
    # blocks for each multiprocessor, occupancy and limit, as the calculator gives them
    "32 registers fill an A100": ("sm_80", Block(128, 32, 0), (16, 1.0, "warps")),
    "64 registers halve it": ("sm_80", Block(256, 64, 0), (4, 0.5, "registers")),
    "168 registers: 12 warps, one block of 8": ("sm_80", Block(256, 168, 0), (1, 0.125, "registers")),
    "33 registers are given out as 40": ("sm_80", Block(128, 33, 0), (12, 0.75, "registers")),
    "255 registers": ("sm_90", Block(128, 255, 0), (2, 0.125, "registers")),
    "113 KiB twice on an H100": ("sm_90", Block(128, 32, 113 * 1024), (2, 0.125, "shared memory")),
    "114 KiB once": ("sm_90", Block(128, 32, 114 * 1024), (1, 0.0625, "shared memory")),
    "all of a block's shared memory": ("sm_90", Block(256, 32, 227 * 1024), (1, 0.125, "shared memory")),
    "48 KiB with the reserved one": ("sm_80", Block(256, 32, 48 * 1024), (3, 0.375, "shared memory")),
    "48 KiB without it on a V100": ("sm_70", Block(256, 32, 48 * 1024), (2, 0.25, "shared memory")),
    "blocks of one warp, 32": ("sm_90", Block(32, 16, 0), (32, 0.5, "blocks")),
    "blocks of one warp, 24": ("sm_89", Block(32, 16, 0), (24, 0.5, "blocks")),
    "1024 threads on a GeForce": ("sm_86", Block(1024, 32, 0), (1, 2 / 3, "warps")),
    "1024 threads on a T4": ("sm_75", Block(1024, 64, 0), (1, 1.0, "warps")),
    "a warp begun counts whole": ("sm_80", Block(33, 32, 0), (32, 1.0, "warps")),
    "too many registers for a block": ("sm_90", Block(1024, 72, 0), (0, 0.0, "registers")),
    "too much shared memory": ("sm_89", Block(128, 32, 100 * 1024), (0, 0.0, "shared memory")),
    "too many threads": ("sm_90", Block(2048, 16, 0), (0, 0.0, "warps")),
}


@pytest.mark.parametrize("name", CASES)
def test_occupancy(name: str) -> None:
    sm, block, (blocks, ratio, limit) = CASES[name]
    held = occupancy(find_target(sm).architecture, block)
    assert (held.blocks, held.ratio, held.limit) == (blocks, ratio, limit)


def test_waves() -> None:
    h100 = find_target("h100")
    held = occupancy(h100.architecture, Block(128, 32, 0))
    assert held == Occupancy(16, 64, 1.0, "warps")
    assert waves(h100, held, (132 * 16, 1, 1)) == 1.0
    assert waves(h100, held, (132, 16, 3)) == 3.0
    assert waves(h100, held, (1,)) == pytest.approx(1 / 2112)
    assert waves(h100, Occupancy(0, 0, 0.0, "registers"), (1,)) is None


def test_a_copy_is_bound_by_memory() -> None:
    found = floor(find_target("h100"), 3_350_000_000, (Work(10**6, "f32", "vector"),))
    assert (found.memory_us, found.bound) == (1000.0, "memory")
    assert found.time_us == found.memory_us
    assert found.intensity == pytest.approx(1e6 / 3.35e9)


def test_a_large_product_is_bound_by_arithmetic() -> None:
    size = 8192
    flops, moved = 2 * size**3, 3 * size * size * 2
    found = floor(find_target("h100"), moved, (Work(flops, "bf16", "matrix"),))
    assert found.bound == "arithmetic"
    assert found.time_us == pytest.approx(flops / 989.4e6)  # 1.11 ms
    assert found.intensity == pytest.approx(size / 3)
    assert balance(find_target("h100"), "bf16", "matrix") == pytest.approx(295.3, abs=0.1)


def test_units_compute_side_by_side() -> None:
    a100 = find_target("a100")
    product, rest = Work(312 * 10**6, "bf16", "matrix"), Work(10**6, "f32", "vector")
    assert floor(a100, 0, (product, rest)).time_us == pytest.approx(1.0)
    assert floor(a100, 0, (product, product)).time_us == pytest.approx(2.0)
    assert floor(a100, 0).intensity is None


def test_f64_is_slow_on_a_geforce() -> None:
    work = (Work(10**9, "f64", "vector"),)
    geforce, h100 = (floor(find_target(name), 0, work).time_us for name in ("rtx4090", "h100"))
    assert geforce / h100 == pytest.approx(26, rel=0.01)

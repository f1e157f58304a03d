"""What kernels read, write and compute, against figures by hand and Inductor's own; shares by line."""

import re
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.codegen.gpu.cost_model.node_flops import product_dtype
from aotlens.codegen.gpu.inductor_trace import InductorTrace
from aotlens.codegen.kernels import Measurable, Timer, measure_calls
from aotlens.model.report import Kernel, KernelChoice
from aotlens.view.kernels import line_costs, phase_costs, with_measured_times
from tests.gpu_code.lowering import Case, Rows, rows_of

ITEM = 4


def affine(x: Tensor, w: Tensor) -> Tensor:
    return x * w + 1


def row_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


def every_eighth(x: Tensor) -> Tensor:
    return x[:, ::8] * 2


def rotated(x: Tensor) -> Tensor:
    return torch.cat([-x[..., 1::2], x[..., ::2]], -1)


def gathered(table: Tensor, at: Tensor) -> Tensor:
    return table[at] * 2


def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(b, x, w)


def through_sort(x: Tensor) -> Tensor:
    return x.relu().sort(-1).values * 2


def both_sums(x: Tensor) -> Tensor:
    y = x.softmax(-1)
    return y / y.sum(0)


def drawn(x: Tensor) -> Tensor:
    return functional.dropout(x, 0.5)


def chosen_by_data(x: Tensor) -> Tensor:
    return x[x > 0] * 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.gelu(self.up(self.norm(x)))
        return (x + self.down(y)).softmax(-1)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x.sum()


def channels_last(module: nn.Module) -> nn.Module:
    for weight in module.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.to(memory_format=torch.channels_last)
    return module


CASES = {
    "affine": Case(affine, (torch.randn(64, 128), torch.randn(128))),
    "row_sum": Case(row_sum, (torch.randn(64, 128),)),
    "every_eighth": Case(every_eighth, (torch.randn(256, 4096),)),
    "rotated": Case(rotated, (torch.randn(256, 4096),)),
    "gathered": Case(gathered, (torch.randn(1000, 64), torch.randint(0, 1000, (50,)))),
    "linear": Case(linear, (torch.randn(32, 64), torch.randn(64, 16), torch.randn(16))),
    "through_sort": Case(through_sort, (torch.randn(64, 4096),)),
    "both_sums": Case(both_sums, (torch.randn(512, 64),)),
    "drawn": Case(drawn, (torch.randn(64, 128, requires_grad=True),)),
    "chosen_by_data": Case(chosen_by_data, (torch.randn(64),)),
    "norm": Case(nn.LayerNorm(1024), (torch.randn(8192, 1024, requires_grad=True),)),
    "blocks": Case(Blocks(), (torch.randn(128, 64),)),
    "convolved": Case(
        channels_last(nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 4, 3))),
        (torch.randn(2, 8, 12, 12).to(memory_format=torch.channels_last),),
    ),
}


@pytest.fixture(scope="module")
def rows() -> dict[str, Rows]:
    """Each program's rows, with Inductor's own count of the bytes of each generated kernel."""
    original = InductorTrace.kernel_call
    counted: list[int] = []

    def counting(self: Any, schedule: Any, name: str | None) -> None:
        original(self, schedule, name)
        counted.append(self.defined[name or next(reversed(self.defined))].estimate_kernel_num_bytes())

    def note() -> list[int]:
        found = list(counted)
        counted.clear()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InductorTrace, "kernel_call", counting)
        return rows_of(CASES, note)


def _traffic(kernel: Kernel) -> tuple[int | None, int | None, int | None]:
    return kernel.bytes_read, kernel.bytes_written, kernel.flops


@pytest.mark.rotates
def test_a_kernel_stands_at_its_costliest_line_first(rows: dict[str, Rows]) -> None:
    several = [kernel for row in rows.values() for kernel in row.kernels if len(kernel.spans) > 1]
    assert {len({span.line for span in kernel.spans}) > 1 for kernel in several} == {True, False}
    for kernel in several:
        lines = Counter({span.line: 0 for span in kernel.spans})
        for share in kernel.shares:
            lines[share.span.line] += share.flops
        assert lines[kernel.spans[0].line] == max(lines.values()), kernel.name
        work = {share.span: share.flops for share in kernel.shares}
        found = [work[span] for span in kernel.spans if span.line == kernel.spans[0].line]
        assert found == sorted(found, reverse=True), kernel.name


def test_a_broadcast_is_read_once(rows: dict[str, Rows]) -> None:
    (kernel,) = rows["affine"].kernels
    assert _traffic(kernel) == ((64 * 128 + 128) * ITEM, 64 * 128 * ITEM, 2 * 64 * 128)
    moved = (2 * 64 * 128 + 128) * ITEM
    assert kernel.bytes_moved == moved
    assert kernel.intensity == 2 * 64 * 128 / moved
    assert [(access.value, access.written, access.bytes) for access in kernel.accesses] == [
        ("x", False, 64 * 128 * ITEM),
        ("w", False, 128 * ITEM),
        ("add", True, 64 * 128 * ITEM),
    ]


def test_a_reduction(rows: dict[str, Rows]) -> None:
    (kernel,) = rows["row_sum"].kernels
    assert _traffic(kernel) == (64 * 128 * ITEM, 64 * ITEM, 64 * 128)


def test_a_matrix_product(rows: dict[str, Rows]) -> None:
    (kernel,) = rows["linear"].kernels
    assert kernel.kind == "library"
    assert _traffic(kernel) == ((32 * 64 + 64 * 16 + 16) * ITEM, 32 * 16 * ITEM, 2 * 32 * 64 * 16)


def test_elements_that_lie_apart_move_their_sectors(rows: dict[str, Rows]) -> None:
    (kernel,) = rows["every_eighth"].kernels
    (read,) = [access for access in kernel.accesses if not access.written]
    assert read.bytes == 256 * 512 * ITEM
    assert read.sector_bytes == 8 * read.bytes


def test_halves_that_are_both_read_move_each_sector_once(rows: dict[str, Rows]) -> None:
    (kernel,) = rows["rotated"].kernels
    (read,) = [access for access in kernel.accesses if not access.written]
    assert read.bytes == read.sector_bytes == 256 * 4096 * ITEM


def test_a_gather_reads_what_it_asks_for(rows: dict[str, Rows]) -> None:
    (kernel,) = rows["gathered"].kernels
    assert _traffic(kernel) == (50 * 64 * ITEM + 50 * 8, 50 * 64 * ITEM, 50 * 64)


def test_partial_sums_are_written_and_added_up(rows: dict[str, Rows]) -> None:
    """The gradients of weight and bias are summed over rows beside the gradient of the input."""
    backward = [kernel for kernel in rows["norm"].kernels if kernel.phase == "backward"]
    assert [kernel.kind for kernel in backward] == ["generated", "library", "library"]
    left = [access for access in backward[0].accesses if access.written and not access.value]
    assert [access.bytes for access in left] == [kernel.bytes_read for kernel in backward[1:]]


def test_each_call_has_its_lines_or_says_who_added_it(rows: dict[str, Rows]) -> None:
    for name, each in rows.items():
        for kernel in each.kernels:
            assert kernel.spans or kernel.added, (name, kernel.name)
            assert kernel.bytes_moved is not None or name == "chosen_by_data", (name, kernel.name)
    (seeds,) = [kernel for kernel in rows["drawn"].kernels if not kernel.spans]
    assert seeds.added == "codegen: Inductor takes a seed for the random numbers of its kernels"


def test_sizes_that_only_data_tells_are_unknown(rows: dict[str, Rows]) -> None:
    compared, chosen, doubled = rows["chosen_by_data"].kernels
    assert compared.bytes_read == 64 * ITEM
    assert [(kernel.bytes_moved, kernel.flops, kernel.floor_us) for kernel in (chosen, doubled)] == [
        (None,) * 3
    ] * 2
    (total,) = phase_costs(rows["chosen_by_data"].kernels)
    assert total.unknown == 2


def test_kernels_stay_where_their_account_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Any, members: Any, kernel: Any) -> Any:
        raise LookupError("a buffer")

    monkeypatch.setattr("aotlens.codegen.gpu.cost_model.traffic.Traffic.kernel_accesses", failing)
    (kernel,) = rows_of({"affine": CASES["affine"]})["affine"].kernels
    assert kernel.source
    assert kernel.bytes_moved is None


def test_bytes_are_those_of_inductors_own_account(rows: dict[str, Rows]) -> None:
    """It counts a slice in full and an update in place once, so not each kernel agrees; together they do."""
    generated = [kernel for kernel in rows["blocks"].kernels if kernel.kind == "generated"]
    ours = sum(kernel.bytes_moved or 0 for kernel in generated)
    assert len(generated) == len(rows["blocks"].noted)
    assert ours == pytest.approx(sum(rows["blocks"].noted), rel=0.03)
    equal = sum(
        kernel.bytes_moved == count for kernel, count in zip(generated, rows["blocks"].noted, strict=True)
    )
    assert equal >= 0.8 * len(generated)


def test_shares_are_the_whole_of_a_kernel(rows: dict[str, Rows]) -> None:
    for name, each in rows.items():
        for kernel in each.kernels:
            if not kernel.shares:
                continue
            assert sum(share.bytes_read for share in kernel.shares) == kernel.bytes_read, name
            assert sum(share.bytes_written for share in kernel.shares) == kernel.bytes_written, name
            assert sum(share.flops for share in kernel.shares) == (kernel.flops or 0), name
            assert sum(share.floor_us for share in kernel.shares) == pytest.approx(kernel.floor_us), name


def test_lines_and_phases_have_the_same_sums(rows: dict[str, Rows]) -> None:
    kernels = rows["blocks"].kernels
    lines, phases = line_costs(kernels), phase_costs(kernels)
    assert [phase.phase for phase in phases] == ["forward", "backward"]
    for figure in ("bytes_read", "bytes_written", "flops"):
        assert sum(getattr(line, figure) for line in lines) == sum(getattr(one, figure) for one in phases)
    first = Block.forward.__code__.co_firstlineno
    assert {line.span.line for line in lines} <= {
        first + 1,
        first + 2,
        Blocks.forward.__code__.co_firstlineno + 3,
    }
    assert list(lines) == sorted(lines, key=lambda line: -line.floor_us)
    products = 4 * 2 * 128 * 64 * 256
    assert sum(one.flops for one in phases if one.phase == "forward") == pytest.approx(products, rel=0.1)
    assert all(line.kernels_forward and line.kernels_backward for line in lines)


def test_a_backward_kernel_stands_at_what_it_differentiates(rows: dict[str, Rows]) -> None:
    backward = [kernel for kernel in rows["blocks"].kernels if kernel.phase == "backward"]
    lines = {span.line for kernel in backward for span in kernel.spans}
    assert Block.forward.__code__.co_firstlineno + 1 in lines
    assert {kernel.layer for kernel in backward} >= {"blocks.0", "blocks.1"}


def test_why_kernels_are_apart(rows: dict[str, Rows]) -> None:
    (pair,) = rows["both_sums"].kernels[1].unfused
    assert (pair.call, pair.kernel) == (0, rows["both_sums"].kernels[0].name)
    assert pair.is_produced
    assert pair.torch
    names_nodes = not torch.__version__.startswith("2.11.")  # docs/torch-versions.md
    line = pair.span.line if pair.span is not None else None
    assert line == (both_sums.__code__.co_firstlineno + 1 if names_nodes else None)


def test_a_library_call_takes_no_other_work_in(rows: dict[str, Rows]) -> None:
    _, sort, after = rows["through_sort"].kernels
    (total,) = phase_costs(rows["through_sort"].kernels)
    assert (sort.flops, sort.bound, total.unknown_flops) == (None, "memory", 1)  # nobody has a formula for it
    assert [(one.code, one.torch, one.bytes) for one in (*sort.unfused, *after.unfused)] == [
        ("library", "", 64 * 4096 * ITEM),
        ("library", "", 64 * 4096 * ITEM),
    ]


def test_products_in_f32_are_tf32_where_torch_s_settings_allow_it() -> None:
    aten = torch.ops.aten
    product, convolution = aten.mm.default, aten.convolution.default
    assert torch.backends.cudnn.allow_tf32  # torch's defaults
    assert not torch.backends.cuda.matmul.allow_tf32
    assert [product_dtype(op, "f32") for op in (product, convolution)] == ["f32", "tf32"]
    assert product_dtype(convolution, "bf16") == "bf16"
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert product_dtype(product, "f32") == "tf32"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_convolutions_take_and_give_channels_last_as_cudnns_do(rows: dict[str, Rows]) -> None:
    """Without it each would stand behind copies of its input and of its weight."""
    forward = [kernel.name for kernel in rows["convolved"].kernels if kernel.phase == "forward"]
    library = "extern_kernels.convolution"
    assert [name if name == library else "generated" for name in forward] == [library, "generated"] * 2


class Launched:
    """A kernel of a device that does each piece of work at once, and whose clock the work sets."""

    def __init__(self, device: "Device", took_us: float) -> None:
        self.device, self.took_us = device, took_us
        config = SimpleNamespace(kwargs={"XBLOCK": 8, "EVEN": True}, num_warps=4, num_stages=1)
        self.launchers = [SimpleNamespace(config=config)]

    def run(self, *args: Any, stream: int) -> None:
        self.device.now += self.took_us


class Device(Timer):
    name = "a device of the tests"

    def __init__(self) -> None:
        self.now = 0.0
        self.held: list[int] = []

    def hold(self, calls: int) -> None:
        self.held.append(calls)

    def mark(self) -> float:
        self.now += 1  # a mark takes time too, and so does the sum that stands between two
        return self.now

    def elapsed_us(self, first: float, second: float) -> float:
        return second - first

    def wait(self) -> None:
        """Nothing is left to wait for."""


def test_launches_of_a_gpus_wrapper_are_timed_with_the_sums_that_end_them(
    rows: dict[str, Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor's own text for a GPU runs, on kernels that only take their time."""
    device = Device()
    wrapper = rows["norm"].wrappers[1].replace("torch.cuda._DeviceGuard(0)", "no_guard")
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    kernels = dict.fromkeys(re.findall(r"(triton_\w+)\.run\(", wrapper))
    guards: Any = torch._C._dynamo.guards
    names = {
        "torch": torch,
        "no_guard": nullcontext(),
        "assert_size_stride": lambda *args: None,
        "copy_if_misaligned": lambda tensor: tensor,
        "get_raw_stream": lambda device: 7,
        "empty_strided_cuda": guards._empty_strided_cpu,
        "reinterpret_tensor": guards._reinterpret_tensor,
        **{name: Launched(device, 10.0 * (at + 1)) for at, name in enumerate(kernels)},
    }
    count = len(re.findall(r"^\s+(.*) = args$", wrapper, re.MULTILINE)[0].split(","))
    numbers = tuple(int(found) for found in re.findall(r"handles\] triton_\w+:(\d+)", wrapper))
    graph = Measurable(wrapper, names, numbers, (torch.empty(1),) * count)
    (found,) = measure_calls(graph, device, runs=2)
    assert (found.call_us, found.ending_us) == (11.0, (1.0, 1.0))
    assert found.ran == KernelChoice({"XBLOCK": 8}, 4, 1)
    assert device.held == [1] * 5
    here = Kernel(next(iter(kernels)), "backward", "cuda:0", "", (), (), time_us=11.0, ending_us=(1.0, 2.0))
    there = [kernel for kernel in rows["norm"].kernels if kernel.phase == "backward"]
    assert [kernel.time_us for kernel in with_measured_times((here, *there))] == [11.0, 11.0, 1.0, 2.0]

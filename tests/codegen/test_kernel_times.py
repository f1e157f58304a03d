"""Times of the calls of a compiled graph: each at its own row, by a clock that the device has."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from aotlens.codegen.kernels import MARK, Measurable, Timer, measure_calls, with_marks
from aotlens.compiled import Compiled
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.model.kernels import Kernel, KernelShare
from aotlens.model.source import Span
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.view.kernels import line_costs, phase_costs, with_measured_times

WRAPPER = """
async_compile.wait(globals())
del async_compile

def call(args):
    first, second = args
    args.clear()
    if True:
        # [Provenance debug handles] extern_kernels.mm:4
        third = multiply(first,
                         second)
        # Topologically Sorted Source Nodes: []
        # [Provenance debug handles] fused_add:5
        fused_add.run(third, 64)
        del third
    # [Provenance debug handles] fused_add:7
    # [Provenance debug handles] fused_mul:9
    fused_add.run(first, 64)
    return (first,)
"""


class Steps(Timer):
    """A device that has done each piece of work at once, and whose clock the work sets."""

    name = "a device of the tests"

    def __init__(self) -> None:
        self.now = 0.0
        self.held = self.waited = 0

    def hold(self, calls: int) -> None:
        self.held += 1

    def mark(self) -> float:
        return self.now

    def elapsed_us(self, first: float, second: float) -> float:
        return second - first

    def wait(self) -> None:
        self.waited += 1


class FusedAdd:
    def __init__(self, device: Steps) -> None:
        self.device = device

    def run(self, value: Any, size: int) -> None:
        self.device.now += 2.5


def graph(device: Steps, handles: tuple[int, ...]) -> Measurable:
    def multiply(first: Tensor, second: Tensor) -> Tensor:
        device.now += 10
        return first

    names = {"multiply": multiply, "fused_add": FusedAdd(device)}
    return Measurable(WRAPPER, names, handles, (torch.empty(2, 2), torch.empty(2, dtype=torch.int64)))


def test_each_call_has_its_own_time() -> None:
    device = Steps()
    found = measure_calls(graph(device, (4, 5, 7, 8)), device, runs=3)
    assert [one.call_us for one in found] == [10.0, 2.5, 2.5, None]
    assert (device.held, device.waited) == (6, 6)


def test_marks_stand_around_whole_statements() -> None:
    text = with_marks(WRAPPER)
    calls = [
        line.strip() for line in text.splitlines() if "call" not in line and "(" in line and "#" not in line
    ]
    assert calls[2:8] == [
        f"{MARK}(4)",
        "third = multiply(first,",
        f"{MARK}(4)",
        f"{MARK}(5)",
        "fused_add.run(third, 64)",
        f"{MARK}(5)",
    ]


GPU_LAUNCH = """
def call(args):
    with torch.cuda._DeviceGuard(0):
        # [Provenance debug handles] triton_red_fused_sum_0:1
        workspace_0 = empty_strided_cuda((64, ), (1, ), torch.uint8)
        workspace_0.zero_()
        raw_stream0 = get_raw_stream(0)
        triton_red_fused_sum_0.run(args[0], workspace_0, 64, stream=raw_stream0)
        del workspace_0
        # [Provenance debug handles] aten.sort:2
        buf1 = torch.ops.aten.sort.default(args[0])
        buf2 = buf1[0]
"""


def test_the_time_of_a_launch_is_that_of_the_kernel_and_not_of_asking_for_a_stream() -> None:
    lines = [line.strip() for line in with_marks(GPU_LAUNCH).splitlines()]
    marks = [at for at, line in enumerate(lines) if MARK in line]
    between = [lines[first + 1 : last] for first, last in zip(marks[::2], marks[1::2], strict=True)]
    assert [part[0].split(" ")[0] for part in between] == ["workspace_0", "buf1"]
    assert [part[-1].split("(")[0] for part in between] == [
        "triton_red_fused_sum_0.run",
        "buf1 = torch.ops.aten.sort.default",
    ]


def test_the_random_state_is_as_before() -> None:
    before = torch.get_rng_state()
    device = Steps()
    measure_calls(graph(device, (4,)), device, runs=1)
    assert torch.equal(torch.get_rng_state(), before)


def activated(x: Tensor, weight: Tensor) -> Tensor:
    return torch.softmax((x @ weight).relu().sin(), -1)


def compiled() -> Compiled:
    args = tuple(torch.randn(16, 16, requires_grad=True) for _ in range(2))
    found = compile_direct(activated, args, {}, CompileOptions("inductor"))
    found.call(*args).sum().backward()
    return found


@pytest.mark.rotates
def test_every_kernel_of_forward_and_backward_is_timed_where_it_runs() -> None:
    found = compiled()
    assert [kernel.time_us for kernel in found.target().kernels] == [None] * len(found.target().kernels)
    (how,) = found.measure()
    assert how.startswith("measured: median of 20 warm runs on this machine's CPU")
    kernels = found.target().kernels
    assert {kernel.phase for kernel in kernels} == {"forward", "backward"}
    assert all(kernel.time_us is not None and kernel.time_us > 0 for kernel in kernels)


def test_a_graph_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(value: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("aotlens.codegen.kernels._random_input", failing)
    found = compiled()
    assert found.measure() == (
        "the forward was not measured: RuntimeError: out of memory",
        "the backward was not measured: RuntimeError: out of memory",
    )
    assert all(kernel.time_us is None for kernel in found.target().kernels)


LINE, OTHER = Span("m.py", 3, 4, 3, 9), Span("m.py", 7, 4, 7, 9)
HERE = Kernel("fused_0", "forward", "cuda:0", "", (), (), time_us=6.0)
PREDICTED = Kernel(
    *("fused_0", "forward", "sm_90", "", (), (LINE, OTHER)),
    floor_us=3.0,
    shares=(KernelShare(LINE, 1, 1, 1, 2.0), KernelShare(OTHER, 1, 1, 1, 1.0)),
)


def test_a_time_stands_beside_the_floor_of_the_same_call() -> None:
    later = replace(PREDICTED, name="mm", call=1)
    found = with_measured_times((HERE, replace(HERE, name="mm", time_us=9.0), PREDICTED, later))
    assert [kernel.time_us for kernel in found] == [6.0, 9.0, 6.0, 9.0]
    assert [(line.span, line.time_us) for line in line_costs(found)] == [(LINE, 10.0), (OTHER, 5.0)]
    assert [total.time_us for total in phase_costs(found)] == [15.0]


def test_kernels_of_a_graph_that_run_on_the_cpu_are_no_rows_of_the_gpu() -> None:
    on_cpu = replace(HERE, name="cpp_fused_0", time_us=2.0)
    found = with_measured_times((on_cpu, HERE, replace(on_cpu, target="cpu", time_us=None), PREDICTED))
    assert [kernel.time_us for kernel in found] == [2.0, 6.0, None, 6.0]


def test_another_choice_of_a_template_is_the_same_call() -> None:
    """The library's kernel stands for it too, but for none that computes something else."""
    library = replace(HERE, name="extern_kernels.mm", nodes=("mm",))
    template = replace(PREDICTED, name="triton_tem_fused_mm_0", nodes=("mm",))
    assert [kernel.time_us for kernel in with_measured_times((library, template))] == [6.0, 6.0]
    other = replace(template, nodes=("bmm",))
    assert [kernel.time_us for kernel in with_measured_times((library, other))] == [6.0, None]


def test_kernels_that_are_not_the_same_keep_no_time() -> None:
    found = with_measured_times((replace(HERE, name="other"), PREDICTED))
    assert [kernel.time_us for kernel in found] == [6.0, None]
    assert [line.time_us for line in line_costs(found)] == [None, None]
    assert [total.time_us for total in phase_costs(found)] == [None]


def test_the_clock_is_the_devices() -> None:
    assert type(graph(Steps(), ()).timer) is Timer


class Events:
    """What `torch.cuda` is asked for the times of one GPU, in order; its clock is the number of questions."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[Any] = []
        told = self.asked.append

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                told("record")

            def elapsed_time(self, other: Any) -> float:
                told("elapsed")
                return 0.25

        @contextmanager
        def current(device: torch.device) -> Iterator[None]:
            told(("enter", device.index))
            yield
            told("leave")

        patch.setattr(torch.cuda, "Event", Event)
        patch.setattr(torch.cuda, "device", current)
        patch.setattr(torch.cuda, "synchronize", lambda device: told(("wait", device.index)))
        patch.setattr(torch.cuda, "_sleep", lambda cycles: told(("sleep", cycles)))
        patch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")


def test_events_are_those_of_the_gpu_that_the_wrapper_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which need not be the current one; it is held for longer where more is launched."""
    events = Events(monkeypatch)
    there = Measurable(GPU_LAUNCH.replace("(0)", "(1)"), {}, (1, 2), ())
    assert there.gpu == torch.device("cuda", 1)
    timer = there.timer
    assert timer.name == "GPU 1"
    timer.hold(1)
    timer.hold(40)
    first, second = timer.mark(), timer.mark()
    timer.wait()
    assert timer.elapsed_us(first, second) == 250.0
    (_, short), (_, long) = held = [asked for asked in events.asked if asked[0] == "sleep"]
    assert short < long
    within = [[("enter", 1), one, "leave"] for one in held]
    assert events.asked == [*within[0], *within[1], "record", "record", ("wait", 1), "elapsed"]


@pytest.mark.rotates
def test_kernels_of_code_that_inductor_finds_in_its_own_cache_have_their_nodes() -> None:
    found: list[Compiled] = []
    hits = counters["inductor"]["fxgraph_cache_hit"]
    for _ in range(2):
        torch.compiler.reset()
        with observing(on_compiled=found.append):
            torch.compile(lambda x: x.sin().mul(2).exp(), backend=dynamo_backend(CompileOptions()))(
                torch.ones(5)
            )
    assert counters["inductor"]["fxgraph_cache_hit"] > hits
    first, second = ([(kernel.name, kernel.nodes) for kernel in one.target().kernels] for one in found)
    assert first == second
    assert set(first[0][1]) >= {"sin", "exp"}

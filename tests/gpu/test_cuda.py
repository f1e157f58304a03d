"""Programs on a GPU, with both backends, compared with eager there; skipped where there is none."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from aotlens.codegen.gpu.offline.context import offline_gpu, replacements
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.model.gpus.names import find_target
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from tests.engine.checking import Compiler
from tests.engine.judging import judge
from tests.every_way import AS_EAGER
from tests.programs import Program, tagged, untagged

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("ignore"),  # programs warn as eager warns
]

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))
GENERATOR = "a generator of the CPU"
CPU_TENSOR = "torch wants one of its tensors on the CPU"
OVERLAP = "CUDA's foreach kernels read and write tensors that overlap in no defined order"
NOT_ON_GPU = {
    "randomness/own_generator": GENERATOR,
    "randomness/seeded_inside": GENERATOR,
    "randomness/drawn_from_a_state_that_was_read": GENERATOR,
    "randomness/drawn_from_the_state_of_an_argument": GENERATOR,
    "data_dependent/split_at_a_tensor": CPU_TENSOR,
    "data_dependent/split_at_a_known_tensor": CPU_TENSOR,
    "data_dependent/write_at_an_index_in_a_tensor": "refused by name: torch reads the index from the GPU",
    "distributed/reduced": "torch's fake process group leaves results on a GPU as they were allocated",
    "from_random_programs/tensor_twice_in_a_foreach_list": OVERLAP,
    "mutation_kinds/foreach_crosswise": OVERLAP,
    "mutation_kinds/foreach_on_a_tensor_and_a_view": OVERLAP,
    "mutation_kinds/foreach_on_one_tensor_twice": OVERLAP,
    "mutation_kinds/foreach_on_rows": OVERLAP,
    "mutation_kinds/foreach_on_views_of_an_input": OVERLAP,
    "mutation_kinds/lazily_conjugated_moved_and_written": "Inductor has no complex numbers on a GPU",
    "unsupported_cases/packed_sequences": CPU_TENSOR,
}
"""Programs that say nothing about compiled code there, and why."""
NEWER_TORCH = (
    "higher_order/cond_writes_to_an_operand",
    "higher_order/cond_writes_through_a_view_in_one_branch",
    "higher_order/Counting",
    "higher_order/loop_that_writes_outside",
)
"""Programs that torch 2.11 does not run in eager."""


def compiler(**options: Any) -> Compiler:
    def compile_program(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
        return compile_direct(fn, args, {}, CompileOptions(**options)).call

    return compile_program


def where_a_gpu_is(programs: Sequence[Program]) -> Sequence[Program]:
    """One stands for a thousand that are skipped: they would be collected, sent about and told one by one."""
    return programs if torch.cuda.is_available() else programs[:1]


def name_of(program: Program) -> str:
    return program.name


def on_gpu(program: Program, **options: Any) -> None:
    """The program's tensors are made on the GPU, and so is what the function makes itself."""
    if program.name in NOT_ON_GPU:
        pytest.skip(NOT_ON_GPU[program.name])
    if program.name in NEWER_TORCH and RELEASE < (2, 12):
        pytest.skip("this torch does not run it in eager")
    with torch.device("cuda"):
        judge(program, compiler(**options))


@pytest.mark.parametrize("program", where_a_gpu_is(untagged("grid")), ids=name_of)
def test_text_of_the_graphs(program: Program) -> None:
    on_gpu(program, backend="eager")


@pytest.mark.parametrize("program", where_a_gpu_is(tagged("inductor")), ids=name_of)
def test_inductor(program: Program) -> None:
    on_gpu(program, backend="inductor", inductor_config=AS_EAGER)


def test_kernels_are_reported_with_their_device() -> None:
    x = torch.randn(64, 64, device="cuda", requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.sin() * 2, dim=-1)

    compiled = compile_direct(fn, (x,), {}, CompileOptions(backend="inductor"))
    compiled.call(x).sum().backward()
    kernels = compiled.target().kernels
    assert {kernel.phase for kernel in kernels} == {"forward", "backward"}
    assert all(kernel.target.startswith("cuda") and "triton" in kernel.name for kernel in kernels)


def test_every_kernel_is_timed_by_events() -> None:
    """Also those of libraries; the sum is no more than a step takes, and each takes some time."""
    x, weight = (torch.randn(512, 512, device="cuda", requires_grad=True) for _ in range(2))

    def fn(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.softmax((x @ weight).sin(), dim=-1)

    compiled = compile_direct(fn, (x, weight), {}, CompileOptions(backend="inductor"))
    compiled.call(x, weight).sum().backward()
    (how,) = compiled.measure()
    assert torch.cuda.get_device_name() in how
    kernels = compiled.target().kernels
    assert {kernel.phase for kernel in kernels} == {"forward", "backward"}
    assert all(kernel.time_us is not None and 0 < kernel.time_us < 1e5 for kernel in kernels)


def test_the_time_of_a_launch_is_what_the_kernel_takes() -> None:
    """256 MiB read and written: no memory is so fast that they take less than 20 microseconds."""
    x = torch.randn(1 << 26, device="cuda")
    compiled = compile_direct(lambda x: x.sin() * 2, (x,), {}, CompileOptions(backend="inductor"))
    compiled.call(x)
    compiled.measure()
    (kernel,) = compiled.target().kernels
    assert kernel.time_us is not None
    assert kernel.time_us > 20
    assert kernel.ran is not None


def test_a_norms_backward_has_times_beside_its_floors() -> None:
    """It ends with sums of what the kernel's blocks have left, which have rows of their own."""
    major, minor = torch.cuda.get_device_capability()
    norm = torch.nn.LayerNorm(1024, device="cuda")
    x = torch.randn(8192, 1024, device="cuda", requires_grad=True)
    options = CompileOptions(backend="inductor", gpu=f"sm_{major}{minor}")
    compiled = compile_direct(norm, (x,), {}, options)
    compiled.call(x).sum().backward()
    compiled.measure()
    target = compiled.target()
    assert all(total.time_us is not None for total in target.gpu_totals)
    assert all(line.time_us is not None for line in target.gpu_lines)


def test_steps_that_are_recorded_as_cuda_graphs_are_eagers() -> None:
    """As `mode="reduce-overhead"` has it: recorded at the second step, replayed from the third on."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)).cuda()
    backend = dynamo_backend(
        CompileOptions(backend="inductor", inductor_config=(("triton.cudagraphs", True),))
    )
    torch.compiler.reset()
    skipped = counters["inductor"]["cudagraph_skips"]
    compiled = torch.compile(model, backend=backend)
    for _ in range(5):
        x = torch.randn(32, 64, device="cuda")
        found = []
        for step in (compiled, model):
            torch.compiler.cudagraph_mark_step_begin()
            loss = step(x).square().mean()
            gradients = torch.autograd.grad(loss, tuple(model.parameters()))
            found.append([loss.detach().clone(), *(gradient.clone() for gradient in gradients)])
        torch.testing.assert_close(*found)
    assert counters["inductor"]["cudagraph_skips"] == skipped


def test_a_script_on_the_gpu_is_traced_in_a_child_of_the_warm_server(tmp_path: Path) -> None:
    """The server has loaded torch and started no driver, so its child can."""
    script = tmp_path / "on_gpu.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(8, 8).cuda()\n"
        "step = torch.compile(lambda x: model(x).relu().sum())\n"
        "step(torch.randn(4, 8, device='cuda')).backward()\n",
        encoding="utf-8",
    )
    words = [sys.executable, "-m", "aotlens", "inspect", str(script), "--format", "json"]
    done = subprocess.run([*words, "--backend", "inductor"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    (target,) = json.loads(done.stdout)["targets"]
    assert {kernel["phase"] for kernel in target["kernels"]} == {"forward", "backward"}
    assert all(kernel["time_us"] > 0 for kernel in target["kernels"])


def test_a_target_that_is_this_gpu_has_times_beside_its_floors() -> None:
    major, minor = torch.cuda.get_device_capability()
    x = torch.randn(512, 512, device="cuda", requires_grad=True)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.sin() * 2, dim=-1)

    options = CompileOptions(backend="inductor", gpu=f"sm_{major}{minor}")
    compiled = compile_direct(fn, (x,), {}, options)
    compiled.call(x).sum().backward()
    compiled.measure()
    target = compiled.target()
    predicted = [kernel for kernel in target.kernels if kernel.target.startswith("sm_")]
    assert target.gpu_error == ""
    assert predicted
    assert all(kernel.time_us is not None and kernel.floor_us is not None for kernel in predicted)
    assert all(line.time_us is not None for line in target.gpu_lines)


def test_nothing_is_replaced_for_the_machines_own_gpu() -> None:
    major, minor = torch.cuda.get_device_capability()
    target = find_target(f"sm_{major}{minor}")
    before = [vars(one.owner).get(one.name) for one in replacements(target)]
    with offline_gpu(target):
        assert [vars(one.owner).get(one.name) for one in replacements(target)] == before

"""Recordings of functions on an emulated GPU: devices, casts, transfers, kernels."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aotlens.compiled import Compiled
from aotlens.errors import UnsupportedError, UserError
from aotlens.gpu_emulation.contexts import emulating
from aotlens.ir.program import op_name
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct

pytest.importorskip("triton", reason="code for a GPU needs Triton")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there, and none is pretended")


def recorded(function: Callable[..., Any], *args: Any, backend: str = "eager") -> Compiled:
    return compile_direct(function, args, {}, CompileOptions(backend, gpu="h100"))


def places(compiled: Compiled) -> dict[str, str]:
    """The device of each value of the joint program, by its operator."""
    nodes = [node for node in compiled.joint.program.nodes if isinstance(node.val, Tensor)]
    return {node.name: node.val.device.type for node in nodes}


def on_both(x: Tensor, table: Tensor) -> Tensor:
    weights = torch.arange(4, device=x.device) * 0.5
    back = x.cpu() * table
    return (back.cuda() + x * weights).sum()


def test_each_value_is_where_the_script_has_put_it() -> None:
    with emulating("h100", fake=False):
        x = torch.randn(4, 4, device="cuda", requires_grad=True)
        compiled = recorded(on_both, x, torch.ones(4))
        assert [given.fake.device.type for given in compiled.captured.inputs] == ["cuda", "cpu"]
        found = places(compiled)
        on_cpu = {name for name, device in found.items() if device == "cpu"}
        assert on_cpu == {"device_put", "mul_1", "device_put_2", "mul_4"}
        out = compiled.call(x, torch.ones(4))
        out.backward()
        assert out.is_cuda
        assert x.grad is not None
        assert x.grad.is_cuda


def shifted(x: Tensor, weight: Tensor) -> Tensor:
    return x * 2 @ weight


def test_an_argument_that_was_left_on_the_cpu() -> None:
    said = r"`aten.mm` meets .*x \* 2 @ weight`: what is computed from `x` is on the CPU, `weight` on cuda:0"
    with emulating("h100", fake=False), pytest.raises(UserError, match=said):
        recorded(shifted, torch.randn(2, 4), torch.randn(4, 4, device="cuda", requires_grad=True))


def test_what_cpp_derives_from_a_tensor_is_on_its_device() -> None:
    """`where` with a number makes a tensor of the condition's options, which C++ takes for the CPU."""

    def clamped(x: Tensor) -> Tensor:
        return torch.where(x > 0, x, 2.0).half().float().sum()

    with emulating("h100", fake=False):
        compiled = recorded(clamped, torch.randn(4, device="cuda", requires_grad=True))
        assert set(places(compiled).values()) == {"cuda"}


def test_a_script_may_ask_a_fake_tensor_for_its_device() -> None:
    def branching(x: Tensor) -> Tensor:
        assert x.device == torch.device("cuda:0")
        assert x.get_device() == 0
        return x * 2 if x.is_cuda else x * 3

    with emulating("h100", fake=False):
        x = torch.ones(3, device="cuda")
        assert recorded(branching, x).call(x).tolist() == [2.0, 2.0, 2.0]


def test_the_gradient_of_a_maximum_is_a_product_on_a_gpu_alone() -> None:
    """Eager multiplies on CUDA and fills zeros on the CPU, which differs if the gradient is infinite."""

    def operators(device: str) -> set[str]:
        x = torch.ones(3, device=device, requires_grad=True)
        backward = (node for node in recorded(torch.max, x).joint.program.nodes if node.origin.backward)
        return {op_name(node.op) for node in backward} & {"aten.mul.Tensor", "aten.where.self"}

    with emulating("h100", fake=False):
        assert operators("cuda") == {"aten.mul.Tensor"}
        assert operators("cpu") == {"aten.where.self"}


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            hidden = self.first(x)
            normed = self.norm(hidden)
            again = self.first(normed)
            weights = (again @ hidden.transpose(0, 1)).softmax(-1)
            mixed = torch.addcmul(normed, again, hidden)
            return hidden, normed, again, weights, mixed, again.sum(), again.relu()


def test_autocast_casts_as_on_a_gpu() -> None:
    """By torch's documentation of CUDA's lists; on the CPU a layer norm stays in bfloat16."""
    with emulating("h100", fake=False):
        model = Mixed().cuda()
        compiled = recorded(model, torch.randn(4, 8, device="cuda"))
        narrow, wide = torch.bfloat16, torch.float32
        assert [out.dtype for out in compiled.captured.outputs] == [
            narrow,
            wide,
            narrow,
            wide,
            wide,
            wide,
            narrow,
        ]
        casts = [node for node in compiled.joint.recorded.nodes if "first_weight" in str(node.args)]
        assert len(casts) == 1, "a parameter is cast once in a region"
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.rotates
def test_kernels_are_generated_for_what_is_on_the_gpu_and_the_report_says_so() -> None:
    pytest.importorskip("triton", reason="code for a GPU needs Triton")
    with emulating("h100", fake=False):
        compiled = recorded(on_both, torch.randn(4, 4, device="cuda"), torch.ones(4))
    target = compiled.target()
    assert target.gpu_error == ""
    assert [row.kind for row in target.kernels] == ["generated"] * len(target.kernels)
    lines = {
        (row.target, span.line - on_both.__code__.co_firstlineno)
        for row in target.kernels
        for span in row.spans
    }
    assert ("sm_90", 3) in lines
    assert ("cpu", 2) in lines
    assert ("sm_90", 2) not in lines, "the product on the CPU is no kernel of the GPU"
    assert [total.target for total in target.gpu_totals] == ["sm_90"]
    assert target.gpu_assumptions[1] == "tensors are where the script has put them, on the GPU or on the CPU"


def test_kernels_to_run_are_refused() -> None:
    with emulating("h100", fake=False), pytest.raises(UnsupportedError, match="a GPU that this machine"):
        recorded(functional.gelu, torch.randn(4, device="cuda"), backend="inductor")


def test_dynamo_makes_the_state_of_an_optimizer_on_the_gpu() -> None:
    with emulating("h100", fake=False):
        model = nn.Linear(4, 4).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(2, 4, device="cuda")).sum().backward()
        torch.compile(optimizer.step, backend="eager")()
        state = optimizer.state[model.weight]
        assert {name: value.is_cuda for name, value in state.items()} == {
            "step": True,
            "exp_avg": True,
            "exp_avg_sq": True,
        }


def test_constants_fold_beside_tensors_on_the_gpu() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * torch.ones(4, device="cuda") + torch.zeros(4, device=x.device)

    with emulating("h100", fake=False):
        found = places(recorded(scaled, torch.randn(4, device="cuda", requires_grad=True)))
    assert set(found.values()) <= {"cuda"}


def put_back(x: Tensor) -> Tensor:
    state = torch.get_rng_state()
    dropped = functional.dropout(x, 0.5)
    torch.set_rng_state(state)
    return dropped.sum()


def test_a_report_of_a_state_that_is_read_and_put_back() -> None:
    with emulating("h100", fake=False):
        compiled = recorded(put_back, torch.randn(4, 4, device="cuda", requires_grad=True))
        stages = {stage.name for stage in compiled.target().stages}
    assert {"captured", "functional"} <= stages

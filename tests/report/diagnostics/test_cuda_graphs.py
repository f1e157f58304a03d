"""Every blocker of a CUDA graph at its expression, and none on code that is recorded well."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aotlens.build.cuda_graphs import cuda_graph_of
from aotlens.diagnostics.diagnose import diagnose
from aotlens.diagnostics.wrapper import CODES
from aotlens.model import Target, loads
from aotlens.model.codec import dumps
from aotlens.model.cuda_graphs import CudaGraph
from aotlens.model.report import BlockerKind, Report
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.render.text.cuda_graphs import cuda_graph_lines
from aotlens.render.text.layout import to_text
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.view.cuda_graphs import WHY, what_blocks
from tests.conftest import Golden


def verdict(fn: Callable[..., Any], *args: Any, dynamic: bool = False) -> CudaGraph:
    """As `inspect --gpu` has it, without generating kernels."""
    compiled = compile_direct(fn, args, {}, CompileOptions("eager", dynamic=dynamic))
    found = cuda_graph_of(compiled.parts, compiled.module.text.steps, for_gpu=True)
    assert found is not None
    return found


def told(found: CudaGraph) -> list[tuple[str, str, str]]:
    """(kind, phase, the first expression) of each blocker."""
    return [(one.kind, one.phase, one.sites[0].text if one.sites else "") for one in found.blockers]


def grad(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


class Block(nn.Module):
    """What an ordinary model does: running statistics, dropout, a mask, an embedding, attention, a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(()))
        self.seen: Tensor

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        hidden = self.norm(self.table(tokens))
        self.seen += 1
        hidden = functional.scaled_dot_product_attention(hidden, hidden, hidden, is_causal=True)
        hidden = functional.dropout(hidden, 0.5).masked_fill(hidden > 1, 0.0)
        hidden = torch.where(hidden < -1, -1.0, hidden) + torch.arange(8)
        return functional.cross_entropy(hidden.flatten(0, 1), targets)


def test_an_ordinary_model_is_recorded_whole() -> None:
    found = verdict(Block(), torch.randint(10, (2, 4)), torch.randint(8, (8,)))
    assert found == CudaGraph("recorded", {"forward": "recorded", "backward": "recorded"})


def masked_value(x: Tensor, mask: Tensor) -> Tensor:
    out = x * 1
    out[mask] = 0.0
    return out


def test_one_value_behind_a_mask_is_a_choice() -> None:
    assert verdict(masked_value, grad(4), torch.ones(4) > 0).verdict == "recorded"


def number(x: Tensor) -> Tensor:
    return x * x.sum().item()


def picked(x: Tensor) -> Tensor:
    return x[x > 0] * 2


def put(x: Tensor, values: Tensor) -> Tensor:
    out = x.clone()
    out[x > 0] = values
    return out


def branch(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def loop(x: Tensor) -> Tensor:
    return torch.while_loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,))[0]


def factor(x: Tensor) -> Tensor:
    return torch.linalg.cholesky(x @ x.T)


def seeded(x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return x + torch.rand_like(x)


def printed(x: Tensor) -> Tensor:
    torch.ops.higher_order.print("x {}", 1)
    return x * 2


def cached(x: Tensor, cache: Tensor) -> Tensor:
    cache[0] = x.detach()
    return (x * cache).sum()


FORWARD = [
    (number, (grad(4),), "host_read", "x.sum().item()"),
    (picked, (torch.randn(4),), "data_size", "x[x > 0]"),
    (put, (torch.ones(4), torch.randn(4)), "mask_write", "out[x > 0]"),
    (branch, (torch.randn(4),), "branch", "torch.cond("),
    (loop, (torch.randn(4),), "loop", "torch.while_loop("),
    (factor, (torch.eye(4),), "waiting_kernel", "torch.linalg.cholesky(x @ x.T)"),
    (seeded, (torch.randn(4),), "generator", "torch.manual_seed(0)"),
    (printed, (torch.randn(4),), "effect", 'torch.ops.higher_order.print("x {}", 1)'),
    (cached, (grad(4), torch.zeros(2, 4)), "written_argument", "cache[0]"),
]


@pytest.mark.parametrize(("fn", "args", "kind", "text"), FORWARD, ids=[row[2] for row in FORWARD])
def test_a_blocker_stands_at_its_expression(fn: Any, args: Any, kind: BlockerKind, text: str) -> None:
    found = verdict(fn, *args)
    blocker = found.blockers[0]
    assert (blocker.kind, blocker.effect) == (kind, WHY[kind].effect)
    assert blocker.sites[0].text.startswith(text)
    assert found.verdict == {"prevents": "not_recorded", "splits": "in_parts"}[blocker.effect]
    assert [one.code for one in diagnose(_target(found))] == [CODES[kind]]


def on_both(function: Any) -> list[tuple[str, str, str]]:
    """Of a function of a tensor on the GPU and two on the CPU, all fake."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        given = torch.empty(4, 4, device="cuda"), torch.empty(4), torch.empty(())
    return told(verdict(function, *given))


def test_what_is_on_the_cpu_beside_a_gpu() -> None:
    assert on_both(lambda x, row, number: x * row.to(x.device)) == [
        ("cpu_input", "inference", "row.to(x.device)"),
        ("device_copy", "inference", "row.to(x.device)"),
    ]
    assert on_both(lambda x, row, number: x * number) == [("cpu_input", "inference", "x * number")]
    assert on_both(lambda x, row, number: x.cpu()) == [("device_copy", "inference", "x.cpu()")]
    assert on_both(lambda x, row, number: (x.sum(), torch.randn(4) * 2)) == [
        ("cpu_operator", "inference", "torch.randn(4)"),
        ("cpu_operator", "inference", "torch.randn(4) * 2"),
    ]
    assert on_both(lambda x, row, number: x * torch.tensor([1.0, 2, 3, 4]).to(x.device)) == [
        ("device_copy", "inference", "torch.tensor([1.0, 2, 3, 4]).to(x.device)")
    ]


def test_what_a_compiler_makes_on_the_gpu_is_no_blocker() -> None:
    assert on_both(lambda x, row, number: x + torch.arange(4).to(x.device)) == []
    assert on_both(lambda x, row, number: x * torch.tensor(2.0)) == []
    assert on_both(lambda x, row, number: x + torch.arange(4, device=x.device)) == []


def test_operators_of_one_expression_are_one_blocker() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        given = torch.empty(4, device="cuda"), torch.empty(4)
    found = verdict(lambda x, row: (x * 2, row.outer(row)), *given)
    assert [(what_blocks(one), one.sites[0].text) for one in found.blockers] == [
        ("row", "row.outer(row)"),
        ("aten.view.default and 1 more", "row.outer(row)"),
    ]


def test_a_second_gpu() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        given = torch.empty(4, device="cuda:0"), torch.empty(4, device="cuda:1")
    found = verdict(lambda x, y: (x * 2, y * 2), *given)
    assert [(one.kind, one.what) for one in found.blockers] == [("second_device", "cuda:0, cuda:1")]


def test_an_operator_that_its_author_marks() -> None:
    with torch.library._scoped_library("aotlens_tests", "FRAGMENT") as library:
        library.define("hosted(Tensor x) -> Tensor", tags=(torch.Tag.cudagraph_unsafe,))
        library.impl("hosted", lambda x: x.clone(), "CompositeExplicitAutograd")
        torch.library.register_fake("aotlens_tests::hosted", torch.empty_like, lib=library)
        found = verdict(lambda x: torch.ops.aotlens_tests.hosted(x) + 1, torch.randn(4))
    assert [blocker.kind for blocker in found.blockers] == ["unsupported_operator"]


def every_blocker(x: Tensor, cache: Tensor) -> Tensor:
    scale = x.sum().item()
    cache.add_(1)
    return (x[x > 0] * scale).sum() + (x * cache).sum()


def test_all_blockers_are_told_and_not_the_first_alone() -> None:
    found = verdict(every_blocker, grad(4), torch.zeros(4))
    assert (found.verdict, found.phases) == (
        "not_recorded",
        {"forward": "not_recorded", "backward": "in_parts"},
    )
    assert told(found) == [
        ("host_read", "forward", "x.sum().item()"),
        ("data_size", "forward", "x[x > 0]"),
        ("written_argument", "forward", "cache.add_(1)"),
        ("symbolic_size", "backward", ""),
        ("mask_write", "backward", "x[x > 0]"),
    ]
    findings = [(one.code, one.message.partition(": ")[0]) for one in diagnose(_target(found))]
    assert findings == [
        ("AL502", "`x.sum().item()` splits the CUDA graph of the forward"),
        ("AL503", "`cache` prevents CUDA graphs from recording the forward"),
        ("AL502", "`x[x > 0]` splits the CUDA graph of the forward and backward"),
    ]


def test_a_write_outside_of_the_graph_runs_beside_it() -> None:
    def kept(x: Tensor, total: Tensor) -> Tensor:
        total.add_(x)
        return x * total

    found = verdict(kept, grad(4), torch.zeros(4))
    assert (found.verdict, told(found)) == ("recorded", [("wrapper_step", "forward", "total.add_(x)")])
    assert diagnose(_target(found)) == ()


def test_an_argument_that_is_always_the_same_one_may_be_written_to() -> None:
    cache = torch.zeros(2, 4)
    torch._dynamo.mark_static_address(cache)
    assert verdict(cached, grad(4), cache).verdict == "recorded"


def test_symbolic_sizes_are_recorded_again_for_each() -> None:
    found = verdict(lambda x: x * 2, grad(4, 4), dynamic=True)
    assert (found.verdict, told(found)) == ("recorded", [("symbolic_size", "forward", "")])
    assert diagnose(_target(found)) == ()


def test_a_target_without_a_gpu_has_no_verdict() -> None:
    target = compile_direct(picked, (torch.randn(4),), {}, CompileOptions("eager")).target()
    assert (target.cuda_graph, target.diagnostics) == (None, ())


def test_text_and_json(golden: Golden) -> None:
    found = verdict(every_blocker, grad(4), torch.zeros(4))
    text = re.sub(r"\S+\.py:\d+", "code.py", to_text(cuda_graph_lines(found, 100)))
    golden("report/cuda_graphs.txt", text)
    report = Report("2.13.0", "3.11.2", "aotlens inspect x.py --gpu h100", (_target(found),))
    assert loads(dumps(report)) == report


def _target(found: CudaGraph) -> Target:
    return Target("f", "f", "direct", "training", None, cuda_graph=found)

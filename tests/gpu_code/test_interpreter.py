"""Code for a GPU run on a CPU: it agrees with eager, and a kernel that is broken on purpose is named."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.codegen.gpu import interpreter_backend as interpreted
from aotlens.codegen.gpu.interpreter.libdevice import find_function
from aotlens.codegen.gpu.interpreter.memory import Memory
from aotlens.codegen.gpu.interpreter.patches import replacements
from aotlens.codegen.gpu.interpreter.random_numbers import RandomNumbers
from aotlens.codegen.gpu.interpreter.records import RandomNumbersOfSeed
from aotlens.codegen.gpu.lowering import lower_to_run
from aotlens.options import CompileOptions, Interpreted
from aotlens.session.verify_targets import verify_targets
from aotlens.verify.gpu.gpu_code import GpuVerification, verify_gpu_code
from aotlens.verify.gpu.random_replay import law_of

OPTIONS = CompileOptions(Interpreted(), gpu="sm_90")


def verified(fn: Callable[..., Any], *args: Any, options: CompileOptions = OPTIONS) -> GpuVerification:
    return verify_gpu_code(options, fn, args, {})


def leaf(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*sizes, dtype=dtype, requires_grad=True)


def norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, (300,))


def rewriting(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Have the kernels' sources say something else than Inductor wrote."""

    def lowered(parts: Any, config: Any) -> Iterator[Any]:
        for graph in lower_to_run(parts, config):
            source = graph.lowered.source
            assert graph.lowered.phase == "backward" or old in source
            yield replace(graph, lowered=replace(graph.lowered, source=source.replace(old, new)))

    monkeypatch.setattr(interpreted, "lower_to_run", lowered)


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("r0_mask = r0_index < r0_numel", "r0_mask = r0_index < 512"),
        ("1e-05", "1e-01"),
        ("r0_index = tl.arange(0, R0_BLOCK)", "r0_index = 1 + tl.arange(0, R0_BLOCK)"),
    ],
    ids=["mask of the reduction", "epsilon", "shifted index"],
)
def test_a_kernel_with_other_numbers_is_named(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    rewriting(monkeypatch, old, new)
    found = verified(norm, torch.randn(64, 300))
    assert not found.ok
    assert "the inference kernel `triton_per_fused_add_mul_rsqrt_sub_var_mean_0`" in found.summary()
    assert f"{__file__}:{norm.__code__.co_firstlineno + 1}" in found.summary()


@pytest.mark.rotates
def test_an_access_outside_of_the_arguments_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rewriting(monkeypatch, "xmask = xindex < xnumel", "xmask = xindex < 4096")
    found = verified(torch.exp, torch.randn(100))
    assert not found.ok
    text = found.summary()
    assert "the inference kernel `triton_poi_fused_exp_0`" in text
    assert "reaches outside of its arguments' memory, at `tmp0 = tl.load(in_ptr0 + (x0), xmask)`" in text


def test_a_kernel_that_cannot_be_interpreted_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def two(x: Tensor, w: Tensor) -> Tensor:
        return (x.sin() @ w).exp()

    rewriting(monkeypatch, "tl_math.sin(", "libdevice.norm4d(tmp0, tmp0, tmp0, ")
    found = verified(two, torch.randn(8, 8), torch.randn(8, 8))
    assert found.ok, found.summary()
    assert found.kernels == (("inference", 1),)
    (skipped,) = found.skipped
    assert "`triton_poi_fused_sin_0`" in skipped
    assert "could not be interpreted" in skipped
    assert "the device library's `__nv_norm4df` has no CPU counterpart" in skipped


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.second = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.second(functional.dropout(self.norm(self.first(x)), 0.25).relu())
        return hidden


@pytest.mark.rotates
def test_a_module_that_drops_out_and_keeps_statistics() -> None:
    found = verified(Mlp(), torch.randn(8, 16))
    assert found.ok, found.summary()
    assert (found.comparison.gradients, found.comparison.mutated) == (6, 3)
    (law,) = found.laws
    assert (law.count, law.text) == (256, "uniform on [0, 1)")


@pytest.mark.rotates
def test_masks_that_forward_and_backward_do_not_share_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(x: Tensor) -> Tensor:
        return functional.dropout(x * 2, 0.5)

    def lowered(parts: Any, config: Any) -> Iterator[Any]:
        for graph in lower_to_run(parts, config):
            source = graph.lowered.source
            if graph.lowered.phase == "backward":
                source = source.replace(
                    "tl.load(in_ptr1 + (x0), xmask)", "(1 - tl.load(in_ptr1 + (x0), xmask))"
                )
            yield replace(graph, lowered=replace(graph.lowered, source=source))

    assert verified(drop, leaf(64)).ok
    monkeypatch.setattr(interpreted, "lower_to_run", lowered)
    assert [one.kind for one in verified(drop, leaf(64)).comparison.differences] == ["gradient"]


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True) * 2


@pytest.mark.rotates
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_and_its_gradient(dtype: torch.dtype) -> None:
    found = verified(attend, *(leaf(1, 2, 20, 16, dtype=dtype) for _ in range(3)))
    assert found.ok, found.summary()
    assert found.comparison.gradients == 3


@pytest.mark.rotates
def test_scans_sorts_and_casts() -> None:
    def several(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        low = (x * 2).to(torch.float8_e4m3fn).float()
        ranked = torch.sort(x, -1).values.cummax(-1).values
        return low, ranked, x.logcumsumexp(-1), (y @ y.T).softmax(-1), x.std(-1)

    found = verified(several, torch.randn(8, 16), torch.randn(8, 16, dtype=torch.bfloat16))
    assert found.ok, found.summary()


def test_the_kernels_own_block_sizes_give_the_same() -> None:
    own = CompileOptions(Interpreted(own_blocks=True), gpu="sm_90")
    found = verified(lambda x: (x.sin() * 2).sum(-1), leaf(40, 70), options=own)
    assert found.ok, found.summary()


def test_an_index_out_of_range_fails_as_in_eager() -> None:
    def look(table: Tensor, index: Tensor) -> Tensor:
        return table[index] * 2

    found = verified(look, torch.randn(10, 4), torch.tensor([1, 12]))
    assert "index out of bounds" in found.summary()


def test_every_replaced_name_is_known_and_has_its_reason() -> None:
    """A release of torch or Triton that renames one fails here, by name; a CPU build lacks the raw stream."""
    rows = replacements(Memory(), RandomNumbers())
    assert all(row.reason for row in rows)
    missing = [row.name for row in rows if not hasattr(row.owner, row.name)]
    assert [name for name in missing if name != "_cuda_getCurrentRawStream"] == []


def test_the_device_library_is_known_by_its_symbols() -> None:
    assert [
        find_function(symbol) is not None for symbol in ("__nv_sinf", "__nv_fsqrt_rn", "__nv_norm3d")
    ] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("kind", "values", "deviates"),
    [
        ("rand", np.random.default_rng(0).random(4000), False),
        ("rand", np.random.default_rng(0).random(4000) ** 2, True),
        ("rand", np.array([0.5, 1.5]), True),
        ("randn", np.random.default_rng(0).normal(size=4000), False),
        ("randn", np.random.default_rng(0).normal(0.5, 1, 4000), True),
    ],
)
def test_numbers_that_do_not_follow_their_law(kind: Any, values: Any, deviates: bool) -> None:
    drawn = RandomNumbersOfSeed(
        kind, torch.arange(len(values)), torch.from_numpy(values), repeats=0, agrees=True
    )
    assert bool(law_of(drawn).deviates) is deviates


SCRIPT = """\
import torch


# aotlens: example f32[4, 6]
def scaled(x):
    return (x * 2).softmax(-1)


layer = torch.nn.Linear(6, 2).cuda()
compiled = torch.compile(layer)
losses = [compiled(torch.randn(3, 6, device="cuda")).sum() for _ in range(2)]
"""


@pytest.mark.rotates
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there, and none is pretended")
def test_the_targets_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = verify_targets(str(script), None, [], OPTIONS)
    assert (found.failures, found.exit_code(allow_unverified=False)) == ((), 0)
    texts = {name: verdict.text if verdict else "" for name, verdict in found.verdicts}
    assert sorted(texts) == ["Linear", "scaled"]
    assert "1 value, 2 gradients" in texts["Linear"]
    assert "inference kernel" in texts["scaled"]

"""Behind Dynamo a call that shares memory in a new way never runs with the code of another."""

import torch
from torch import Tensor

from aotlens.dynamo.recompilations import closest_entry
from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions
from aotlens.torch_api.dynamo.events import DynamoRecompile, GuardMiss


def shifted(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y * 2


def test_arguments_that_overlap_later_are_compiled_anew() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(shifted, backend=dynamo_backend(CompileOptions(backend="eager")))
    memory = torch.zeros(8)
    assert torch.equal(compiled(memory[:4], memory[4:]), torch.zeros(4))
    assert torch.equal(compiled(memory[:4], memory[1:5]), torch.tensor([4.0, 4.0, 4.0, 0.0]))
    assert torch.equal(memory, torch.tensor([2.0] * 4 + [0.0] * 4))
    assert torch.equal(compiled(memory[4:], memory[:4]), torch.full((4,), 4.0))
    assert torch.equal(compiled(memory, memory), torch.tensor([6.0] * 4 + [4.0] * 4))


def test_arguments_that_were_apart_may_lie_on_one_storage_but_not_overlap() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(shifted, backend=dynamo_backend(CompileOptions(backend="eager")))
    memory = torch.zeros(8)
    assert torch.equal(compiled(torch.zeros(4), torch.ones(4)), torch.full((4,), 2.0))
    assert torch.equal(compiled(memory[:4], memory[4:]), torch.zeros(4))
    assert torch.equal(compiled(memory[:4], memory[1:5]), torch.tensor([4.0, 4.0, 4.0, 0.0]))


def test_an_index_that_is_a_tensor_is_guarded_by_its_value() -> None:
    torch._dynamo.reset()
    cache = torch.zeros(2, 8, 3)

    def write(new: Tensor, position: Tensor) -> Tensor:
        cache[:, position] = new
        return cache[:, position] + cache.sum()

    compiled = torch.compile(write, backend=dynamo_backend(CompileOptions(backend="eager")))
    for at in (0, 3, 4, 7):
        expected = cache.clone()
        expected[:, at] = at
        found = compiled(torch.full((2, 3), float(at)), torch.tensor(at))
        assert torch.equal(cache, expected)
        assert torch.equal(found, expected[:, at] + expected.sum())


def test_the_closest_entry_is_that_of_the_last_check_whatever_the_tensor_is_called() -> None:
    """The tensor of the first is called after a later check."""
    reasons = (
        "tensor 'size' dtype mismatch. expected Float, actual Double",
        "tensor 'x' rank mismatch. expected 2, actual 3",
    )
    misses = tuple(GuardMiss(f"0/{index}", reason, 3, (), {}) for index, reason in enumerate(reasons))
    recompile = DynamoRecompile(shifted.__code__, "0/2", misses, {}, ())
    assert closest_entry(recompile) is misses[1]

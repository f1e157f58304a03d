"""Behind Dynamo a call that shares memory in a new way never runs with the code of another."""

import pytest
import torch
from torch import Tensor

from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions


def shifted(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return y * 2


def test_arguments_that_overlap_later_are_refused_by_name() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(shifted, backend=dynamo_backend(CompileOptions(backend="eager")))
    memory = torch.zeros(8)
    assert torch.equal(compiled(memory[:4], memory[4:]), torch.zeros(4))
    with pytest.raises(Exception, match="synthetic base"):
        compiled(memory[:4], memory[1:5])
    assert torch.equal(memory, torch.tensor([1.0] * 4 + [0.0] * 4))
    assert torch.equal(compiled(memory[4:], memory[:4]), torch.full((4,), 2.0))


def test_arguments_that_were_apart_may_lie_on_one_storage_but_not_overlap() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(shifted, backend=dynamo_backend(CompileOptions(backend="eager")))
    memory = torch.zeros(8)
    assert torch.equal(compiled(torch.zeros(4), torch.ones(4)), torch.full((4,), 2.0))
    assert torch.equal(compiled(memory[:4], memory[4:]), torch.zeros(4))
    with pytest.raises(Exception, match=r"synthetic base|`x`, which did not share memory with `y`"):
        compiled(memory[:4], memory[1:5])

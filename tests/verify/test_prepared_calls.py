"""Copies of arguments keep every relation that a program can see."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from aotlens.verify.tensors.prepared_call import PreparedCall, copies, prepare_call
from tests.programs.program import leaf, plain, tape


def anything(*args: Any, **kwargs: Any) -> None:
    """Stands for a callable that is never called."""


def copied(*args: Any, fn: Callable[..., Any] = anything) -> PreparedCall:
    (made,) = copies(prepare_call(fn, args), 1)
    return made


def test_duplicates_stay_one_object() -> None:
    x = plain(3)
    made = copied(x, {"again": x})
    assert made.args[0] is made.args[1]["again"]
    assert made.args[0] is not x


def test_shared_storage_stays_shared() -> None:
    base = plain(4, 4)
    made = copied(base[1], base.t(), base.detach())
    made.args[0].fill_(7)
    assert made.args[1][:, 1].tolist() == [7.0] * 4
    assert made.args[2][1].tolist() == [7.0] * 4
    assert not (base == 7).any()


def test_views_keep_their_base() -> None:
    base = tape(4, 4)
    made = copied(base, base[1])
    assert made.args[1]._base is made.args[0]
    assert made.args[1].stride() == (1,)
    assert made.args[1].storage_offset() == 4


def test_leaf_and_non_leaf_stay_apart() -> None:
    made = copied(leaf(3), tape(3), plain(3), nn.Parameter(plain(3)))
    assert [arg.is_leaf for arg in made.args] == [True, False, True, True]
    assert [arg.requires_grad for arg in made.args] == [True, True, False, True]
    assert isinstance(made.args[3], nn.Parameter)


def test_gradient_of_a_non_leaf_ends_at_its_hidden_leaf() -> None:
    made = copied(tape(3))
    (gradient,) = torch.autograd.grad(made.args[0].sum() * 5, [item.tensor for item in made.leaves])
    assert gradient.tolist() == [5.0, 5.0, 5.0]
    assert [item.name for item in made.leaves] == ["args[0]"]


def test_view_taken_under_no_grad() -> None:
    base = leaf(4)
    with torch.no_grad():
        part = base[:2]
    made = copied(base, part)
    assert made.args[1].grad_fn is None
    assert made.args[1].requires_grad == part.requires_grad


def test_strided_and_expanded() -> None:
    made = copied(plain(6, 4)[::2, 1:], plain(1, 4).expand(3, 4))
    assert made.args[0].stride() == (8, 1)
    assert made.args[0].storage_offset() == 1
    assert made.args[1].stride() == (0, 1)


def test_complex_bits() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    made = copied(z.conj(), z.conj().imag)
    assert made.args[0].is_conj()
    assert made.args[1].is_neg()


def test_inference_tensor() -> None:
    with torch.inference_mode():
        x = torch.ones(3)
    assert copied(x).args[0].is_inference()


class Shared(nn.Module):
    def __init__(self, outer: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))
        self.alias = self.weight
        self.seen = outer


def test_modules_keep_ties_and_plain_tensors() -> None:
    x = plain(3)
    module = Shared(x)
    made = copied(x, fn=module)
    assert isinstance(made.fn, Shared)
    assert made.fn is not module
    assert made.fn.weight is made.fn.alias
    assert made.fn.seen is made.args[0]


def test_names_are_the_users() -> None:
    def step(batch: dict[str, Any], *rest: Tensor, scale: Tensor) -> None: ...

    called = prepare_call(step, ({"ids": plain(1), "m": [plain(1)]}, plain(1)), {"scale": plain(1)})
    assert [item.name for item in called.inputs] == ['batch["ids"]', 'batch["m"][0]', "rest[0]", "scale"]
    assert [item.name for item in prepare_call(nn.Linear(2, 2), (plain(1, 2),)).inputs] == [
        "weight",
        "bias",
        "input",
    ]

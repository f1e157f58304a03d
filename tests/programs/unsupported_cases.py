"""What cannot be traced, or belongs to later work: refused by name, or as eager, never wrong in silence."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.programs.program import Cases, leaf, plain, tape
from tests.programs.python.functions import InputAndProduct

cases = Cases("unsupported_cases")


@cases(lambda: (plain(3),), later="numpy")
def through_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() * 2)


@cases(lambda: (plain(3),), later="raises")
def raises(x: Tensor) -> Tensor:
    raise ValueError("no such thing")


@cases(lambda: (plain(3), plain(4)), later="raises")
def shapes_do_not_fit(x: Tensor, y: Tensor) -> Tensor:
    return x + y


@cases(lambda: (plain(3).to_sparse(),), later="sparse tensor")
def sparse_argument(x: Tensor) -> Tensor:
    return x.to_dense() * 2


@cases(lambda: (leaf(3),))
def tensor_hook(x: Tensor) -> Tensor:
    hidden = x * 2
    hidden.register_hook(lambda gradient: gradient * 3)
    return hidden.sin()


@cases(lambda: (leaf(3),))
def backward_inside(x: Tensor) -> Any:
    fresh = x.detach().requires_grad_()
    (fresh * fresh).sum().backward()
    return fresh.grad


@cases(lambda: (leaf(3),), unsupported="retain-grad")
def retain_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    hidden.retain_grad()
    return hidden, hidden.sin()


@cases(lambda: (torch.nested.nested_tensor([plain(2), plain(3)], layout=torch.jagged),), later="subclass")
def nested_tensor(x: Tensor) -> Tensor:
    return x * 2


@cases(
    lambda: (torch.nested.nested_tensor([plain(2), plain(3)], layout=torch.jagged, requires_grad=True),),
    unsupported="view-into-subclass",
)
def values_of_a_jagged_result(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    return hidden, hidden.values()


@cases(lambda: (plain(3).to("meta"),), later="meta tensor")
def meta_tensor(x: Tensor) -> Tensor:
    return x * 2


@cases(lambda: (leaf(3),), unsupported="hook-on-input")
def hook_on_a_returned_input_that_is_written_to(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.mul_(2)
    x.register_hook(lambda gradient: gradient * 3)
    return x


@cases(lambda: (plain(3),), unsupported="deepcopy")
def copied_with_a_layer_made_inside(x: Tensor) -> Tensor:
    layers = [nn.Linear(3, 3)]
    layers += copy.deepcopy(layers)
    return layers[1](layers[0](x))


STALE = "a view with a gradient, taken before it or the tensor under it got other sizes"


@cases(lambda: (leaf(4, 4) * 2,), unsupported="invalid-view")
def write_through_a_view_from_before_a_transposition(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    x.t_()
    row.mul_(3)
    return x * 1, row


@cases(lambda: (leaf(4, 4) * 2,), unsupported="invalid-view")
def view_from_before_a_transposition_read(x: Tensor) -> Tensor:
    row = x[0]
    x.t_()
    return row * 2


@cases(lambda: (leaf(3, 4) * 2,), unsupported="invalid-view")
def view_that_cannot_be_taken_again(x: Tensor) -> tuple[Tensor, Tensor]:
    flat = x.view(12)
    x.unsqueeze_(0)
    flat.add_(1)
    x.transpose_(1, 2)
    return x, flat


@cases(lambda: (leaf(4, 4),), unsupported="invalid-view")
def write_to_a_view_that_was_transposed_itself(x: Tensor) -> Tensor:
    hidden = x * 2
    corner = hidden[:2, :2]
    corner.t_()
    corner.mul_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    return hidden


@cases(lambda: (leaf(3, 4) * 1,), unsupported="operand-written")
def write_to_an_operand_with_a_gradient(x: Tensor) -> Tensor:
    def if_positive(x: Tensor) -> Tensor:
        x.add_(1)
        return x.sin()

    return torch.cond(x.sum() > 0, if_positive, lambda x: x.cos(), (x,))


@cases(lambda: (leaf(2, 4) * 2,))
def view_from_before_an_unsqueeze(x: Tensor) -> tuple[Tensor, Tensor]:
    flat = x.view(8)
    x.unsqueeze_(0)
    flat.mul_(3)
    return flat * 1, x


@cases(lambda: (leaf(3) * 1,), unsupported="grad-of-input")
def backward_inside_through_a_history_outside(x: Tensor) -> Tensor:
    (x * x).sum().backward()
    return x.detach() * 1


@cases(lambda: (plain(3, 4),), later="raises")
def view_that_no_strides_give(x: Tensor) -> Tensor:
    return x.t().view(-1)


@cases(lambda: (plain(3, 4),))
def view_that_no_strides_give_caught(x: Tensor) -> Tensor:
    try:
        return x.t().view(-1)
    except RuntimeError:
        return x.t().reshape(-1)


@cases(lambda: (plain(3, 4),), unsupported="out-resizes-view")
def view_that_gets_other_sizes(x: Tensor) -> Tensor:
    rows = torch.zeros(8)
    torch.sin(x, out=rows[:2])
    return rows


@cases(lambda: (plain(3, 4),), unsupported="resize-of-viewed-storage")
def intermediate_that_grows_under_a_view(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.zeros(8)
    view = rows[2:]
    torch.sin(x, out=rows)
    return rows, view


@cases(lambda: (leaf(3, 4) * 1,), unsupported="requires-grad-after-detach")
def input_used_and_made_a_leaf_in_place(x: Tensor) -> Tensor:
    before = x + 1
    x.detach_()
    x.requires_grad_()
    return x * 2 + before


RECURRENT = nn.LSTM(3, 4, batch_first=True)


@cases(lambda: (plain(2, 5, 3),), unsupported="tensor-as-size")
def packed_sequences(x: Tensor) -> Tensor:
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3], batch_first=True)
    return RECURRENT(packed)[0].data


@cases(lambda: (plain(4, 4),), unsupported="data-of-other-dtype")
def data_of_another_dtype(x: Tensor) -> Tensor:
    x.data = x.data.double()
    return x * 2


@cases(lambda: (plain(4, 4),), unsupported="data-of-inference-tensor")
def data_made_under_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        x.data = x.data * 2
    return x * 2


@cases(lambda: (tape(4, 4),), unsupported="write-to-swapped-view")
def data_of_a_view_assigned_and_written_with_a_gradient(x: Tensor) -> Tensor:
    row = x[0]
    row.data = row.data * 2
    row += row
    return x


@cases(lambda: (tape(4, 4)[1:],), unsupported="foreach-writes-twice")
def foreach_twice_on_an_argument_that_is_a_view(x: Tensor) -> Tensor:
    torch._foreach_mul_([x, x], 2.0)
    return x


@cases(lambda: (leaf(4, 4),), unsupported="hook-on-view")
def hook_on_a_view_under_a_returned_one(x: Tensor) -> tuple[Tensor, Tensor]:
    view = (x * 2).t()
    view.register_hook(lambda gradient: gradient * 3)
    return view[1:], view[0]


@cases(lambda: (plain(4, 4),), unsupported="reinterpreted-view-of-changed-leaf")
def bits_of_an_input_that_is_turned_after(x: Tensor) -> Tensor:
    bits = x.view(torch.int32)
    x.t_()
    return bits


@cases(lambda: (leaf(4, 4),), unsupported="hook-on-view")
def hook_on_a_returned_view(x: Tensor) -> Tensor:
    view = x.t()
    view.register_hook(lambda gradient: gradient * 3)
    return view


def _memory_and_a_leaf_in_it() -> tuple[Tensor, Tensor]:
    memory = plain(4, 4)
    return memory, memory[:2].requires_grad_()


@cases(_memory_and_a_leaf_in_it, unsupported="view-before-detach-and-write")
def view_of_a_leaf_in_memory_that_is_written(memory: Tensor, part: Tensor) -> Tensor:
    view = part[1:]
    with torch.no_grad():
        memory[1:].mul_(2)
    return view * 2


@cases(lambda: (leaf(3, 4), plain(3, 4)), unsupported="write-after-checkpoint")
def written_to_after_a_checkpointed_function_read_it(x: Tensor, factor: Tensor) -> Tensor:
    y = checkpoint(lambda x: x.sin() * factor, x, use_reentrant=False)
    factor.mul_(2)
    return y


@cases(lambda: (leaf(3, 4),), unsupported="write-after-checkpoint")
def data_assigned_after_a_checkpointed_function_read_it(x: Tensor) -> Tensor:
    y = checkpoint(torch.sin, x, use_reentrant=False)
    x.data = y.detach() * 2
    return y


@cases(lambda: (leaf(3, 4),), unsupported="write-in-nested-checkpoint")
def written_to_after_an_inner_checkpoint(x: Tensor) -> Tensor:
    def outer(x: Tensor) -> Tensor:
        y = x.sin()
        z = checkpoint(torch.exp, y, use_reentrant=False)
        y.mul_(2)
        return z * y

    return checkpoint(outer, x, use_reentrant=False)


@cases(lambda: (leaf(3, 4),), unsupported="custom-view-then-write")
def view_of_several_results_written_to_and_detached_under_it(x: Tensor) -> Tensor:
    whole, _ = InputAndProduct.apply(x)
    with torch.no_grad():
        whole.mul_(2)
    x.requires_grad_(False)
    return whole


@cases(lambda: (leaf(32),), unsupported="out-resizes-under-no-grad")
def history_given_other_sizes_by_out(x: Tensor) -> Tensor:
    hidden = x * 2
    with torch.no_grad():
        torch.mul(torch.ones(2, 4, 4), 2, out=hidden)
    return hidden


def _beside_another_leaf() -> tuple[Tensor, Tensor]:
    whole = leaf(4, 4)
    return whole, whole[2:].detach().requires_grad_()


@cases(_beside_another_leaf, unsupported="hook-on-input")
def hook_on_an_overlapping_input_of_which_a_view_is_returned(x: Tensor, y: Tensor) -> Tensor:
    x.register_hook(lambda gradient: gradient * 3)
    view = x.t()
    view.data.mul_(2)
    return view


@cases(lambda: (plain(4, 3),), "dynamo", unsupported="data-dependent-size")
def batch_norm_averaged_over_all_batches() -> nn.Module:
    return nn.BatchNorm1d(3, momentum=None)

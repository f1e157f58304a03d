"""Tensors that get another storage, or a storage of another size: `set_`, assignments to `.data`."""

from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("storage_swaps")


@cases(lambda: (plain(3, 4), plain(2, 2)), "dynamo", "dynamic")
def set_to_other_input(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(y)  # type: ignore[call-overload]
    return x * 2


@cases(lambda: (leaf(3, 4), plain(2, 2)))
def set_parameter_to_other(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(y)  # type: ignore[call-overload]
    return x * 2


@cases(lambda: (plain(3, 4),), "dynamo")
def set_to_slice_of_intermediate(x: Tensor) -> Tensor:
    made = torch.ones(5, 4)
    with torch.no_grad():
        x.set_(made[1:4])  # type: ignore[call-overload]
    x.mul_(2)
    return made + 1


@cases(lambda: (plain(3, 4), plain(2, 2)))
def set_then_source_is_mutated(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(y)  # type: ignore[call-overload]
        y.mul_(2)
    return x * 2


@cases(lambda: (plain(3, 4),))
def set_to_itself(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(x.detach())  # type: ignore[call-overload]
    return x * 2


@cases(lambda: (plain(3, 4), plain(3, 4)), "dynamo", "dynamic")
def data_assigned(x: Tensor, y: Tensor) -> Tensor:
    x.data = y * 2
    return x + 1


@cases(lambda: (plain(3, 4), plain(2, 4)), "dynamo")
def two_sets_that_cancel_out(x: Tensor, y: Tensor) -> Tensor:
    keep = x.detach()
    with torch.no_grad():
        x.set_(y)  # type: ignore[call-overload]
        x.set_(keep)  # type: ignore[call-overload]
    return x * 2


@cases(lambda: (plain(3, 4),))
def storage_enlarged_and_made_to_require_grad(x: Tensor) -> Tensor:
    out = x * 2
    x.untyped_storage().resize_(96)
    x.requires_grad_()
    return out


@cases(lambda: (plain(3, 4), leaf(3, 4)), "dynamo", "dynamic")
def storage_resized_to_zero_and_back(x: Tensor, y: Tensor) -> Tensor:
    out = x * y
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(x.numel() * 4)
    with torch.no_grad():
        x.copy_(y)
    return out.detach() + x * y


@cases(lambda: (plain(3, 4), plain(3, 4)), "dynamic")
def storages_swapped(x: Tensor, y: Tensor) -> Tensor:
    keep = x.detach()
    with torch.no_grad():
        x.set_(y)  # type: ignore[call-overload]
        y.set_(keep)  # type: ignore[call-overload]
    return x * 2 + y


@cases(lambda: (plain(3, 4),))
def set_then_view_returned(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    before = x.view(-1)
    made = torch.ones(3, 4)
    with torch.no_grad():
        x.set_(made)  # type: ignore[call-overload]
    return x[0], made, before


@cases(lambda: (plain(3, 4),))
def mutated_then_set(x: Tensor) -> Tensor:
    x.mul_(2)
    with torch.no_grad():
        x.set_(torch.zeros(2))  # type: ignore[call-overload]
    return x + 1


@cases(lambda: (plain(3, 4), leaf(2)))
def set_then_mutated_with_gradient(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(torch.ones(2))  # type: ignore[call-overload]
    x.mul_(y)
    return x * 2


@cases(lambda: (leaf(3, 4),), "dynamic")
def data_of_a_leaf_assigned(x: Tensor) -> Tensor:
    out = x * x.sin()
    x.data = x.data * 2
    return out


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def data_of_intermediate_assigned(x: Tensor, y: Tensor) -> Tensor:
    made = x * 2
    made.data = y
    return made.sin() * x


@cases(lambda: (plain(3, 4), plain(12)))
def set_to_storage_of_other(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(y.untyped_storage(), 2, (2, 3), (3, 1))
    return x + 1


@cases(lambda: (plain(3, 4), plain(12)))
def set_to_the_storage_of_a_view_of_other(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(y[2:].untyped_storage(), 1, (5,))  # type: ignore[call-overload]
        y.add_(1)
    return x + 1


@cases(lambda: (leaf(3, 4), plain(3, 4)), "dynamo", "dynamic", unsupported="output-with-own-grad-fn")
def data_of_intermediate_assigned_and_returned(x: Tensor, y: Tensor) -> Tensor:
    made = x * 2
    made.data = y
    return made


@cases(lambda: (tape(3, 4), plain(3, 4)), later="derivative for set_ is not implemented")
def set_with_a_gradient(x: Tensor, y: Tensor) -> Tensor:
    made = x * 2
    made.set_(y)  # type: ignore[call-overload]
    return made


def _with_a_part() -> tuple[Tensor, Tensor]:
    made = tape(4, 4)
    return made[1:], made


def _with_its_transpose() -> tuple[Tensor, Tensor]:
    made = plain(4, 4)
    return made, made.t()


@cases(_with_its_transpose, "dynamo")
def data_of_an_overlapping_input_assigned_beside_a_write(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y.data = y.data * 2
    x.mul_(3)
    return x, y


@cases(lambda: (leaf(2, 4), *_with_a_part()))
def data_of_one_of_several_on_its_storage(x: Tensor, part: Tensor, whole: Tensor) -> Tensor:
    x.data = whole.data
    return part * 2


@cases(_with_a_part, later="storage mutation of `part`")
def data_assigned_and_back_beside_a_write(part: Tensor, whole: Tensor) -> Tensor:
    row = part.unsqueeze(0)
    part.data = part.data * 2
    whole[...] = whole * 2
    with torch.no_grad():
        part.data = whole.data[1:]
    return row


@cases(lambda: (plain(3, 4),))
def view_set_to_what_it_is_a_view_of(x: Tensor) -> Any:
    view = x.unsqueeze(0)
    view.set_(x)  # type: ignore[call-overload]  # torch takes a tensor too
    return view, x


@cases(_with_its_transpose, "dynamo")
def views_of_overlapping_inputs_before_and_after_one_has_other_memory(x: Tensor, y: Tensor) -> Any:
    before = y[1:]
    y.data = y.data * 2
    x.mul_(3)
    y.mul_(5)
    return before, y[:2], x[0]


@cases(lambda: (*_with_its_transpose(), plain(4, 4)), "dynamo")
def overlapping_input_set_to_another_beside_a_write(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    x.mul_(3)
    y.set_(z)  # type: ignore[call-overload]
    z.mul_(2)
    return x + y


@cases(_with_its_transpose)
def overlapping_input_set_and_set_back(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(3)
    y.set_(torch.ones(2))  # type: ignore[call-overload]
    with torch.no_grad():
        y.set_(x)  # type: ignore[call-overload]
    return x + 1, y + 1


def _overlapping_parts() -> tuple[Tensor, Tensor]:
    whole = plain(16)
    return whole[:8], whole[4:].detach()


@cases(_overlapping_parts, "dynamo")
def data_of_overlapping_inputs_swapped(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.data, y.data = y.data, x.data
    y.mul_(3)
    return x[1:], y[1:]


@cases(_overlapping_parts)
def data_of_one_part_taken_from_the_other(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x.mul_(3)
    x.data = y.data[1:]
    y.mul_(2)
    return x[1:], y[1:], y


@cases(lambda: (*_overlapping_parts(), leaf(12)), "dynamo")
def overlapping_part_with_other_memory_written_with_a_gradient(x: Tensor, y: Tensor, z: Tensor) -> Any:
    y.data = y.data * 2
    y.mul_(z)
    x.mul_(3)
    return x[1:], y.sum()


@cases(lambda: (*_overlapping_parts(), leaf(12)), unsupported="recorded-write-to-overlapping-input")
def detached_part_written_with_a_gradient_beside_a_write(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    y.mul_(z)
    x.mul_(3)
    return y.sum()


@cases(lambda: (plain(16), plain(16)), "dynamo")
def memory_given_back_and_made_again_under_a_view(whole: Tensor, new: Tensor) -> Tensor:
    part = whole[:8].view(4, 2)
    out = part * 2
    whole.untyped_storage().resize_(0)
    whole.untyped_storage().resize_(whole.numel() * 4)
    whole.copy_(new)
    return out + part


@cases(lambda: (leaf(3, 4), plain(3, 4)), "dynamo", "dynamic", unsupported="output-with-own-grad-fn")
def result_in_the_memory_of_an_input_that_is_written_to(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    made = x.sin()
    made.data = y
    y.mul_(2)
    return made, made[1:]


@cases(lambda: (leaf(4, 4), plain(4, 4)), "dynamo", unsupported="output-with-own-grad-fn")
def result_in_the_memory_of_an_input_written_with_a_gradient(x: Tensor, y: Tensor) -> Tensor:
    made = x.sin()
    made.data = y.t()
    made.mul_(x)
    return made


@cases(lambda: (leaf(4, 4), plain(4, 4)), unsupported="output-with-own-grad-fn")
def result_in_the_memory_of_another_result(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    made, other = x * 2, y * 3
    made.data = other
    return made, other


@cases(lambda: (leaf(3, 4), plain(2, 2)), unsupported="storage-of-other-sizes")
def result_in_memory_of_other_sizes(x: Tensor, y: Tensor) -> Tensor:
    made = x * 2
    made.data = y
    return made


@cases(lambda: (plain(3, 4),), "dynamo")
def set_to_a_value_that_gets_other_sizes_after(x: Tensor) -> Tensor:
    made = x.sin()
    x.set_(made.t())  # type: ignore[call-overload]
    made.unsqueeze_(0)
    return made


@cases(lambda: (plain(3, 4),), "dynamo")
def data_of_a_value_that_got_other_sizes(x: Tensor) -> Tensor:
    made = x.sin()
    made.unsqueeze_(0)
    x.data = made
    made.mul_(2)
    return made


@cases(lambda: (leaf(4, 4),), "dynamo")
def leaf_set_to_what_is_computed_of_it(x: Tensor) -> Tensor:
    made = x + x
    with torch.no_grad():
        x.set_(made)  # type: ignore[call-overload]
    return made


@cases(lambda: (leaf(4, 4),))
def leaf_set_and_looked_at(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    with torch.no_grad():
        x.set_(made)  # type: ignore[call-overload]
    return made, x.t()


@cases(lambda: (leaf(4, 4),))
def leaf_set_to_itself_after_a_use(x: Tensor) -> Tensor:
    made = x.exp()
    with torch.no_grad():
        x.set_(x)  # type: ignore[call-overload]
    return made


@cases(lambda: (leaf(4, 4),))
def leaf_set_before_its_use(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.set_(x * 2)  # type: ignore[call-overload]
    return x * 3


@cases(lambda: (leaf(4, 4),), unsupported="set-between-uses-of-leaf")
def leaf_set_between_two_uses(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    with torch.no_grad():
        x.set_(made)  # type: ignore[call-overload]
    return made, x * 3


@cases(lambda: (leaf(4), plain(4, 4)), unsupported="data-of-other-sizes-after-read")
def data_of_other_sizes_after_a_use(x: Tensor, y: Tensor) -> Tensor:
    view = x.t()
    x.data = y
    return view.t()


@cases(lambda: (leaf(4), plain(4, 4)))
def data_of_other_sizes_before_a_view(x: Tensor, y: Tensor) -> Tensor:
    x.data = y
    return x.t()


@cases(lambda: (leaf(4, 4), plain(4, 4)), unsupported="data-of-other-sizes-after-read")
def data_of_other_sizes_after_a_product(x: Tensor, y: Tensor) -> Tensor:
    product = x * y
    y.data = torch.ones(2)
    return product


@cases(lambda: (leaf(4, 4), leaf(4, 4)), unsupported="failing-backward-after-storage-swap")
def data_of_other_sizes_of_a_saved_intermediate(x: Tensor, y: Tensor) -> Tensor:
    hidden = x.sin()
    product = hidden * y
    hidden.data = torch.ones(2)
    return product


def leaf_and_its_part() -> tuple[Tensor, Tensor]:
    whole = leaf(4, 4)
    return whole, whole[1:]


@cases(leaf_and_its_part)
def leaf_set_to_its_part(whole: Tensor, part: Tensor) -> Tensor:
    with torch.no_grad():
        whole.set_(part)  # type: ignore[call-overload]
    return whole * 3


@cases(leaf_and_its_part)
def leaf_set_to_its_part_and_both_read(whole: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        whole.set_(part)  # type: ignore[call-overload]
    return whole * 3, part.sin()

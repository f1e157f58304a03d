"""Changes of the metadata of inputs: sizes and strides, requires_grad."""

import torch
from torch import Tensor

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("metadata")


@cases(lambda: (plain(3, 4),), "dynamo", "dynamic")
def transpose_in_place(x: Tensor) -> Tensor:
    x.transpose_(0, 1)
    return x * 2


@cases(lambda: (plain(3, 4),), "dynamic")
def t_in_place(x: Tensor) -> None:
    x.t_()


@cases(lambda: (tape(3, 4),), "dynamic")
def t_in_place_on_non_leaf(x: Tensor) -> Tensor:
    x.t_()
    return x * 2


@cases(lambda: (plain(3, 4),), "dynamic")
def unsqueeze_in_place(x: Tensor) -> Tensor:
    x.unsqueeze_(1)
    return x + 1


@cases(lambda: (plain(3, 1, 4),))
def squeeze_in_place(x: Tensor) -> Tensor:
    x.squeeze_(1)
    return x + 1


@cases(lambda: (plain(4, 4),))
def as_strided_in_place(x: Tensor) -> Tensor:
    x.as_strided_((2, 3), (4, 1))
    return x + 1


@cases(lambda: (tape(6),), "dynamo")
def data_then_as_strided_in_place_from_the_second_on(x: Tensor) -> Tensor:
    x.add_(1)
    x.as_strided_((2,), (2,), 1)
    return x * 2


@cases(lambda: (plain(8)[2:],), "dynamo")
def data_and_as_strided_in_place_further_inside(x: Tensor) -> Tensor:
    x.mul_(2)
    x.as_strided_((2,), (2,), 3)
    x.add_(1)
    return x * 2


@cases(lambda: (plain(3, 4),), "dynamic")
def data_then_metadata(x: Tensor) -> Tensor:
    x.mul_(2)
    x.t_()
    return x + 1


@cases(lambda: (plain(3, 4),), "inductor")
def metadata_then_data(x: Tensor) -> Tensor:
    x.t_()
    x.mul_(2)
    return x + 1


@cases(lambda: (tape(3, 4),))
def data_and_metadata_of_non_leaf(x: Tensor) -> Tensor:
    x.t_()
    x.mul_(2)
    return x.sin()


# Eager moves the version counter twice; what the counter guards, saved values, is left as it was.
@cases(lambda: (plain(3, 4),), tolerated=frozenset({"version"}))
def metadata_cancels_out(x: Tensor) -> Tensor:
    x.t_()
    x.t_()
    return x + 1


@cases(lambda: (plain(3, 4),), "dynamic")
def metadata_then_returned(x: Tensor) -> Tensor:
    return x.t_()


@cases(lambda: (plain(3, 4),))
def metadata_then_view_returned(x: Tensor) -> Tensor:
    x.t_()
    return x[0]


@cases(lambda: (plain(3, 4),))
def view_before_metadata(x: Tensor) -> Tensor:
    flat = x.view(-1)
    x.t_()
    return flat


@cases(lambda: (plain(3, 4), plain(3, 4)))
def two_in_different_ways(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    y.unsqueeze_(0)
    return x.sum() + y.sum()


@cases(lambda: (plain(3, 4),), context=torch.no_grad)
def metadata_under_no_grad(x: Tensor) -> Tensor:
    x.t_()
    return x + 1


@cases(lambda: (plain(3, 4),), "dynamo", "dynamic")
def requires_grad_inside(x: Tensor) -> Tensor:
    x.requires_grad_(True)
    return x * x


@cases(lambda: (plain(3, 4),))
def requires_grad_on_view(x: Tensor) -> Tensor:
    row = x[0]
    row.requires_grad_(True)
    return row * row


@cases(lambda: (plain(3, 4), leaf(4)))
def requires_grad_beside_leaf(x: Tensor, y: Tensor) -> Tensor:
    x.requires_grad_(True)
    return x * y


@cases(lambda: (leaf(3, 4),))
def requires_grad_switched_off(x: Tensor) -> Tensor:
    x.requires_grad_(False)
    return x * x


@cases(lambda: (tape(3, 4),))
def detach_in_place(x: Tensor) -> Tensor:
    x.detach_()
    return x * 2


@cases(lambda: (plain(3, 4),))
def resize_in_place(x: Tensor) -> Tensor:
    x.resize_(2, 4)
    return x * 2


@cases(lambda: (leaf(3, 4),), "dynamic")
def t_of_a_leaf_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.t_()
    return x * 2


@cases(lambda: (leaf(4, 4),), "dynamo")
def metadata_of_a_leaf_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.t_()
    return x * 2


@cases(lambda: (plain(3, 4), leaf(4)))
def requires_grad_on_view_returned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    row.requires_grad_(True)
    return row, row * y


@cases(lambda: (plain(3, 4),))
def requires_grad_on_view_returned_alone(x: Tensor) -> Tensor:
    return x.view(-1).requires_grad_(True)


@cases(lambda: (plain(3, 4),))
def requires_grad_on_fresh(x: Tensor) -> Tensor:
    weight = torch.ones(3, 4).requires_grad_()
    return x * weight


@cases(lambda: (leaf(3, 4),))
def requires_grad_on_fresh_returned(x: Tensor) -> tuple[Tensor, Tensor]:
    weight = torch.ones(3, 4).requires_grad_()
    return weight, x * weight


@cases(lambda: (plain(3, 4),))
def requires_grad_after_write(x: Tensor) -> Tensor:
    x.mul_(2)
    x.requires_grad_()
    return x.sin()


@cases(lambda: (plain(3, 4),))
def requires_grad_and_metadata(x: Tensor) -> Tensor:
    x.t_()
    x.requires_grad_()
    return x.sin()


@cases(lambda: (leaf(3, 4),))
def requires_grad_off_after_use(x: Tensor) -> Tensor:
    made = x * x
    x.requires_grad_(False)
    return made


@cases(lambda: (tape(3, 4),))
def detach_in_place_after_use(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * x
    x.detach_()
    return made, x * 3


@cases(lambda: (tape(3, 4), plain(3, 4)))
def detach_in_place_then_written(x: Tensor, y: Tensor) -> Tensor:
    x.detach_()
    x.mul_(y)
    return x * 3


@cases(lambda: (leaf(3, 4),))
def detach_in_place_of_intermediate(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    other = made.sin()
    made.detach_()
    return made, other


@cases(lambda: (tape(4, 4),))
def metadata_of_non_leaf_under_no_grad_after_a_write(x: Tensor) -> Tensor:
    x.add_(1)
    with torch.no_grad():
        x.t_()
    return x


@cases(lambda: (tape(4, 4),))
def metadata_of_a_view_of_an_input(x: Tensor) -> Tensor:
    part = x[:2]
    part.unsqueeze_(0)
    return part.sin() + x.sum()


@cases(lambda: (tape(4, 4),))
def metadata_of_an_intermediate_before_it_is_a_base(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    made.unsqueeze_(0)
    return made.view_as(made), made.diagonal()


@cases(lambda: views_of_one(tape(4, 4)))
def metadata_of_an_overlapping_input_under_no_grad(x: Tensor, y: Tensor) -> Tensor:
    flat = y.flatten()
    with torch.no_grad():
        y.transpose_(0, -1)
    return flat + x.sum()


@cases(lambda: views_of_one(tape(4, 4)), later="geometry-change-after-read")
def metadata_of_a_base_under_no_grad_after_a_read_of_its_view(x: Tensor, y: Tensor) -> Tensor:
    read = y.exp()
    with torch.no_grad():
        x.unsqueeze_(0)
    return read


@cases(lambda: (tape(4, 4).t(),), unsupported="geometry-change-after-read")
def input_that_is_a_view_turned_without_grad_and_read(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.t_()
    return x * 2


@cases(lambda: views_of_one(tape(4, 4)), later="invalid-view")
def metadata_of_an_overlapping_input_under_no_grad_then_read(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        y.t_()
    return y.sin()


@cases(lambda: views_of_one(tape(4, 4)), later="of which the backward needs the values")
def metadata_of_a_view_that_is_read_beside_a_saved_base(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    read = y.exp()
    y.t_()
    return read, x.sin()


@cases(lambda: (*views_of_one(plain(4, 4)), leaf(4, 4)))
def metadata_of_a_plain_view_beside_a_saved_base(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    read = y * w
    y.t_()
    return read + x * w


@cases(lambda: views_of_one(tape(4, 4)))
def metadata_of_an_overlapping_input_beside_a_read_of_its_base(x: Tensor, y: Tensor) -> Tensor:
    y.unsqueeze_(0)
    return x.sin()


@cases(lambda: views_of_one(tape(4, 4)))
def metadata_without_grad_of_an_overlapping_input_beside_a_read(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        y.unsqueeze_(0)
    return x.sin()


def views_of_one(tensor: Tensor) -> tuple[Tensor, Tensor]:
    return tensor, tensor.t()


@cases(lambda: (tape(4, 4),), later="geometry-changes-in-two-grad-modes")
def metadata_in_two_grad_modes(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.t_()
    x.unsqueeze_(0)
    return x * 2


@cases(lambda: (tape(4, 4),))
def metadata_under_no_grad_and_of_a_view(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.t_()
    row = x[:2]
    row.unsqueeze_(0)
    return x * row.sum()


@cases(lambda: (plain(3, 4),), unsupported="resize-to-more-elements")
def resize_to_more_then_filled(x: Tensor) -> Tensor:
    x.resize_(5, 4)
    x.fill_(2)
    return x * 3


@cases(lambda: (plain(3, 4), plain(3, 4), torch.empty(0)))
def out_argument_without_memory(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    torch.mul(x, y, out=out)
    return out + 1


@cases(lambda: (leaf(3, 4),))
def out_argument_made_inside_without_memory(x: Tensor) -> Tensor:
    made = torch.empty(0)
    with torch.no_grad():
        torch.mul(x, 2, out=made)
    return made * x


@cases(lambda: (plain(4, 4),), unsupported="resize-to-more-elements")
def resize_to_less_of_a_transposed(x: Tensor) -> Tensor:
    made = x.t() * 1
    made.resize_(2, 3)
    return made + 1


@cases(lambda: (tape(4, 4),), later="invalid-view")
def metadata_of_the_base_of_an_expanded_view_that_is_filled(x: Tensor) -> Tensor:
    same = x.expand_as(x)
    x.unsqueeze_(0)
    same.fill_(0.5)
    return same


@cases(lambda: (leaf(3, 4),), later="taken before `x` is detached in place")
def detached_in_place_after_a_view_of_it(x: Tensor) -> Tensor:
    turned = x.t()
    x.detach_()
    return turned


@cases(lambda: (leaf(3, 4),))
def detached_in_place_before_a_view_of_it(x: Tensor) -> tuple[Tensor, Tensor]:
    x.detach_()
    return x[0], x


@cases(lambda: (leaf(16),), "dynamo", later="a view with a gradient, taken before it")
def two_views_of_an_intermediate_turned(x: Tensor) -> Tensor:
    middle = x * 2
    first, second = middle.view(4, 4), middle.view(4, 4)
    first.t_()
    second.t_()
    return first.sin() + second.cos()


@cases(lambda: (leaf(16),), "dynamo", later="a view with a gradient, taken before it")
def row_of_a_turned_view_read_after_a_write(x: Tensor) -> Tensor:
    middle = x * 2
    square = middle.view(4, 4)
    square.t_()
    row = square[0]
    middle.mul_(3)
    return row.sin()


@cases(lambda: _leaf_and_its_rows(4, 4))
def view_moved_without_grad_beside_a_saved_base(x: Tensor, rows: Tensor) -> Tensor:
    with torch.no_grad():
        rows.unsqueeze_(0)
    return x.t().sin()


def _leaf_and_its_rows(*sizes: int) -> tuple[Tensor, Tensor]:
    whole = leaf(*sizes)
    return whole, whole[1:]


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic")
def parameter_turned_and_then_scaled_without_grad(weight: Tensor) -> Tensor:
    with torch.no_grad():
        weight.t_()
        weight.mul_(0.5)
    return weight * 2


@cases(lambda: (leaf(3, 4),), "dynamo", "dynamic")
def parameter_scaled_and_then_turned_without_grad(weight: Tensor) -> Tensor:
    with torch.no_grad():
        weight.mul_(0.5)
        weight.t_()
    return weight * weight


@cases(lambda: (leaf(3, 4),), "dynamo", context=torch.no_grad)
def parameter_turned_there_and_back_around_a_write(weight: Tensor) -> Tensor:
    weight.t_()
    weight.mul_(0.5)
    weight.t_()
    return weight * 2


@cases(lambda: (tape(4, 4),))
def non_leaf_turned_and_then_scaled_without_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.t_()
        x.mul_(0.5)
    return x * 2


@cases(lambda: (tape(4, 4),), unsupported="geometry-change-before-write")
def turned_without_grad_and_scaled_with_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.t_()
    x.mul_(0.5)
    return x * 2


@cases(lambda: (leaf(4, 4),), "dynamo")
def part_of_a_parameter_turned_and_scaled_without_grad(weight: Tensor) -> Tensor:
    with torch.no_grad():
        part = weight[:2]
        part.t_()
        part.mul_(2)
    return weight * 2


@cases(lambda: (plain(4, 3),), "dynamo", "dynamic")
def view_from_before_a_change_of_sizes_written_without_a_gradient(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    x.t_()
    row.mul_(2)
    return row, x


@cases(lambda: (plain(4, 3),), context=torch.inference_mode)
def turned_and_written_under_inference_mode(x: Tensor) -> tuple[Tensor, Tensor]:
    row = x[0]
    x.t_()
    row.mul_(2)
    return row, x


@cases(lambda: (tape(4, 4),), "dynamo", "dynamic")
def view_with_a_gradient_turned_without_grad(x: Tensor) -> Tensor:
    view = x[1:]
    with torch.no_grad():
        view.t_()
    return view


@cases(lambda: (leaf(4, 4),), "dynamo")
def view_of_an_intermediate_turned_without_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    middle = x * 2
    view = middle[1:]
    with torch.no_grad():
        view.t_()
    return view, middle


@cases(lambda: (leaf(4, 4),), unsupported="invalid-view")
def view_turned_without_grad_and_read(x: Tensor) -> Tensor:
    view = (x * 2)[1:]
    with torch.no_grad():
        view.t_()
    return view.sin()


@cases(lambda: (tape(4, 4), leaf(4, 4)), "dynamo", "dynamic")
def hidden_state_taken_off_its_history_and_updated(state: Tensor, weight: Tensor) -> Tensor:
    state.detach_()
    new = torch.tanh(state.clone() @ weight)
    state.copy_(new)
    return new


@cases(lambda: (tape(3, 4), leaf(4, 3)), "dynamic")
def used_then_detached_turned_and_written_with_a_gradient(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    out = (x + 1).sum()
    x.detach_()
    x.t_()
    x.mul_(y)
    return out, x[1:]


@cases(lambda: (leaf(4, 4), leaf(4, 4)), unsupported="leaf-without-grad-then-written")
def leaf_turned_off_and_written_with_a_gradient(x: Tensor, y: Tensor) -> Tensor:
    x.requires_grad_(False)
    x.mul_(y)
    return y * 2


@cases(lambda: (tape(3, 4),), "dynamo", "dynamic")
def views_from_before_their_input_is_detached(x: Tensor) -> tuple[Tensor, ...]:
    view = x.t()
    x.detach_()
    return view, view[1:], view.detach(), x * 2, x


@cases(lambda: (tape(3, 4),))
def view_from_before_its_input_is_detached_and_written_without_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    view = x.t()
    x.detach_()
    with torch.no_grad():
        x.mul_(2)
    return view, x + 1


@cases(lambda: (tape(3, 4),))
def view_without_grad_of_a_view_from_before_its_input_is_detached(x: Tensor) -> tuple[Tensor, ...]:
    view = x.t()
    with torch.no_grad():
        row = view[1:]
    x.detach_()
    return view, row, row[0]


@cases(lambda: (tape(3, 4),))
def views_with_and_without_grad_from_before_a_detaching_and_a_write(x: Tensor) -> tuple[Tensor, ...]:
    view = x.t()
    with torch.no_grad():
        row = view[1:]
    x.detach_()
    with torch.no_grad():
        view.mul_(2)
    return view, row, x


@cases(lambda: (tape(3, 4), leaf(3, 4)), unsupported="view-before-detach")
def view_from_before_its_input_is_detached_and_written(x: Tensor, y: Tensor) -> Tensor:
    view = x.t()
    x.detach_()
    x.mul_(y)
    return view


def _non_leaf_and_its_rows() -> tuple[Tensor, Tensor]:
    whole = tape(4, 4)
    return whole, whole[1:]


@cases(_non_leaf_and_its_rows, "dynamo")
def detached_in_place_while_another_input_is_a_view_of_it(x: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    out = rows * 2
    x.detach_()
    return x * 2, out, rows[0]


@cases(lambda: (tape(3, 4), leaf(3, 4)), "dynamo", "dynamic")
def hidden_state_made_a_leaf_in_place(state: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    state.detach_().requires_grad_()
    return (state * weight).tanh(), state[1:]


@cases(lambda: (tape(3, 4), leaf(3, 4)))
def written_to_and_made_a_leaf_in_place(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    x.detach_()
    with torch.no_grad():
        x.t_()
    x.requires_grad_()
    return x * y.t()


def complexes() -> Tensor:
    return torch.randn(3, 4, dtype=torch.complex64)


@cases(lambda: (complexes(),), unsupported="reinterpreted-view-of-changed-leaf")
def conjugate_taken_before_the_input_is_turned(x: Tensor) -> Tensor:
    view = x.conj()
    x.t_()
    return view


@cases(lambda: (complexes(),))
def conjugate_taken_after_the_input_is_turned(x: Tensor) -> Tensor:
    x.t_()
    return x.conj()


@cases(lambda: (complexes(),), unsupported="reinterpreted-view-of-changed-leaf")
def conjugate_beside_an_intermediate_that_is_turned(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    view = hidden.conj()
    hidden.t_()
    return hidden, view

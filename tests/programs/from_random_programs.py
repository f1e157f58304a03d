"""Programs that random ones led to, each made as small as it gets; `tests/random_programs` draws more."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.programs.program import Cases, leaf, plain, tape
from tests.programs.python.functions import Doubled, ViewReturned

cases = Cases("from_random_programs")


def _beside_detached(*sizes: int) -> tuple[Tensor, Tensor]:
    whole = plain(*sizes)
    return whole, whole.detach()


def _with_a_part() -> tuple[Tensor, Tensor]:
    whole = leaf(4, 4)
    return whole[1:], whole


def _with_a_row(whole: Tensor) -> tuple[Tensor, Tensor]:
    return whole[0], whole


@cases(lambda: (leaf(3, 4),), "dynamic", "inductor")
def only_views_taken_without_grad(x: Tensor) -> Any:
    hidden = x.sin()
    with torch.no_grad():
        view = hidden.t()
    return view.t(), view


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic")
def views_without_grad_beside_a_result(x: Tensor, y: Tensor) -> Any:
    hidden = x.sin()
    with torch.no_grad():
        view = hidden[1:]
    return view, view.t(), y * 2


@cases(lambda: (tape(3, 4),))
def what_a_view_without_grad_needs_is_written_to(x: Tensor) -> Any:
    hidden = x.sin()
    with torch.no_grad():
        view = hidden.t()
    x.mul_(2)
    return view, view.t()


@cases(lambda: (leaf(3, 4),))
def data_of_one_of_several_views(x: Tensor) -> Any:
    row = x.unbind(0)[0]
    return row.data, row


@cases(lambda: (plain(3, 4),), "dynamic")
def made_to_require_grad_after_a_view(x: Tensor) -> Any:
    view = x.t()
    x.requires_grad_()
    return view


@cases(lambda: (plain(3, 4),))
def made_to_require_grad_after_a_written_view(x: Tensor) -> Any:
    view = x.t()
    view.mul_(2)
    view = view.t()
    x.requires_grad_()
    return view


@cases(lambda: (plain(3, 4),))
def set_to_itself_and_required_to_have_a_gradient(x: Tensor) -> Tensor:
    x.set_(x)  # type: ignore[call-overload]
    return torch.nn.functional.dropout(x, training=False).requires_grad_()


@cases(lambda: (leaf(1, 4),))
def squeezed_without_grad_and_detached(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.squeeze_(0)
    return x.requires_grad_(False)


@cases(lambda: _beside_detached(4, 4))
def view_set_to_itself(x: Tensor, y: Tensor) -> Tensor:
    view = y.t()
    view.set_(view)  # type: ignore[call-overload]
    return view


# Autograd remembers the base of a view that was given other memory; it shares none with it.
@cases(lambda: _beside_detached(4, 4), tolerated=frozenset({"view"}))
def view_with_other_memory_written_to(x: Tensor, y: Tensor) -> Tensor:
    view = y.t()
    view.data = view.data * 2
    view.mul_(2)
    return view


@cases(lambda: (plain(4, 4),), unsupported="out-strides")
def out_of_another_size_is_laid_out_as_the_result(x: Tensor) -> Tensor:
    rows = x.t().reshape(-1)
    torch.sin(x.t(), out=rows)
    return rows


@cases(lambda: (plain(4, 4), plain(16)), unsupported="out-strides")
def out_input_of_another_size(x: Tensor, y: Tensor) -> Tensor:
    torch.sin(x.t(), out=y)
    return y


@cases(lambda: (leaf(4, 4),), unsupported="foreach-writes-twice")
def view_twice_in_a_foreach_list(x: Tensor) -> Tensor:
    view = (x * 2).t()
    torch._foreach_mul_([view, view], 2.0)
    return view


@cases(lambda: (leaf(4, 4),))
def tensor_twice_in_a_foreach_list(x: Tensor) -> Tensor:
    hidden = x * 2
    torch._foreach_mul_([hidden, hidden], 2.0)
    return hidden


@cases(lambda: (leaf(4, 4), plain(4, 4)), unsupported="view-with-swapped-storage")
def view_with_a_gradient_and_other_memory(x: Tensor, y: Tensor) -> Tensor:
    view = x.t()
    view.data = y.data
    return view


@cases(_with_a_part, unsupported="view-with-swapped-storage")
def part_with_other_memory(part: Tensor, whole: Tensor) -> Tensor:
    part.data = part.data * 2
    return part.t()


@cases(lambda: (plain(4, 4), leaf(4, 4)), unsupported="set-with-grad")
def set_to_one_with_a_gradient(x: Tensor, y: Tensor) -> Tensor:
    x.set_(y * 2)  # type: ignore[call-overload]
    return x


@cases(lambda: (leaf(4, 4),), unsupported="geometry-change-after-read")
def leaf_read_before_its_sizes_change(x: Tensor) -> Tensor:
    hidden = x * 2
    with torch.no_grad():
        x.unsqueeze_(0)
    return hidden


@cases(_with_a_part, unsupported="view-before-detach-and-write")
def base_of_another_input_detached_and_written_to(part: Tensor, whole: Tensor) -> Tensor:
    whole.detach_()
    whole.mul_(2)
    return part.t()


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic", unsupported="output-with-own-grad-fn")
def detached_and_written_with_a_gradient(x: Tensor, y: Tensor) -> Tensor:
    kept = x.detach()
    kept.mul_(y)
    return kept


@cases(lambda: (tape(3, 4), leaf(3, 4)), "dynamic", "inductor", unsupported="output-with-own-grad-fn")
def detached_and_written_beside_its_views(x: Tensor, y: Tensor) -> Any:
    kept = x.t().detach()
    kept.mul_(y.t())
    return kept[1:], kept, x


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic", "inductor", unsupported="output-with-own-grad-fn")
def intermediate_detached_and_written_with_a_gradient(x: Tensor, y: Tensor) -> Any:
    hidden = x.sin()
    kept = hidden.detach()
    kept.mul_(y)
    return kept, hidden, kept[1:]


@cases(lambda: (plain(3, 4), leaf(3, 4)), unsupported="output-with-own-grad-fn")
def plain_one_detached_and_written_with_a_gradient(x: Tensor, y: Tensor) -> Any:
    hidden = x.sin()
    kept = hidden.detach()
    kept.mul_(y)
    return hidden.t(), kept[0], kept[1:]


@cases(lambda: (leaf(3, 4), leaf(3, 4), leaf(3, 4)), unsupported="output-with-own-grad-fn")
def detached_twice_and_written_with_gradients(x: Tensor, y: Tensor, z: Tensor) -> Any:
    first, second = x.detach(), x.detach()
    first.mul_(y)
    second.add_(z)
    return first, second


@cases(lambda: (leaf(4, 4), leaf(4, 4)), unsupported="output-with-own-grad-fn")
def data_written_with_a_gradient(x: Tensor, y: Tensor) -> Any:
    view = x.t()
    kept = view.data
    kept.copy_(y)
    return kept, x


@cases(lambda: (tape(4, 4), plain(4, 4)), unsupported="view-before-detach")
def view_of_other_data_of_what_is_then_detached(x: Tensor, y: Tensor) -> Tensor:
    x.data = y.data
    view = x.t()
    x.detach_()
    return view


@cases(lambda: (leaf(4, 4),), unsupported="view-before-detach")
def view_of_one_detached_in_place_and_written(x: Tensor) -> Tensor:
    view = x.t()
    x.detach_()
    view = view.t()
    x.mul_(2)
    return view


@cases(lambda: (leaf(4, 4),), unsupported="view-before-detach")
def view_of_a_hidden_one_detached_in_place(x: Tensor) -> Tensor:
    hidden = x.sin()
    view = hidden.t()
    hidden.detach_()
    return view.t()


@cases(lambda: _with_a_row(tape(4, 4)), unsupported="detached-input-with-view")
def base_of_a_written_input_detached(part: Tensor, whole: Tensor) -> Tensor:
    part.mul_(2)
    whole.detach_()
    return whole


@cases(lambda: (leaf(4, 4),), unsupported="resize-under-no-grad")
def hidden_one_squeezed_without_grad(x: Tensor) -> Tensor:
    hidden = x[None].sin()
    with torch.no_grad():
        hidden.squeeze_(0)
    return hidden


def _with_its_transposed(whole: Tensor) -> tuple[Tensor, Tensor]:
    return whole, whole.t()


@cases(lambda: _with_its_transposed(leaf(4, 4)), unsupported="data-of-view")
def data_of_a_view_turned(x: Tensor, y: Tensor) -> Tensor:
    y.data = x.data
    return y


@cases(lambda: _with_its_transposed(plain(4, 4)))
def data_turned(x: Tensor, y: Tensor) -> Tensor:
    x.data = y.data
    return x.t()


@cases(lambda: (tape(4, 4)[1:],), unsupported="storage-swap-of-mutated-view")
def part_given_other_memory_and_written(a: Tensor) -> Tensor:
    """Eager's gradient goes to where the part of the former memory would start on the new one."""
    a.data = a.data * 2
    view = a.t()
    view.mul_(2)
    return view


@cases(_with_a_part, unsupported="storage-swap-of-mutated-view")
def part_turned_and_with_other_memory(part: Tensor, whole: Tensor) -> Tensor:
    part.t_()
    part.data = part.data * 2
    return whole * 2


@cases(lambda: (tape(4, 4),))
def memory_of_a_result_that_nothing_starts_from(x: Tensor) -> Tensor:
    hidden = x.sin()
    x.data = hidden.data
    view = x.t()
    view.mul_(2)
    return view


@cases(lambda: (leaf(4, 4),), unsupported="custom-view-of-changed-input")
def function_of_one_with_other_memory(x: Tensor) -> Tensor:
    x.data = x.data * 2
    return ViewReturned.apply(x)


@cases(lambda: (tape(4, 4),), unsupported="output-with-own-grad-fn")
def function_of_one_detached_and_written(x: Tensor) -> Tensor:
    kept = x.detach()
    kept.add_(x)
    return ViewReturned.apply(kept)


@cases(lambda: _with_a_row(plain(4, 4)))
def base_of_another_input_made_to_require_grad(row: Tensor, whole: Tensor) -> Tensor:
    whole.requires_grad_()
    return row[1:]


@cases(lambda: (tape(4, 4), leaf(4, 4)), "dynamo", "dynamic")
def off_its_history_in_place_and_multiplied(x: Tensor, y: Tensor) -> Tensor:
    x.detach_()
    x.mul_(y)
    return y * 2


@cases(lambda: (plain(4, 4),), "dynamic")
def view_written_and_expanded(x: Tensor) -> Tensor:
    view = x.sin()[1:].t()
    view.mul_(2)
    return view.expand(2, *view.shape)


@cases(lambda: (tape(4, 4),), "dynamic")
def view_written_and_expanded_with_a_gradient(x: Tensor) -> Tensor:
    view = x.sin()[1:].t()
    view.mul_(2)
    return view.expand(2, *view.shape)


@cases(lambda: _with_a_row(leaf(4, 4)))
def part_with_other_memory_after_a_hidden_write(part: Tensor, whole: Tensor) -> Tensor:
    view = part.t()
    view.data.mul_(2)
    part.data = part.data * 2
    return view


@cases(lambda: _with_a_row(plain(4, 4)))
def row_made_to_require_grad_after_its_view(row: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    view = row[1:]
    row.requires_grad_()
    return view, row * whole[1]


@cases(lambda: (plain(4, 4)[1:].requires_grad_(),))
def view_without_grad_of_a_part_that_is_a_leaf(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        view = x.t()
    return view, x * 2


def _beside_its_view() -> tuple[Tensor, Tensor]:
    whole = leaf(4, 4)
    return whole, whole.view(-1)


@cases(_beside_its_view)
def function_of_a_view_without_grad(x: Tensor, view: Tensor) -> Tensor:
    with torch.no_grad():
        other = view[1:]
    return ViewReturned.apply(other)


@cases(lambda: (plain(4, 4),))
def view_of_one_with_other_memory_twice(x: Tensor) -> tuple[Tensor, Tensor]:
    x.data = x.data * 2
    view = x.t()
    return view, view


@cases(lambda: _with_a_part()[::-1], unsupported="storage-swap-of-mutated-view")
def view_of_a_part_set_to_itself_twice(whole: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        part.set_(part)  # type: ignore[call-overload]
        view = part.t()
    return view, view


@cases(lambda: (leaf(4, 6)[:, ::2],))
def turned_without_grad_after_a_copy(x: Tensor) -> Tensor:
    flat = x.ravel()
    with torch.no_grad():
        x.as_strided_((2, 4), (2, 4))
    return flat


@cases(_with_a_part, unsupported="storage-swap-of-mutated-view")
def function_of_a_part_set_to_itself(part: Tensor, whole: Tensor) -> Tensor:
    with torch.no_grad():
        part.set_(part)  # type: ignore[call-overload]
    return Doubled.apply(part)


@cases(lambda: (leaf(4, 4),), unsupported="reinterpreted-view-of-changed-leaf")
def pairs_without_grad_of_a_piece_of_what_is_turned(x: Tensor) -> Tensor:
    hidden = x.sin()
    piece = hidden.unbind(0)[0]
    hidden.t_()
    with torch.no_grad():
        return torch.view_as_complex(piece.view(-1, 2))


@cases(lambda: (tape(4, 4),), unsupported="hook-on-input")
def hook_on_an_input_that_is_turned(x: Tensor) -> Tensor:
    x.t_()
    x.register_hook(lambda gradient: gradient * 3)
    return x.detach() * 2


@cases(lambda: (tape(4, 4)[1:],), unsupported="hook-on-input")
def hook_on_a_part_that_is_written_to_after(x: Tensor) -> Tensor:
    x.register_hook(lambda gradient: gradient * 3)
    view = x.t()
    view.mul_(2)
    return view


def _two_parts() -> tuple[Tensor, Tensor]:
    whole = leaf(4, 4)
    return whole[:2], whole[1:]


@cases(_two_parts, unsupported="custom-view-of-changed-input")
def function_of_a_part_beside_one_with_other_memory(part: Tensor, other: Tensor) -> Tensor:
    other.data = other.data * 2
    return ViewReturned.apply(part)


@cases(_with_a_part)
def view_read_after_its_leaf_is_set_to_other_sizes(part: Tensor, whole: Tensor) -> Tensor:
    hidden = part.sin()
    with torch.no_grad():
        whole.set_(hidden.repeat(3, 1))  # type: ignore[call-overload]
    return part.sin()


@cases(_with_a_part)
def leaf_set_to_other_sizes_beside_its_view(part: Tensor, whole: Tensor) -> Tensor:
    with torch.no_grad():
        whole.set_(part * 2)  # type: ignore[call-overload]
    return whole * 3


@cases(_with_a_part)
def leaf_set_to_fewer_elements_than_its_view(part: Tensor, whole: Tensor) -> Tensor:
    with torch.no_grad():
        whole.set_(torch.ones(3))  # type: ignore[call-overload]
    return part * 2


@cases(_with_a_part, unsupported="set-between-uses-of-leaf")
def view_used_before_its_leaf_is_set_to_other_sizes(part: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    used = part * 2
    with torch.no_grad():
        whole.set_(part * 2)  # type: ignore[call-overload]
    return used, whole * 3


@cases(lambda: (plain(4),), unsupported="data-outside-inference-mode")
def memory_of_an_inference_tensor_replaced_outside(x: Tensor) -> Tensor:
    with torch.inference_mode():
        made = torch.zeros(4)
    made.data = x * 2
    return made


@cases(lambda: (plain(4),))
def inference_tensor_with_other_memory_inside(x: Tensor) -> Tensor:
    with torch.inference_mode():
        made = torch.zeros(4)
    made.data = x * 2
    return made + x


@cases(lambda: (leaf(4),))
def backward_of_a_parameter_that_no_argument_hangs_on(x: Tensor) -> Tensor:
    made = nn.Parameter(x)
    result = made * made.detach()
    with torch.no_grad():
        made.mul_(2)
    return result


@cases(lambda: _with_a_part()[::-1], unsupported="detached-input-with-view")
def leaf_set_and_detached_beside_its_part(whole: Tensor, part: Tensor) -> Tensor:
    hidden = part * 2
    with torch.no_grad():
        whole.set_(hidden)  # type: ignore[call-overload]
    whole.detach_()
    return hidden.t()


class _BesideNorm(nn.Module):
    """Under an undefined tangent the backward is recorded anew, after the layer wrote to its statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = Doubled.apply(x)
        return self.norm(hidden), hidden.sin()


@cases(lambda: (leaf(4, 4),))
def custom_function_before_batch_norm() -> nn.Module:
    return _BesideNorm()


@cases(lambda: (tape(4, 4)[1:],), "dynamic", "inductor")
def write_through_strides_of_a_part(part: Tensor) -> Tensor:
    whole = part.as_strided(part.size(), part.stride())
    whole.mul_(2)
    return whole


@cases(lambda: (leaf(4, 6)[:, ::2],), "dynamic", "inductor")
def write_to_windows_of_every_second_column(x: Tensor) -> Tensor:
    windows = x.unfold(0, 2, 2)
    with torch.no_grad():
        windows.mul_(2)
    return windows


@cases(lambda: (plain(4, 4), leaf(4, 4)))
def inference_view_of_what_was_written_to_gets_other_memory(x: Tensor, y: Tensor) -> Tensor:
    with torch.inference_mode():
        view = x.t()
    view = view.t()
    x += y
    view.data = y.t()
    return y.sin()


@cases(lambda: (plain(4, 4)[:, ::2],), "dynamic", unsupported="as-strided-beyond-input")
def write_between_every_second_column(x: Tensor) -> Tensor:
    row = x.as_strided((x.size(0),), (1,))
    row.mul_(2)
    return row.sin()


@cases(lambda: (plain(4, 4), leaf(4, 4)), "inductor")
def constant_that_only_the_backward_reads(x: Tensor, y: Tensor) -> Tensor:
    x.index_put_((torch.tensor([0]),), y[0])
    x.copy_(y)
    return y


@cases(lambda: (plain(3, 4), leaf(3, 4)), "dynamic")
def other_memory_whose_base_is_transposed_in_place(x: Tensor, y: Tensor) -> Tensor:
    hidden = y.sin()
    view = hidden.t()
    hidden.t_()
    x.data = hidden
    return view


@cases(lambda: (plain(3, 4), leaf(3, 4)), unsupported="geometry-change-after-storage-swap")
def transposed_in_place_after_another_took_its_memory(x: Tensor, y: Tensor) -> Tensor:
    hidden = y.sin()
    x.data = hidden
    return hidden.t_()


@cases(lambda: (leaf(3, 4),))
def inference_view_saved_before_its_base_is_written_to(x: Tensor) -> Tensor:
    with torch.inference_mode():
        view = x[None]
    product = x * view
    with torch.no_grad():
        x.mul_(2)
    return product


@cases(lambda: (leaf(3, 4),), unsupported="foreach-copy-to-integers")
def list_of_masks_gets_a_gradient(x: Tensor) -> Tensor:
    mask = x > 0
    torch._foreach_copy_([mask], [x])
    return mask


# eager still calls the result a view of `y`, whose memory it no longer has
@cases(lambda: (plain(3, 4), plain(3, 4)), tolerated=frozenset({"view"}))
def view_of_custom_function_gets_memory_of_an_input(x: Tensor, y: Tensor) -> Tensor:
    view = ViewReturned.apply(y)
    view.data = x
    return view


def _complex_and_detached_part() -> tuple[Tensor, ...]:
    numbers = plain(4, 4)
    complex_numbers = torch.view_as_complex(numbers.view(-1, 2))
    return complex_numbers, numbers, numbers[2:].detach().requires_grad_()


@cases(_complex_and_detached_part)
def leaf_on_numbers_that_another_input_reads_as_complex(x: Tensor, y: Tensor, part: Tensor) -> Any:
    return part.t()


class _NormBeforeOtherSizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4).eval()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        batch = x[None]
        out = self.norm(batch)
        batch.data = y
        return out[1:]


@cases(lambda: (plain(4, 4), plain(4, 4)), unsupported="data-of-other-sizes-after-read")
def other_sizes_for_what_batch_norm_saved() -> nn.Module:
    return _NormBeforeOtherSizes()


@cases(lambda: (plain(4, 4)[1:],))
def as_strided_after_a_write_to_the_diagonal(x: Tensor) -> Tensor:
    x.diagonal().fill_(1)
    return x.as_strided(x.size(), x.stride()).sin()


@cases(lambda: (plain(4, 4),), unsupported="frozen-parameter")
def parameter_without_gradient(x: Tensor) -> Tensor:
    weight = nn.Parameter(x.t())
    weight.requires_grad_(False)
    return weight


@cases(lambda: (nn.Parameter(plain(4, 4), requires_grad=False),))
def frozen_parameter_given_back(weight: Tensor) -> Tensor:
    weight.mul_(2)
    return weight


def _every_second_column_and_its_rows() -> tuple[Tensor, Tensor]:
    columns = leaf(4, 4)[:, ::2]
    return columns, columns[1:]


@cases(_every_second_column_and_its_rows, unsupported="as-strided-beyond-written-view")
def write_between_columns_that_overlap(x: Tensor, y: Tensor) -> Tensor:
    between = x.as_strided((2, 2), (1, 2), 1)
    with torch.no_grad():
        between.mul_(2)
    return between


@cases(lambda: (leaf(1, 4).expand(4, 4),))
def expanded_leaf_squeezed_without_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.squeeze_(0)
    return x.sin()


@cases(lambda: (leaf(1, 4).expand(4, 4),), later="write-to-repeated-memory")
def write_to_an_empty_view_of_an_expanded_leaf(x: Tensor) -> Tensor:
    view = x[:1][1:]
    with torch.inference_mode():
        view.mul_(2)
    return view


def _empty_and_its_view() -> tuple[Tensor, Tensor]:
    empty = plain(0, 4)
    return empty, empty[1:]


@cases(_empty_and_its_view)
def empty_base_made_to_require_grad(x: Tensor, y: Tensor) -> Tensor:
    view = y.t()
    x.requires_grad_()
    return view


@cases(_empty_and_its_view, unsupported="recorded-write-to-overlapping-input")
def empty_base_made_to_require_grad_after_a_write(x: Tensor, y: Tensor) -> Tensor:
    view = y.t()
    view.mul_(2)
    x.requires_grad_()
    return view


@cases(lambda: (leaf(4, 4)[:, ::2],))
def scatter_to_every_second_column_transposed(x: Tensor) -> Tensor:
    view = x.t().detach()
    view.scatter_(0, torch.zeros(1, 4, dtype=torch.long), x.t())
    return view.sin()


def _with_its_data() -> tuple[Tensor, Tensor]:
    whole = plain(4, 4)
    return whole, whole.data


@cases(_with_its_data)
def data_of_what_counts_its_own_writes(x: Tensor, y: Tensor) -> Tensor:
    y.data = x
    y.mul_(2)
    return y


@cases(lambda: (*_with_its_transposed(plain(4, 4)), leaf(4, 4)))
def view_transposed_in_place_after_a_write_with_a_gradient(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    y.mul_(z)
    y.t_()
    return y


@cases(lambda: (plain(4, 4), leaf(4, 4)), unsupported="invalid-view")
def view_transposed_in_place_before_a_write_with_a_gradient(x: Tensor, y: Tensor) -> Tensor:
    view = x.t()
    view.t_()
    view.mul_(y)
    return view


@cases(lambda: (plain(4, 4), leaf(4, 2)), unsupported="invalid-view")
def view_read_after_it_is_set_to_other_sizes(x: Tensor, y: Tensor) -> Tensor:
    view = y.t()
    with torch.no_grad():
        view.set_(x)  # type: ignore[call-overload]
    return view.sin()

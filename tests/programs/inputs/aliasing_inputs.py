"""The same tensor passed twice, and inputs on the same storage."""

from typing import Any

import torch
from torch import Tensor

from tests.programs.program import Cases, Fixed, leaf, plain, tape

cases = Cases("aliasing_inputs")


def twice(make: Any, *sizes: int) -> tuple[Tensor, Tensor]:
    tensor = make(*sizes)
    return tensor, tensor


def base_and(tensor: Tensor, *views: Any) -> tuple[Tensor, ...]:
    return (tensor, *(view(tensor) for view in views))


def views_of(tensor: Tensor, *views: Any) -> tuple[Tensor, ...]:
    return tuple(view(tensor) for view in views)


def shared_batch() -> dict[str, Any]:
    tensor = plain(3)
    return {"a": tensor, "b": [tensor, plain(3)]}


@cases(lambda: twice(leaf, 3, 4), "dynamo")
def duplicate(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@cases(lambda: twice(plain, 3, 4))
def duplicate_plain(x: Tensor, y: Tensor) -> Tensor:
    return x * y + 1


@cases(lambda: twice(plain, 3, 4), "dynamo")
def duplicate_mutated(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x * y


@cases(lambda: twice(tape, 3, 4))
def duplicate_non_leaf_mutated(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x * y


@cases(lambda: twice(plain, 3, 4))
def duplicate_both_mutated(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    y.add_(1)
    return x + y


@cases(lambda: twice(plain, 3, 4))
def duplicate_mutated_other_returned(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y


@cases(lambda: twice(plain, 3, 4))
def duplicate_metadata_in_different_ways(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    y.unsqueeze_(0)
    return x + 1


@cases(lambda: twice(leaf, 3, 4))
def duplicate_both_returned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x, y, x * y


@cases(lambda: (*twice(leaf, 3, 4), plain(4)))
def duplicate_and_other(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x * y + z


@cases(lambda: base_and(leaf(3, 4), lambda t: t.view(-1)))
def aliased_unmutated(x: Tensor, y: Tensor) -> Tensor:
    return x.sum() * y.sum()


@cases(lambda: base_and(tape(3, 4), lambda t: t.view(-1)))
def aliased_non_leaf_unmutated(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.sum() * y, y.view(3, 4)


@cases(lambda: views_of(plain(4, 4), lambda t: t[0], lambda t: t[0].view(2, 2)))
def aliased_outputs_each_from_its_own_input(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.view(4, 1), y.t()


@cases(lambda: base_and(plain(3, 4), lambda t: t.view(-1)))
def base_mutated(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y + 1


@cases(lambda: base_and(plain(3, 4), lambda t: t.view(-1)), "dynamo")
def view_mutated(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x + 1


@cases(lambda: base_and(tape(3, 4), lambda t: t.view(-1)))
def non_leaf_base_mutated(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y.sin()


@cases(lambda: base_and(tape(3, 4), lambda t: t.view(-1)))
def view_of_non_leaf_mutated(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x.sin()


@cases(lambda: base_and(tape(3, 4), lambda t: t[1:], lambda t: t[:2]))
def several_mutated(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    y.mul_(2)
    z.add_(1)
    return x.sin()


@cases(lambda: views_of(plain(5), lambda t: t[:3], lambda t: t[2:]))
def overlap_by_one_element(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y + 1


@cases(lambda: views_of(plain(6), lambda t: t[:3], lambda t: t[3:]))
def halves_do_not_overlap(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y


@cases(lambda: views_of(plain(4, 4), lambda t: t[:, ::2], lambda t: t[:, 1::2]), "dynamo")
def interleaved_columns_do_not_overlap(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    y.add_(1)
    return x + y


@cases(lambda: views_of(plain(12), lambda t: t.as_strided((2, 2), (6, 1), 0), lambda t: t[3:5]), "dynamo")
def gaps_do_not_overlap(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y


@cases(lambda: views_of(tape(6), lambda t: t[:3], lambda t: t[3:]))
def halves_of_non_leaf(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x + y


@cases(lambda: views_of(plain(3, 4), lambda t: t.view(-1), lambda t: t.t()))
def base_is_no_input(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y + 1


@cases(lambda: base_and(plain(3, 4), lambda t: t.view(-1)))
def one_in_data_other_in_metadata(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    y.mul_(2)
    return x + 1


@cases(lambda: base_and(plain(3, 4), lambda t: t.view(-1)))
def only_metadata_mutated(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    return x + 1 + y.sum()


@cases(lambda: base_and(plain(3, 4), lambda t: t.view(-1)))
def view_of_aliased_returned(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x[0]


@cases(lambda: (plain(2), *base_and(plain(3, 4), lambda t: t.view(-1)), plain(4)))
def among_others(a: Tensor, x: Tensor, y: Tensor, b: Tensor) -> Tensor:
    y.mul_(2)
    b.add_(1)
    return x + b + a.sum()


@cases(lambda: (*base_and(plain(4), lambda t: t[:2]), *base_and(plain(4), lambda t: t[:2])), "dynamo")
def two_groups_one_mutated(x: Tensor, x_part: Tensor, y: Tensor, y_part: Tensor) -> Tensor:
    x_part.mul_(2)
    return x + y + y_part.sum()


@cases(lambda: views_of(leaf(3, 4), lambda t: t.detach(), lambda t: t.detach().view(-1)))
def detached_aliases(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y + 1


@cases(lambda: views_of(leaf(3, 4), lambda t: t, lambda t: t.detach()))
def leaf_and_its_detached(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x * 3


@cases(lambda: views_of(plain(4), lambda t: t, lambda t: t.view(torch.int32)))
def other_dtype_of_view(x: Tensor, y: Tensor) -> Tensor:
    x.zero_()
    return y + 1


@cases(lambda: (*twice(plain, 4), plain(4)))
def duplicates_with_view(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    x.mul_(2)
    y.add_(z)
    return x + y


@cases(lambda: (views_of(plain(4), lambda t: t, lambda t: t, lambda t: t[1:]),))
def duplicates_and_alias(xs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    xs[0].mul_(2)
    return xs[1] + xs[2].sum()


@cases(lambda: (shared_batch(),))
def duplicate_in_containers(batch: dict[str, Any]) -> Tensor:
    batch["a"].add_(1)
    return batch["b"][0] * batch["b"][1]


@cases(lambda: views_of(tape(4), lambda t: t[:2], lambda t: t))
def base_comes_second(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return y * 2, y.view(2, 2)


@cases(lambda: views_of(plain(4), lambda t: t, lambda t: t[:2]), context=torch.no_grad)
def aliased_under_no_grad(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y + 1


@cases(lambda: tuple(plain(4, 3).unbind(0)))
def rows_of_one_tensor(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    a.add_(b)
    return a + c + d


@cases(lambda: views_of(tape(5), lambda t: t[:3], lambda t: t[2:]), "dynamo", "inductor")
def overlapping_views_of_non_leaf(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    y.mul_(x[1])
    return (x * y.sum()).sin()


@cases(lambda: views_of(leaf(3, 4), lambda t: t, lambda t: t.view(-1)), "inductor")
def leaf_base_written_under_no_grad(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        y.mul_(2)
    return x.sum() + 1


@cases(lambda: (*views_of(plain(4), lambda t: t[:3], lambda t: t[1:]), leaf(3)))
def overlapping_start_to_require_grad(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    x.add_(w)
    return y * 2


@cases(lambda: views_of(tape(4, 4), lambda t: t[0], lambda t: t), "dynamo")
def overlapping_seen_as_memory_at_its_own_size(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.as_strided(x.size(), x.stride()).sin(), y * 2


@cases(lambda: views_of(tape(4, 4), lambda t: t.t(), lambda t: t[1:, ::2]), "dynamo")
def overlapping_with_strides(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y.add_(1)
    return x[0], x.sin()


@cases(lambda: views_of(tape(6), lambda t: t[:3], lambda t: t[2:5], lambda t: t[5:]), "inductor", "dynamo")
def third_on_the_storage_does_not_overlap(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    x.mul_(2)
    z.mul_(3)
    return x + y + z


@cases(lambda: views_of(plain(5), lambda t: t[:3], lambda t: t[2:]))
def overlapping_both_returned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y.mul_(2)
    return y, x, x.view(3, 1), y[1:]


@cases(lambda: views_of(tape(5), lambda t: t[:3], lambda t: t[2:]))
def overlapping_both_returned_with_history(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y.mul_(2)
    return y, x, x.view(3, 1), y[1:]


@cases(lambda: views_of(tape(5), lambda t: t.detach()[2:], lambda t: t[:3]), "dynamo")
def overlapping_detached_first_and_written(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return x * 3 + y


@cases(lambda: views_of(tape(5), lambda t: t[:3], lambda t: t.detach()[2:]), "dynamo")
def overlapping_detached_written(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(2)
    return x * 3 + y


@cases(lambda: views_of(plain(3, 4), lambda t: t, lambda t: t.view(-1)[2:8]), "inductor", "dynamo")
def overlapping_in_turns(x: Tensor, y: Tensor) -> Tensor:
    first = x + 1
    y.add_(1)
    second = x * 2
    x.mul_(2)
    return first + second + y.sum() + x


@cases(lambda: views_of(plain(3, 4), lambda t: t, lambda t: t[:2]))
def overlapping_only_moved_and_written(x: Tensor, y: Tensor) -> Tensor:
    y.t_()
    y.mul_(2)
    return x + 1


@cases(lambda: views_of(leaf(6), lambda t: t[:4], lambda t: t[2:]))
def overlapping_read_only_each_has_its_gradient(x: Tensor, y: Tensor) -> Tensor:
    return x * y.sin()


@cases(lambda: views_of(plain(6), lambda t: t[:4], lambda t: t[2:], lambda t: t[:0]), "dynamo")
def overlapping_with_an_empty_one(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    x.mul_(2)
    return y.sum() + z.sum()


@cases(lambda: views_of(leaf(4), lambda t: t, lambda t: t.detach()), later="history of its own")
def detached_twin_starts_to_require_grad(x: Tensor, y: Tensor) -> Tensor:
    y.mul_(x.detach().requires_grad_())
    return x + 1


@cases(lambda: base_and(tape(4, 4), lambda t: t[1:], lambda t: t.detach()))
def several_written_one_of_them_detached(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    y.fill_(0.5)
    x.add_(1)
    z.zero_()
    return x


def _and_its_conjugate() -> tuple[Tensor, Tensor]:
    base = torch.randn(4, dtype=torch.complex64)
    return base, base.conj()


@cases(_and_its_conjugate)
def write_beside_a_lazy_conjugate(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1j)
    return b * 2


def _lazily_negated_and_whole() -> tuple[Tensor, Tensor]:
    base = torch.randn(4, dtype=torch.complex64)
    return base, base.conj().imag


@cases(_lazily_negated_and_whole)
def write_beside_a_lazy_negation(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1j)
    return b * 2


def _detached_beside_a_view() -> tuple[Tensor, Tensor]:
    base = tape(3, 4)
    return base.detach()[0:2], base[1:3]


@cases(_detached_beside_a_view)
def write_to_a_detached_view_beside_a_view(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(2)
    return a + b


@cases(lambda: _lazily_negated_and_whole()[::-1], "dynamo")
def write_to_a_lazily_negated_part(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return b * 2


@cases(lambda: views_of(torch.complex(plain(4), plain(4)), torch.conj, torch.imag))
def write_to_a_lazy_conjugate_beside_a_part(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return b * 2


@cases(lambda: base_and(plain(4, 4), lambda t: t.detach()))
def view_of_an_alias_that_moves_after(x: Tensor, y: Tensor) -> Tensor:
    flat = y.view(-1)
    flat.add_(1)
    y.unsqueeze_(0)
    return flat


@cases(lambda: views_of(plain(4), lambda t: t, lambda t: t.detach()), later="Can't detach views in-place")
def overlapping_detached_in_place(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y.detach_()
    return y * 2, x


def with_a_view_of_the_leaf() -> tuple[Tensor, ...]:
    x = leaf(3, 3)
    return x, x.t()


@cases(with_a_view_of_the_leaf)
def detached_in_place_under_a_view_that_is_written_to(x: Tensor, y: Tensor) -> Any:
    found = x.sin()
    x.detach_()
    with torch.no_grad():
        y.clamp_(-1, 1)
    return found


def two_squares_of(tensor: Tensor) -> tuple[Tensor, ...]:
    return views_of(tensor, lambda t: t.view(4, 4), lambda t: t.view(4, 4))


@cases(lambda: two_squares_of(tape(16)), "dynamo")
def one_of_two_differentiable_views_turned(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    return 2 * x + 3 * y


@cases(lambda: two_squares_of(tape(16)), "dynamo", later="a view with a gradient, taken before it")
def both_of_two_differentiable_views_turned(x: Tensor, y: Tensor) -> Tensor:
    x.t_()
    y.t_()
    return x.sin() + y.cos()


def _flat_and_parameter() -> tuple[Tensor, Tensor]:
    flat = plain(16)
    return flat, torch.nn.Parameter(flat[:8].view(4, 2))


def _flat_and_leaf_view() -> tuple[Tensor, Tensor]:
    flat = plain(16)
    return flat, flat[:8].view(4, 2).requires_grad_()


@cases(_flat_and_parameter, "dynamo")
def parameter_inside_a_larger_input(flat: Tensor, weight: Tensor) -> Tensor:
    return flat.sum() + weight * weight


@cases(_flat_and_leaf_view)
def leaf_that_is_a_view_of_an_input(flat: Tensor, weight: Tensor) -> Tensor:
    return flat.sum() + weight * weight


@cases(_flat_and_parameter, "dynamo")
def larger_input_around_a_parameter_written(flat: Tensor, weight: Tensor) -> Tensor:
    with torch.no_grad():
        flat.mul_(2)
    return weight * weight


def _flat_parameter_and_its_parts() -> tuple[Tensor, Tensor, Tensor]:
    """As FSDP keeps weights: one flat parameter, and leaves in its memory that are no views of it."""
    flat = torch.nn.Parameter(plain(16))
    return flat, torch.nn.Parameter(flat.data[:8].view(4, 2)), torch.nn.Parameter(flat.data[8:].view(2, 4))


@cases(_flat_parameter_and_its_parts, "inductor", "dynamo")
def flat_parameter_written_under_its_parts(flat: Tensor, first: Tensor, second: Tensor) -> Tensor:
    with torch.no_grad():
        flat.mul_(2)
    return (first @ second).sin()


@cases(_flat_parameter_and_its_parts, "dynamo")
def part_of_a_flat_parameter_written(flat: Tensor, first: Tensor, second: Tensor) -> Tensor:
    hidden = second.sum()
    with torch.no_grad():
        first.add_(1)
    second.data.mul_(3)
    return (first @ second).sin() + flat.sum() * hidden


@cases(_flat_parameter_and_its_parts, "dynamo")
def flat_parameter_written_and_a_part_returned(flat: Tensor, first: Tensor, second: Tensor) -> Any:
    with torch.no_grad():
        flat.mul_(2)
    return first, second.t(), flat.sin()


def _leaves_that_overlap() -> tuple[Tensor, Tensor]:
    memory = plain(12)
    return torch.nn.Parameter(memory[:8]), torch.nn.Parameter(memory[4:])


@cases(_leaves_that_overlap, "dynamo")
def one_of_two_leaves_that_overlap_written(x: Tensor, y: Tensor) -> Tensor:
    product = x * y
    with torch.no_grad():
        x.zero_()
    return product * 2


def _history_and_leaf_in_its_memory() -> tuple[Tensor, Tensor, Tensor]:
    flat = tape(16)
    return flat, flat[:8].view(4, 2), flat.data[4:12].view(4, 2).requires_grad_()


@cases(_history_and_leaf_in_its_memory)
def leaf_in_the_memory_of_a_history_written(x: Tensor, view: Tensor, weight: Tensor) -> Tensor:
    with torch.no_grad():
        weight.mul_(2)
    return (view * weight).sum() + x.sin()


@cases(_history_and_leaf_in_its_memory, unsupported="recorded-write-to-overlapping-input")
def history_written_under_a_leaf_in_its_memory(x: Tensor, view: Tensor, weight: Tensor) -> Tensor:
    x.mul_(2)
    return view * weight


def _beside_its_complex_look(whole: Tensor) -> tuple[Tensor, Tensor]:
    return whole, torch.view_as_complex(whole)


@cases(lambda: _beside_its_complex_look(leaf(8, 2)), "inductor")
def real_leaf_beside_its_complex_look(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, torch.view_as_real(y * y)


@cases(lambda: _beside_its_complex_look(tape(8, 2)))
def real_tensor_written_beside_its_complex_look(x: Tensor, y: Tensor) -> Tensor:
    x.mul_(2)
    return y.real * 3


@cases(lambda: _beside_its_complex_look(tape(8, 2)))
def complex_look_at_a_real_tensor_written(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y.mul_(2j)
    return x * 2, y.imag


@cases(lambda: (torch.view_as_complex(plain(4, 4).view(-1, 2)),))
def complex_look_alone(x: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return x.real, x.imag * 2


def _complex_beside_its_imaginary_part() -> tuple[Tensor, Tensor]:
    whole = torch.complex(leaf(4, 4), plain(4, 4))
    return whole, whole.imag


@cases(_complex_beside_its_imaginary_part)
def complex_tensor_written_beside_its_imaginary_part(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.mul_(2)
    return y * 2, x.real


def _beside_its_bits() -> tuple[Tensor, Tensor]:
    whole = plain(4, 4)
    return whole[1:].detach().view(torch.int32), whole[1:].requires_grad_()


@cases(_beside_its_bits)
def leaf_in_other_memory_beside_its_bits(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        y.mul_(2)
    return y * 2, x + 1


def _flat_memory_and_a_leaf_in_it() -> tuple[Tensor, Tensor]:
    flat = plain(Fixed(6))
    return flat, flat[:3].requires_grad_()


def _flat_memory_and_a_parameter_in_it() -> tuple[Tensor, Tensor]:
    flat = plain(Fixed(6))
    return flat, torch.nn.Parameter(flat[:3])


@cases(_flat_memory_and_a_leaf_in_it, "dynamo")
def leaf_in_memory_that_is_written_after_it_is_saved(flat: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    before = part * part
    with torch.no_grad():
        flat[2:].mul_(2)
    return before, part * part


@cases(_flat_memory_and_a_parameter_in_it, "dynamo")
def parameter_in_memory_that_is_written_after_it_is_saved(
    flat: Tensor, part: Tensor
) -> tuple[Tensor, Tensor]:
    before = part * part
    flat.detach()[2:].mul_(2)
    return before, part * part


@cases(_flat_memory_and_a_leaf_in_it, "dynamo")
def leaf_in_memory_that_is_written_read_before_and_after(flat: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
    before = part * 3
    with torch.no_grad():
        flat[2:].mul_(2)
    return before, part * 2


@cases(lambda: base_and(plain(4, 4), lambda t: t.data))
def write_to_the_memory_of_data_that_is_saved(x: Tensor, y: Tensor) -> Tensor:
    result = y * torch.ones(4, 4, requires_grad=True)
    x.mul_(2)
    return result


@cases(lambda: base_and(tape(4, 4), lambda t: t.data, lambda t: t.detach()[:2]))
def write_to_data_beside_what_counts_with_the_base(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    y[1:].mul_(3)
    return z, x.sin()


@cases(lambda: base_and(leaf(4, 4), lambda t: t.detach()[1:], lambda t: t.detach().requires_grad_()))
def write_that_counts_for_another_leaf(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    result = z.sin()
    y.mul_(2)
    return result


@cases(lambda: base_and(leaf(4, 4), lambda t: t.view(torch.int32)))
def write_to_the_bits_of_a_saved_leaf(x: Tensor, y: Tensor) -> Tensor:
    result = x.sin()
    y.mul_(2)
    return result


def parts_of_a_leaf() -> tuple[Tensor, ...]:
    return views_of(leaf(4, 4), lambda x: x[1:], lambda x: x[:3])


@cases(parts_of_a_leaf, "dynamo", "inductor")
def parts_of_a_leaf_and_views_of_them(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x[0], y.view(-1), x * y


@cases(parts_of_a_leaf, "dynamo")
def part_of_a_leaf_given_back_beside_several_views(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (x, *y.unbind(), y.detach()[0])


@cases(parts_of_a_leaf, "dynamo")
def parts_of_a_leaf_of_which_one_is_written_to(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        x.mul_(2)
    return y.t(), x[0]


@cases(parts_of_a_leaf, "dynamo")
def parts_of_a_leaf_turned_and_seen(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.t_()
    return x[0], y[0]


@cases(lambda: (leaf(1, 4).expand(3, 4),), "dynamo", "inductor")
def expanded_leaf_and_views_of_it(x: Tensor) -> tuple[Tensor, ...]:
    return (x.t(), *x.unbind(), x * 2)


@cases(lambda: (leaf(1, 4).expand(3, 4),), "dynamo")
def view_of_an_expanded_leaf(x: Tensor) -> Tensor:
    return x[1:]


def part_and_leaf_on_its_memory() -> tuple[Tensor, Tensor]:
    part = tape(4, 4)[1:]
    return part, part.detach().requires_grad_()


def part_and_leaf_that_counts_apart() -> tuple[Tensor, Tensor]:
    part = tape(4, 4)[1:]
    return part, part.data.requires_grad_()


@cases(part_and_leaf_on_its_memory, "dynamo")
def views_of_a_part_beside_a_leaf_on_its_memory(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (x * y, *x.unbind(), y.t())


@cases(part_and_leaf_on_its_memory, "dynamo")
def view_of_a_part_written_to_without_grad_beside_a_leaf_on_its_memory(x: Tensor, y: Tensor) -> Any:
    with torch.no_grad():
        y.mul_(2)
    return x[0], y * 2


@cases(part_and_leaf_on_its_memory)
def part_read_after_a_write_without_grad_beside_a_leaf_on_its_memory(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        y.mul_(2)
    return x * y


@cases(part_and_leaf_on_its_memory)
def part_added_to_another_after_a_write_without_grad(x: Tensor, y: Tensor) -> Tensor:
    total = y * 2
    with torch.no_grad():
        x.mul_(2)
    total += x
    return total


@cases(part_and_leaf_that_counts_apart)
def part_read_after_a_leaf_on_its_memory_is_turned(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        y.t_()
    return x.sin()


@cases(lambda: (*part_and_leaf_on_its_memory(), plain(3, 4)))
def part_copied_to_another_input_after_a_write_without_grad(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    with torch.no_grad():
        y.mul_(2)
    z.copy_(x * 2)
    return y * 2


@cases(lambda: views_of(leaf(4, 4), lambda x: x[:3], lambda x: x[1:]), unsupported="base-is-no-argument")
def tensor_under_parts_is_read(x: Tensor, y: Tensor) -> tuple[Any, Tensor]:
    return x._base * 2, y[0]  # type: ignore[operator]


@cases(lambda: views_of(plain(4, 4), lambda x: x[:3], lambda x: x[1:]))
def part_strided_in_place(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.as_strided_((4, 3), (1, 4))
    return x.sin(), y[0]


@cases(
    lambda: views_of(tape(4, 4), lambda x: x[:3], lambda x: x[1:]),
    later="geometry-change-of-shared-input",
)
def part_with_a_history_strided_in_place(x: Tensor, y: Tensor) -> Tensor:
    x.as_strided_((4, 3), (1, 4))
    return x.sin()


@cases(
    lambda: views_of(tape(4, 4), lambda x: x[:3], lambda x: x[1:]),
    unsupported="geometry-change-of-shared-input",
)
def part_with_a_history_turned_beside_another(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.t_()
    return x.sin(), y * 2


def _a_complex_view_and_leaves_on_its_memory() -> tuple[Tensor, Tensor, Tensor]:
    whole = leaf(4)
    return torch.view_as_complex(whole.view(-1, 2)), whole.detach().requires_grad_(), whole


@cases(_a_complex_view_and_leaves_on_its_memory)
def view_of_a_leaf_beside_a_complex_one(x: Tensor, y: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
    return whole.view(2, 2), y * 2

"""A write through every view operator, to an input that autograd sees and to one that it does not."""

from collections.abc import Callable

import torch
from torch import Tensor

from tests.programs.program import Cases, Fixed, leaf, plain, tape

cases = Cases("view_writes")

View = Callable[[Tensor], Tensor]

VIEWS: dict[str, View] = {
    "adjoint": lambda x: x.adjoint(),
    "alias": torch.ops.aten.alias.default,
    "as_strided": lambda x: x.as_strided((2, 2), (4, 1), 1),
    "chunk": lambda x: x.chunk(2, 0)[1],
    "conj": lambda x: x.conj(),
    "diagonal": lambda x: x.diagonal(1),
    "diagonal_of_dims": lambda x: x.unsqueeze(0).diagonal(0, 1, 2),
    "dsplit": lambda x: x.view(1, 4, 4).dsplit(2)[0],
    "expand": lambda x: x.expand(1, 4, 4),
    "flatten": lambda x: x.flatten(),
    "hsplit": lambda x: x.hsplit(2)[1],
    "index_with_ellipsis": lambda x: x[..., 1:3],
    "matrix_h": lambda x: x.mH,
    "matrix_t": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, 1),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "none_index": lambda x: x[None, 1],
    "permute": lambda x: x.permute(1, 0),
    "ravel": lambda x: x.ravel(),
    "reshape": lambda x: x.reshape(2, 8),
    "select": lambda x: x.select(1, 2),
    "select_from_end": lambda x: x[-1],
    "slice_with_step": lambda x: x[::2, 1::3],
    "split": lambda x: x.split(3, 1)[1],
    "split_with_sizes": lambda x: x.split([1, 3], 0)[1],
    "squeeze": lambda x: x.unsqueeze(0).squeeze(),
    "squeeze_dims": lambda x: x.view(1, 4, 1, 4).squeeze((0, 2)),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "t": lambda x: x.t(),
    "tensor_split": lambda x: x.tensor_split(3, 0)[1],
    "transposed": lambda x: x.T,
    "unbind": lambda x: x.unbind(1)[3],
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "view_as": lambda x: x.view_as(x),
    "view_of_other_dtype": lambda x: x.detach().view(torch.int32).view(torch.float32),
    "vsplit": lambda x: x.vsplit(2)[0],
    "view_of_view_of_view": lambda x: x.t()[1:].unsqueeze(0).select(2, 1),
}

COMPLEX: dict[str, View] = {
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "view_as_real": torch.view_as_real,
    "conj_of_complex": lambda x: x.conj(),
    "imag_of_conj": lambda x: x.conj().imag,
    "adjoint_of_complex": lambda x: x.mH,
    "row_of_real": lambda x: x.real[1],
}


def _writes(name: str, view: View) -> Callable[[Tensor], Tensor]:
    def write(x: Tensor) -> Tensor:
        view(x).mul_(3)
        return x * 2

    write.__name__ = name
    return write


def _fills(name: str, view: View) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    def fill(x: Tensor) -> tuple[Tensor, Tensor]:
        made = x * 2
        seen = view(made)
        seen.add_(1)
        return made, seen

    fill.__name__ = name
    return fill


FOUR = Fixed(4)

for _name, _view in VIEWS.items():
    cases(lambda: (plain(FOUR, FOUR),), "grid")(_writes(_name, _view))
    cases(lambda: (tape(FOUR, FOUR),), "grid")(_writes(f"{_name}_of_non_leaf", _view))
    cases(lambda: (plain(FOUR, FOUR),), "grid")(_fills(f"{_name}_of_intermediate", _view))

for _name, _view in COMPLEX.items():
    cases(lambda: (torch.randn(3, 4, dtype=torch.complex64),), "grid")(_writes(_name, _view))
    cases(lambda: (torch.randn(3, 4, dtype=torch.complex64, requires_grad=True) * 2,), "grid")(
        _writes(f"{_name}_of_non_leaf", _view)
    )


@cases(lambda: (plain(5),), unsupported="operator-on-overlapping-elements")
def overlapping_windows(x: Tensor) -> Tensor:
    x.unfold(0, 3, 1).mul_(2)
    return x


@cases(lambda: (plain(4, 4),), "dynamic", "inductor")
def strided_view_past_the_slice_that_is_written(x: Tensor) -> tuple[Tensor, Tensor]:
    made = x * 2
    rows = made[1:]
    seen = rows.as_strided((2, 2), (1, 2), 1)
    rows.fill_(0.5)
    return seen + 1, made


@cases(lambda: (plain(4, 4),), "dynamic")
def write_through_a_strided_view_past_its_slice(x: Tensor) -> Tensor:
    x[1:].as_strided((2, 2), (1, 2), 1).mul_(3)
    return x.sin()


@cases(lambda: (torch.arange(40.0)[3:19].view(4, 4),))
def strided_view_of_an_input_inside_a_storage(x: Tensor) -> Tensor:
    seen = x.as_strided((2, 2), (1, 2), 5)
    x.mul_(2)
    x[1:].as_strided((2, 2), (1, 2)).add_(1)
    return seen.sin()


@cases(lambda: (tape(4, 4),), later="shows more than that part")
def strided_view_past_the_slice_with_a_gradient(x: Tensor) -> Tensor:
    rows = x[1:]
    seen = rows.as_strided((2, 2), (1, 2), 1)
    rows.fill_(0.5)
    return seen.sin()


@cases(lambda: (tape(8)[2:],), "dynamic", later="elements of the storage which the input does not have")
def write_to_strided_elements_before_the_input(x: Tensor) -> Tensor:
    x.as_strided((2,), (2,), 1).mul_(2)
    return x * 1


@cases(lambda: (plain(8)[::2],), later="elements of the storage which the input does not have")
def strided_view_of_what_lies_between(x: Tensor) -> Tensor:
    return x.as_strided((5,), (1,)) * 2


@cases(lambda: (tape(8)[2:],), "dynamo")
def write_under_a_strided_view_inside_the_input(x: Tensor) -> tuple[Tensor, Tensor]:
    seen = x.as_strided((2,), (2,), 3)
    x.mul_(2)
    return seen * 1, x.as_strided((2,), (2,), 2)


@cases(lambda: (torch.randn(4, dtype=torch.complex64),), later="as-strided-beyond-typed-view")
def strided_view_past_a_slice_of_reals(x: Tensor) -> Tensor:
    return torch.view_as_real(x)[1:].as_strided((2, 2), (1, 2), 1) + 1


@cases(lambda: (plain(4, 4),), later="operator-on-overlapping-elements")
def write_to_strided_elements_that_overlap(x: Tensor) -> Tensor:
    x.as_strided((3, 3), (1, 1)).add_(1)
    return x


@cases(lambda: (plain(2, 1).expand(2, 3),), "dynamo", "inductor")
def part_of_an_expanded_input(x: Tensor) -> Tensor:
    x[:, 1].add_(1)
    return x + 0


@cases(lambda: (plain(4).expand(4, 4),), "dynamo")
def write_to_a_part_of_an_expanded_argument(x: Tensor) -> Tensor:
    x[1].mul_(2)
    return x * 1


@cases(lambda: (tape(1, 3).expand(2, 3),), "dynamo")
def part_of_an_expanded_input_with_history(x: Tensor) -> tuple[Tensor, Tensor]:
    seen = x.sin()
    x[0].mul_(2)
    return x.sin(), seen


def _windows_and_end() -> tuple[Tensor, Tensor]:
    under = plain(5)
    return under.unfold(0, 3, 1), under[3:]


@cases(_windows_and_end, "dynamo")
def part_of_an_input_of_windows(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x[:, 0].mul_(2)
    y.add_(1)
    return x + 0, y * 2


@cases(lambda: (plain(6).as_strided((2, 3), (2, 1)),), "dynamo")
def part_of_an_input_whose_rows_overlap(x: Tensor) -> Tensor:
    x[0] += x[1].sum()
    return x


@cases(lambda: (leaf(3),), "dynamo", "inductor", "dynamic")
def part_of_an_expanded_value(x: Tensor) -> tuple[Tensor, Tensor]:
    value = x * 2
    rows = value.expand(2, x.shape[0])
    rows[0].mul_(x)
    return rows + 0, value


@cases(lambda: (plain(3),), "dynamo")
def part_of_windows_of_an_input(x: Tensor) -> tuple[Tensor, Tensor]:
    windows = x.unfold(0, 2, 1)
    windows.t()[0].mul_(3)
    return windows + 0, windows


@cases(lambda: (plain(6).as_strided((2, 3), (2, 1)),), later="operator-on-overlapping-elements")
def all_of_an_input_whose_rows_overlap(x: Tensor) -> Tensor:
    return x.add_(1)


@cases(lambda: (plain(3, 1).expand(3, 3),), unsupported="operator-on-expanded")
def row_of_an_expanded_input_set_to_a_number(x: Tensor) -> Tensor:
    x[1] = 5.0
    return x + 0


@cases(lambda: (plain(4, 4),), "dynamic", later="refer to a single memory location")
def rows_added_to_rows_that_overlap(x: Tensor) -> Tensor:
    x[1:].add_(x[:-1])
    return x


@cases(lambda: (plain(4, 4),), "dynamic", later="refer to a single memory location")
def transposed_added_to_itself(x: Tensor) -> Tensor:
    return x.add_(x.t())


@cases(lambda: (plain(4, 4),))
def columns_added_to_columns_between(x: Tensor) -> Tensor:
    x[:, :2].add_(x[:, 2:])
    return x.mul_(x)


@cases(lambda: (tape(4, 4),), "dynamic", "inductor")
def write_to_a_part_of_unsafe_chunk(x: Tensor) -> Tensor:
    first, second = x.unsafe_chunk(2)
    first.mul_(2)
    return x + second.sum()


@cases(lambda: (tape(4, 4),), "dynamic")
def part_of_unsafe_chunk_whose_source_is_written(x: Tensor) -> Tensor:
    first, _ = x.unsafe_chunk(2)
    x.mul_(2)
    return first * 3


@cases(lambda: (leaf(4, 4),))
def gates_of_unsafe_split_in_place(x: Tensor) -> tuple[Tensor, Tensor]:
    whole = x.sin()
    first, second = whole.unsafe_split_with_sizes([1, 3])
    first.sigmoid_()
    return first * second, whole


@cases(lambda: (plain(3, 4), plain(2, 3)), "dynamic", "dynamo", "inductor")
def rows_put_into_a_transposed_input(x: Tensor, y: Tensor) -> Tensor:
    x.t().index_copy_(0, torch.tensor([1, 2]), y)
    return x * 2


@cases(lambda: (plain(3, 4), plain(2)), "dynamic", "dynamo", "inductor")
def numbers_put_into_a_transposed_input(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x.t().put_(torch.tensor([1, 3]), y)
    filled = (x + 1).t()
    filled.masked_scatter_(filled > 1, x)
    return x * 2, filled + 1

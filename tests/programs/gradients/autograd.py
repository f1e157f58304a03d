"""What requires grad and where gradients flow."""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor, nn

from tests.programs.program import Cases, Fixed, ints, leaf, plain, tape

cases = Cases("autograd")


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamo", "dynamic")
def product(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@cases(lambda: (leaf(3, 4), leaf(3, 4), leaf(3, 4)), "dynamo", "dynamic", "inductor")
def results_of_separate_leaves(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    both = x * y
    return both.exp(), z.sin(), both.sum() + z.sum()


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic")
def results_of_which_one_has_no_slope(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.floor() + y, x * 2


@cases(lambda: (leaf(3, 4), tape(3, 4), leaf(3)), "dynamic")
def written_inputs_and_views_of_separate_leaves(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    y.mul_(x)
    hidden = z.exp()
    return hidden[1:], hidden[:1], z.detach()


@cases(lambda: ([leaf(3), leaf(4)], plain(4), leaf(3)), "dynamic")
def lists_of_separate_leaves(x: list[Tensor], y: Tensor, z: Tensor) -> list[Tensor]:
    made = list(torch._foreach_add(torch._foreach_mul(x, [2.0, 3.0]), [z, y]))
    torch._foreach_exp_(made)
    return made


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamo", "dynamic", "inductor")
def backward_fails_after_a_write_to_what_it_reads(x: Tensor, y: Tensor) -> Tensor:
    z = (x + y).relu_()
    z[1].mul_(2)
    return z


@cases(lambda: (leaf(3, 4), tape(3, 4)))
def backward_fails_and_an_input_is_written_to(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y.mul_(x)
    hidden = y.exp()
    hidden.add_(1)
    return hidden, y.view(-1)


@cases(lambda: (leaf(3, 4),))
def backward_fails_since_a_gradient_inside_used_it_up(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x.exp()
    (gradient,) = torch.autograd.grad(hidden.sum(), x)
    return hidden, gradient


@cases(lambda: (leaf(3, 4),))
def backward_of_one_result_was_used_up_inside(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    hidden = x.exp()
    (gradient,) = torch.autograd.grad(hidden.sum(), x)
    return hidden, gradient, x.sin()


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamo", "dynamic", "inductor")
def backward_of_one_result_fails(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x.exp()
    hidden.add_(1)
    return hidden, y.sin() * x


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamic")
def backward_fails_of_views_beside_others(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    both = x * y
    hidden = both.exp()
    hidden.add_(1)
    return hidden.t(), hidden[0], both.view(-1), y * 2


@cases(lambda: (leaf(3, 4), tape(3, 4)))
def backward_of_a_written_input_fails(x: Tensor, y: Tensor) -> Tensor:
    y.exp_()
    y.add_(x)
    return x * 3


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def backward_of_one_result_is_not_implemented(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return torch.special.zeta(x, y), x * y


@cases(lambda: (plain(3, 4),))
def gradient_inside_by_what_requires_grad_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    x.requires_grad_()
    hidden = x * 2
    return hidden, torch.autograd.grad(hidden.sum(), x)[0]


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def one_requires_grad(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@cases(lambda: (plain(3, 4), plain(3, 4)), "dynamo", "dynamic")
def none_requires_grad(x: Tensor, y: Tensor) -> Tensor:
    return x * y


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def unused_input(x: Tensor, y: Tensor) -> Tensor:
    return x * 2


@cases(lambda: (leaf(3, 4),))
def detached_output(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, (x * 3).detach()


@cases(lambda: (leaf(3, 4),))
def only_detached_output(x: Tensor) -> Tensor:
    return (x * 3).detach()


@cases(lambda: (leaf(3, 4),))
def output_under_no_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        quiet = x * 3
    return x * 2, quiet


@cases(lambda: (leaf(3, 4),))
def all_under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 3


@cases(lambda: (leaf(3, 4),), context=torch.no_grad)
def enable_grad_inside_no_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        loud = x * 3
    return x * 2, loud


@cases(lambda: (leaf(3, 4), plain(3, 4)))
def mixed_outputs(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x * 2, y * 2, (x > 0)


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def one_output_ignores_one_input(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, y * 3


@cases(lambda: (leaf(3, 4),))
def integer_output(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.max(dim=1)


@cases(lambda: (leaf(3, 4),))
def detached_in_the_middle(x: Tensor) -> Tensor:
    return x * (x * 2).detach()


@cases(lambda: (leaf(3, 4),))
def output_made_to_require_grad(x: Tensor) -> tuple[Tensor, Tensor]:
    fresh = (x * 2).detach().requires_grad_()
    return fresh, x * 3


@cases(lambda: (leaf(3, 4),))
def gradient_inside(x: Tensor) -> Tensor:
    (inner,) = torch.autograd.grad(x.sin().sum(), x)
    return inner * 2


@cases(lambda: (leaf(3, 4),))
def gradient_of_gradient_inside(x: Tensor) -> Tensor:
    (inner,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    return inner * x


@cases(lambda: (plain(3, 4),))
def gradient_of_fresh_leaf_inside(x: Tensor) -> Tensor:
    fresh = x.detach().requires_grad_()
    (inner,) = torch.autograd.grad((fresh * fresh).sum(), fresh)
    return inner


@cases(lambda: (leaf(3, 4),))
def constant_output(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, torch.ones(2)


@cases(lambda: (leaf(3, 4),))
def zero_gradient(x: Tensor) -> Tensor:
    return x * 0 + x.round()


@cases(lambda: (leaf(3, 4), ints(3)))
def gather(x: Tensor, index: Tensor) -> Tensor:
    return x[torch.arange(3), index]


@cases(lambda: (leaf(5, 4), ints(3, below=5)), "dynamo")
def index_select(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index).softmax(-1)


@cases(lambda: (leaf(5), ints(5) - 1), "dynamic", "inductor")
def margin_loss_of_one_sample(x: Tensor, target: Tensor) -> Tensor:
    return F.multilabel_margin_loss(x, target, reduction="none") * 2


@cases(lambda: (leaf(3, 5), ints(3, 5) - 1), "dynamic", "inductor")
def margin_loss_of_rows(x: Tensor, target: Tensor) -> Tensor:
    return F.multilabel_margin_loss(x, target)


@cases(lambda: (leaf(5), torch.tensor(3)), "dynamic", "inductor")
def margin_loss_of_one_label(x: Tensor, target: Tensor) -> Tensor:
    return F.multi_margin_loss(x, target, reduction="none") * 2


@cases(lambda: (leaf(3, 4), leaf(4, 5), leaf(5)), "inductor", "dynamic")
def linear_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(torch.addmm(b, x, w)).sum(-1)


@cases(lambda: (leaf(2, 3, 4), leaf(2, 4, 5)), "dynamic")
def batched_matmul(x: Tensor, y: Tensor) -> Tensor:
    return torch.bmm(x, y).logsumexp(-1)


@cases(lambda: (leaf(3, 4),), "dynamo")
def cos_chain(x: Tensor) -> Tensor:
    return x.cos().cos().cos().cos()


@cases(lambda: (leaf(3, 4), leaf(3, 4), leaf(3, 4)), "dynamic")
def cat_and_matmul(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return torch.cat([x, y, z]) @ torch.cat([x, y, z]).t()


@cases(lambda: (leaf(3, 4),), "dynamic")
def sum_saves_sizes(x: Tensor) -> Tensor:
    return x.sum()


@cases(lambda: (leaf(2, 3, Fixed(4)), leaf(Fixed(4)), leaf(Fixed(4))), "dynamo", "dynamic")
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, (4,), weight, bias)


@cases(lambda: (leaf(2, 4, 8), leaf(2, 4, 8), leaf(2, 4, 8)), "dynamo")
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


@cases(lambda: (leaf(6, 5), ints(6, below=5)), "inductor")
def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(logits, labels)


@cases(lambda: (leaf(2, 3, 8, 8), leaf(4, 3, 3, 3)), "dynamo")
def convolution(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.conv2d(x, w, padding=1).relu()


@cases(lambda: (leaf(3),))
def half_precision_cast(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16) * 2


@cases(lambda: (torch.randn(3, dtype=torch.float64, requires_grad=True),))
def double_precision(x: Tensor) -> Tensor:
    return x.exp().log1p()


@cases(lambda: (torch.randn(3, dtype=torch.complex64, requires_grad=True),))
def complex_product(x: Tensor) -> Tensor:
    return (x * x.conj()).real


@cases(lambda: (leaf(),))
def scalar(x: Tensor) -> Tensor:
    return x * x


@cases(lambda: (leaf(0, 4),))
def zero_size(x: Tensor) -> Tensor:
    return x.sum(0) + x.mean()


@cases(lambda: (leaf(3, 4),))
def tensor_constant(x: Tensor) -> Tensor:
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0])


@cases(lambda: (leaf(3, 4),))
def scalar_constant(x: Tensor) -> Tensor:
    return x * torch.tensor(2.5) + torch.arange(4)


@cases(lambda: (leaf(3, 4),))
def nan_gradient(x: Tensor) -> Tensor:
    return (x * 0).sqrt()


@cases(lambda: (leaf(4, 3).t(),))
def non_leaf_argument_that_is_a_view(x: Tensor) -> Tensor:
    return x * x


@cases(lambda: (leaf(4, 3),))
def backward_through_view_of_transposed(x: Tensor) -> Tensor:
    return (x.t().contiguous() * 2).view(-1).t()


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def where_and_masks(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x > 0, x, y * 2).masked_fill(y > 1, 0.0)


@cases(lambda: (tape(3, 4),))
def tape_beside_mutation(x: Tensor) -> Tensor:
    kept = x.sigmoid()
    x.mul_(2)
    return kept * x


@cases(lambda: ([leaf(3), leaf(3)], [plain(3), plain(3)]))
def backward_fails_after_a_foreach_write_to_what_it_reads(x: list[Tensor], y: list[Tensor]) -> Any:
    torch._foreach_add_(y, [1.0, 2.0])
    made = torch._foreach_mul(x, y)
    torch._foreach_mul_(y, 2.0)
    return made, y


@cases(lambda: ([leaf(3), leaf(3)], [plain(3), plain(3)]))
def foreach_writes_of_what_has_a_gradient(x: list[Tensor], y: list[Tensor]) -> Any:
    made = torch._foreach_mul(x, 2.0)
    torch._foreach_mul_(made, y)
    torch._foreach_exp_(made)
    return made


@cases(lambda: (leaf(3, 4),), "inductor")
def largest_and_middle_before_a_hidden_write(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x * 2
    found = hidden.max(), hidden.median()
    hidden.data.add_(1)
    return found


@cases(lambda: (leaf(3, 4),), "dynamic")
def largest_of_equal_ones(x: Tensor) -> Tensor:
    return (x * 0).max() * x.sin() + x.sign().min()


@cases(lambda: (leaf(3, 4), leaf(6, 4)))
def backward_fails_since_its_derivative_has_other_sizes(x: Tensor, y: Tensor) -> Tensor:
    return x.scatter(0, torch.zeros(1, 4, dtype=torch.long), y)


@cases(lambda: (leaf(3, 4),), "dynamic", "dynamo")
def expanded_to_the_sizes_of_an_input(x: Tensor) -> Tensor:
    """Nobody but the forward asks for the sizes of `x`, and the backward takes the view again."""
    ones = torch.ones(x.shape[0], 1).expand(x.shape)
    return (x * ones).sin()


@cases(lambda: (leaf(3), plain(3)), "dynamo")
def product_of_second_derivatives_with_a_vector(x: Tensor, v: Tensor) -> Any:
    return torch.autograd.functional.hvp(lambda y: (y**3).sum(), x, v)[1]


def _groups() -> Tensor:
    return torch.tensor([2, 6], dtype=torch.int32)


@cases(lambda: (leaf(6, 4), leaf(2, 4, 8), _groups()), "dynamo", "inductor")
def products_of_groups(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    return F.grouped_mm(x, weights, offs=ends).sin()


@cases(lambda: (leaf(2, 6, 8), leaf(8, 8), torch.tensor([4, 8], dtype=torch.int32)))
def products_of_groups_in_half(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return F.grouped_mm(x.half(), weight.half(), offs=ends).float()


@cases(lambda: (leaf(6, 3), leaf(2, 3, 5), _groups()), later="raises")
def products_of_groups_not_aligned(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    return F.grouped_mm(x, weights, offs=ends)


@cases(lambda: (leaf(3, 4), leaf(3, 4)), "dynamo", "dynamic", "inductor")
def results_of_different_inputs(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.sin(), y.exp(), x * y


@cases(lambda: (leaf(3, 4), leaf(3, 4), plain(3, 4)), "dynamic")
def result_beside_a_write_by_another_input(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    z.mul_(y)
    return x.sin()


@cases(lambda: (leaf(3, 4), leaf(3, 4)))
def result_whose_gradient_is_zero(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.sign(), x * y


@cases(lambda: (leaf(3), leaf(3)), "inductor", "dynamic", unsupported="grad-of-input")
def backward_inside_into_arguments(x: Tensor, y: Tensor) -> Tensor:
    (x * x * y).sum().backward()
    return x.detach() * 1


@cases(lambda: (leaf(3), leaf(3)), unsupported="grad-of-input")
def backward_inside_whose_gradient_is_returned(x: Tensor, y: Tensor) -> tuple[Any, Tensor]:
    (x.sin() * y).sum().backward()
    return x.grad, x * y


@cases(lambda: (leaf(3), leaf(3)), unsupported="grad-of-input")
def step_of_an_optimizer_written_out(x: Tensor, y: Tensor) -> Tensor:
    x.grad = None
    (x * x * y).sum().backward()
    with torch.no_grad():
        assert x.grad is not None
        x -= 0.1 * x.grad
    return x * 2


@cases(lambda: (leaf(3),), unsupported="grad-of-input")
def gradient_assigned(x: Tensor) -> Tensor:
    x.grad = x.detach() * 2
    return x.sin()


class LossInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        loss = self.linear(x).square().mean()
        loss.backward()
        return loss.detach()


@cases(lambda: (plain(2, 4),), "inductor", unsupported="grad-of-input")
def backward_inside_into_parameters() -> nn.Module:
    return LossInside()

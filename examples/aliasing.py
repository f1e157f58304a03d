"""One small function per case of mutation and aliasing, each named after the field's term for it.

The comment above a function says what to trace it with, so nothing has to be run to see what the
compiler does to it: `aotlens inspect examples/aliasing.py::view_of_input`.
"""

import torch
from torch import Tensor, nn


# aotlens: example f32[4] grad, f32[4]
def mutated_input(x: Tensor, total: Tensor) -> Tensor:
    """An argument is written to; the caller sees the new value."""
    total.add_(x.detach())
    return x * total


# aotlens: example f32[8, 3]
class MutatedBuffer(nn.Module):
    """A buffer is written to in every forward, as batch norm does."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.lerp_(x.mean(0), 0.1)
        return (x - self.mean) * self.scale


# aotlens: example f32[4]
def input_returned(x: Tensor) -> Tensor:
    """The result is the argument itself, not a copy of it."""
    x.mul_(2)
    return x


# aotlens: example f32[2, 6] grad
def view_of_input(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first result shares its memory with the argument."""
    return x.view(3, 4), x.sin()


# aotlens: example f32[2, 6] grad
def view_of_an_intermediate(x: Tensor) -> Tensor:
    """The result is a view of a tensor that nobody else can reach, so a plain output is enough."""
    return x.exp().view(3, 4)


# aotlens: example f32[4, 4] grad
def two_views_of_an_intermediate(x: Tensor) -> tuple[Tensor, Tensor]:
    """Both results share one memory: writing to one must show in the other."""
    doubled = x * 2
    return doubled.t(), doubled[0]


# aotlens: example f32[4, 4] grad
def intermediate_and_its_view(x: Tensor) -> tuple[Tensor, Tensor]:
    """An intermediate is returned together with a view of it."""
    doubled = x * 2
    return doubled, doubled.view(16)


# aotlens: example f32[6] grad
def multi_output_view(x: Tensor) -> tuple[Tensor, ...]:
    """`chunk` makes several views in one go; autograd refuses in-place writes to them."""
    return (x * 2).chunk(3)


# aotlens: example f32[4] grad, f32[4]
def hidden_mutation(x: Tensor, seen: Tensor) -> Tensor:
    """The write goes through `detach`, so autograd never learns of it."""
    seen.detach().copy_(x.detach())
    return x * seen


# aotlens: example f32[4] grad, f32[4] grad
def mutated_under_no_grad(x: Tensor, weight: Tensor) -> Tensor:
    """The write is under `no_grad`, as in an optimiser step: it may stay in the graph."""
    with torch.no_grad():
        weight.clamp_(min=0)
    return x * weight


# aotlens: example f32[2, 3], f32[2, 3] grad
def mutation_with_gradient(state: Tensor, x: Tensor) -> Tensor:
    """The written value needs a gradient, so `state` does too after the call."""
    state.add_(x)
    return state.sum()


# aotlens: example f32[2, 3]
def metadata_mutation(x: Tensor) -> Tensor:
    """The argument's shape changes, its data does not."""
    x.t_()
    return x + 1


# aotlens: example f32[2, 3]
def data_and_metadata_mutation(x: Tensor) -> Tensor:
    """The argument changes in data and in shape."""
    x.mul_(2)
    x.unsqueeze_(0)
    return x.sum()


# aotlens: example f32[4]
def mutation_through_a_view(x: Tensor) -> Tensor:
    """The write goes to a slice of the argument."""
    x[1:3].zero_()
    return x + 1


# aotlens: example f32[4] grad
def detached_output(x: Tensor) -> tuple[Tensor, Tensor]:
    """One result carries no gradient."""
    y = x * 3
    return y, y.cos().detach()


def main() -> None:
    torch.manual_seed(0)

    x, total = torch.ones(4, requires_grad=True), torch.zeros(4)
    torch.compile(mutated_input)(x, total)
    print("mutated_input: total is now", total.tolist())

    norm = MutatedBuffer()
    torch.compile(norm)(torch.ones(8, 3))
    print("MutatedBuffer: mean is now", [round(value, 3) for value in norm.mean.tolist()])

    x = torch.zeros(2, 6)
    view, _ = torch.compile(view_of_input)(x)
    view[0, 0] = 7
    print("view_of_input: x sees a write to the result:", x[0, 0].item())

    first, second = torch.compile(two_views_of_an_intermediate)(torch.ones(4, 4))
    first[3, 0] = 9
    print("two_views_of_an_intermediate: one sees a write to the other:", second.tolist())

    state, x = torch.zeros(2, 3), torch.ones(2, 3, requires_grad=True)
    torch.compile(mutation_with_gradient)(state, x)
    print("mutation_with_gradient: state now needs a gradient:", state.requires_grad)

    x = torch.zeros(2, 3)
    torch.compile(metadata_mutation)(x)
    print("metadata_mutation: the shape of x is now", list(x.shape))

    x = torch.ones(4)
    print("input_returned: the result is x:", torch.compile(input_returned)(x) is x)


if __name__ == "__main__":
    main()

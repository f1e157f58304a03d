"""Random operators: the same numbers as eager for a seed, the same mask in forward and backward."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("randomness")


@cases(lambda: (leaf(50, 4),), "inductor", "dynamic")
def dropout(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5)


@cases(lambda: (leaf(50, 4),))
def dropout_in_chain(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x.sin(), 0.3).cos()


@cases(lambda: (leaf(50, 4),))
def two_dropouts(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(torch.nn.functional.dropout(x, 0.5), 0.5)


@cases(lambda: (leaf(50, 4),))
def dropout_switched_off(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5, training=False)


@cases(lambda: (plain(5, 4),))
def dropout_without_gradients(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x, 0.5)


@cases(lambda: (leaf(5, 4),), "dynamo")
def noise(x: Tensor) -> Tensor:
    return x * torch.randn_like(x) + torch.rand(4)


@cases(lambda: (plain(5, 4),))
def noise_in_place(x: Tensor) -> Tensor:
    x.normal_()
    return x * 2


@cases(lambda: (leaf(5, 4),))
def bernoulli_mask(x: Tensor) -> tuple[Tensor, Tensor]:
    mask = torch.bernoulli(torch.full((5, 4), 0.5))
    return x * mask, mask


@cases(lambda: (leaf(6, 4, 5),), "inductor", "dynamic")
def feature_and_alpha_dropout(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout1d(x, 0.5) + torch.nn.functional.alpha_dropout(x, 0.5, training=True)


@cases(lambda: (leaf(6, 4),))
def mask_drawn_into_a_row(x: Tensor) -> tuple[Tensor, Tensor]:
    mask = torch.ones(6, 4)
    mask[1].bernoulli_(0.5)
    return x.exp() * mask, mask


@cases(lambda: (leaf(2, 3, 4, 5),), "inductor", "dynamic")
def dropout_of_channels_last(x: Tensor) -> Tensor:
    return torch.nn.functional.dropout(x.to(memory_format=torch.channels_last), 0.5)


@cases(lambda: (leaf(6, 4),))
def masks_drawn_into_views(x: Tensor) -> tuple[Tensor, Tensor]:
    mask = torch.zeros(4, 12)
    mask[:, ::2].bernoulli_(0.3)
    mask.t()[2:5].bernoulli_(0.5)
    return x * mask[:, 3:9].t(), torch.empty(4, 5, 6).transpose(0, 2).bernoulli_(0.5)


@cases(lambda: (leaf(5, 4),))
def masks_combined(x: Tensor) -> Tensor:
    return sum((i * torch.nn.functional.dropout(x, 0.5) for i in range(12)), x)


@cases(lambda: (leaf(5, 4),), "inductor")
def permutation(x: Tensor) -> Tensor:
    return x[torch.randperm(5)]


@cases(lambda: (plain(4),), "dynamo")
def numbers_between(x: Tensor) -> Tensor:
    """`random.from`, whose name is no name in Python."""
    own = torch.empty(3).random_(0, 5)
    x.random_(1, 9)
    return own.sum() + x * 2


@cases(lambda: (leaf(2, 6, 4),))
def random_view(x: Tensor) -> tuple[Tensor, Tensor]:
    made = torch.rand_like(x) * x
    return made.view(-1), made


@cases(lambda: (plain(3, 8),))
def dropout_module() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 2))


@cases(lambda: (plain(3, 8),))
def dropout_module_in_eval() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 2)).eval()


@cases(lambda: (plain(4),), "dynamo")
def unused_draw(x: Tensor) -> Tensor:
    torch.rand(3)
    return x * torch.rand(4)


@cases(lambda: (leaf(4),))
def unused_draw_last(x: Tensor) -> Tensor:
    out = x * torch.rand(4)
    torch.randn_like(x)
    return out


@cases(lambda: (leaf(5, 4),))
def rrelu(x: Tensor) -> Tensor:
    return torch.nn.functional.rrelu(x, training=True)


@cases(lambda: (tape(5, 4),))
def rrelu_in_place(x: Tensor) -> Tensor:
    return torch.nn.functional.rrelu(x, training=True, inplace=True).sin()


@cases(lambda: (tape(5, 4), leaf(5, 4)), "inductor", "dynamo")
def rrelu_in_eval(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    torch.nn.functional.rrelu(x, inplace=True)
    return x.sin(), torch.nn.functional.rrelu(y)


@cases(lambda: (plain(5, 4),), context=torch.inference_mode)
def dropout_in_place_under_inference_mode(x: Tensor) -> Tensor:
    y = x * 2
    torch.nn.functional.dropout(y, 0.5, inplace=True)
    return y


@cases(lambda: (plain(4, 4),), context=torch.inference_mode)
def diagonal_filled_under_inference_mode(x: Tensor) -> Tensor:
    y = x * 2
    return y.fill_diagonal_(3.0)


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@cases(lambda: (plain(5, 4), generator()))
def own_generator(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + torch.rand(4, generator=generator)


@cases(lambda: (leaf(5, 4), generator(), generator(4)))
def two_generators(x: Tensor, first: torch.Generator, second: torch.Generator) -> Tensor:
    noise = torch.randn(4, generator=first) * torch.rand(4, generator=second)
    return x.sin() * noise + torch.bernoulli(torch.full((4,), 0.5), generator=first)


@cases(lambda: (plain(5, 4), generator()))
def own_generator_in_place(x: Tensor, generator: torch.Generator) -> Tensor:
    x.normal_(generator=generator)
    return x * torch.empty(4).uniform_(generator=generator)


@cases(lambda: (plain(5, 4), {"generator": generator()}))
def own_generator_in_a_container(x: Tensor, settings: dict[str, torch.Generator]) -> Tensor:
    return x + torch.rand(4, generator=settings["generator"])


@cases(lambda: (plain(5, 4), generator()), later="generator seeded inside")
def own_generator_seeded_inside(x: Tensor, generator: torch.Generator) -> Tensor:
    generator.manual_seed(3)
    return x + torch.rand(4, generator=generator)


@cases(lambda: (leaf(5, 4),))
def seeded_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    first = torch.rand(4)
    torch.manual_seed(5)
    return x * first, x * torch.rand(4)


@cases(lambda: (plain(5, 4),))
def seeded_last(x: Tensor) -> Tensor:
    out = x * torch.rand(4)
    torch.manual_seed(5)
    return out


@cases(lambda: (leaf(5, 4),))
def state_saved_and_restored(x: Tensor) -> tuple[Tensor, Tensor]:
    torch.rand(2)
    state = torch.get_rng_state()
    first = x * torch.rand(4)
    torch.set_rng_state(state)
    return first, x * torch.rand(4)


@cases(lambda: (leaf(5, 4),))
def forked(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        inner = x * torch.rand(4)
    return inner, x * torch.rand(4)


@cases(lambda: (plain(5, 4), torch.Generator().get_state()))
def state_of_an_argument(x: Tensor, state: Tensor) -> Tensor:
    torch.set_rng_state(state)
    return x * torch.rand(4)


@cases(lambda: (plain(5, 4),), later="random state read")
def initial_seed(x: Tensor) -> Tensor:
    return x * (torch.initial_seed() % 7)


@cases(lambda: (plain(5, 4),))
def closed_over_generator() -> Callable[[Tensor], Tensor]:
    kept = generator(9)
    return lambda x: x + torch.rand(4, generator=kept)


HIGHER_ORDER = torch.ops.higher_order


@cases(lambda: (leaf(5, 4),))
def drawn_again_from_a_saved_state(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.ops.aten.rand_like.default
    state, first = HIGHER_ORDER.run_and_save_rng_state(draw, x.detach())
    again = HIGHER_ORDER.run_with_rng_state(state, draw, x.detach())
    return x * first, x.sin() * again, torch.rand(3)


@cases(lambda: (leaf(5, 4),))
def unused_draw_with_its_state(x: Tensor) -> Tensor:
    HIGHER_ORDER.run_and_save_rng_state(torch.ops.aten.rand.default, [3], device=torch.device("cpu"))
    return x * torch.rand(4)


@cases(lambda: (leaf(5, 4),), "inductor")
def dropout_again_from_a_saved_state(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dropout = torch.ops.aten.native_dropout.default
    state, (first, mask) = HIGHER_ORDER.run_and_save_rng_state(dropout, x.detach(), 0.5, True)
    again, _ = HIGHER_ORDER.run_with_rng_state(state, dropout, x.detach(), 0.5, True)
    return x * first, x.cos() * again, mask


@cases(lambda: (leaf(5, 4),))
def drawn_from_a_state_that_was_read(x: Tensor) -> Tensor:
    state = torch.get_rng_state()
    mask = HIGHER_ORDER.run_with_rng_state(state, torch.ops.aten.bernoulli.p, x.detach(), 0.5)
    return x * mask + torch.rand(4)


@cases(lambda: (plain(5, 4), torch.Generator().manual_seed(4).get_state()))
def drawn_from_the_state_of_an_argument(x: Tensor, state: Tensor) -> Tensor:
    return x * HIGHER_ORDER.run_with_rng_state(state, torch.ops.aten.rand_like.default, x)


@cases(lambda: (leaf(5, 4),), unsupported="new-generator")
def generator_made_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    """Seeded at each call; the second random numbers follow the first."""
    own = torch.Generator()
    own.manual_seed(3)
    return x * torch.rand(4, generator=own), x + torch.rand(4, generator=own)

"""Modes and context: grad mode, autocast, inference and anomaly mode, hooks on saved tensors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.nn import functional

from tests.programs.program import Cases, leaf, plain, tape

cases = Cases("modes")


def autocast() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@cases(lambda: (leaf(3, 4),))
def grad_mode_left_off(x: Tensor) -> Tensor:
    out = x * 2
    torch.set_grad_enabled(False)
    return out


@cases(lambda: (leaf(3, 4),), context=torch.no_grad)
def grad_mode_left_on(x: Tensor) -> Tensor:
    torch.set_grad_enabled(True)
    return x * 2


@cases(lambda: (leaf(3, 4),))
def grad_mode_off_and_on(x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    quiet = x * 2
    torch.set_grad_enabled(True)
    return x * quiet


@cases(lambda: (leaf(3, 4), leaf(4, 5)), "inductor", context=autocast)
def under_autocast(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).relu()


@cases(lambda: (leaf(3, 4), leaf(4, 5)), "dynamo")
def autocast_inside(x: Tensor, w: Tensor) -> Tensor:
    with autocast():
        hidden = x @ w
    return hidden.float().sin()


@cases(lambda: (plain(3, 4), plain(4, 5)), "inductor", context=autocast)
def autocast_off_inside(x: Tensor, w: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        hidden = x @ w
    return hidden @ w.t()


@cases(lambda: (leaf(3, 4), leaf(4, 5)))
def autocast_to_another_type(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    with autocast():
        first = x @ w
        with torch.autocast("cpu", dtype=torch.float16):
            second = x @ w
    return first, second


@cases(lambda: (plain(3, 4), plain(4, 5)), context=autocast)
def under_autocast_without_gradients(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


class TwiceTheWeight(nn.Module):
    """Autocast keeps its copy of the weight for the second use."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.inner(x))


cases(lambda: (plain(3, 4),), context=autocast)(TwiceTheWeight)


@cases(lambda: (leaf(3, 4),), context=torch.inference_mode)
def under_inference_mode(x: Tensor) -> Tensor:
    return x * 2


@cases(lambda: (leaf(3, 4),))
def inference_mode_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        quiet = x * 2
    return quiet, x * 3


@cases(lambda: (plain(3, 4),))
def write_under_inference_mode_inside(x: Tensor) -> Tensor:
    with torch.inference_mode():
        x.add_(1)
    return x * 3


@cases(lambda: (leaf(3, 4),), context=torch.inference_mode)
def inference_mode_off_inside(x: Tensor) -> Tensor:
    with torch.inference_mode(False):
        return torch.ones(3).sin()


@cases(lambda: (leaf(3, 4),), context=torch.autograd.detect_anomaly)
def under_anomaly_mode(x: Tensor) -> Tensor:
    return x * 2


@cases(lambda: (leaf(3, 4),))
def anomaly_mode_inside(x: Tensor) -> Tensor:
    with torch.autograd.detect_anomaly():
        return x * 2


@contextmanager
def deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@cases(lambda: (leaf(5, 4), torch.tensor([0, 0, 3])), context=deterministic)
def under_deterministic_mode(x: Tensor, index: Tensor) -> Tensor:
    return x[index].sin()


@cases(lambda: (leaf(3, 4),))
def saved_tensor_hooks_inside(x: Tensor) -> Tensor:
    with saved_tensors_hooks(lambda t: t * 2, lambda t: t * 3):
        return x.sin()


def doubling() -> saved_tensors_hooks:
    """Hooks whose effect shows in the gradient of what is saved."""
    return saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2)


@cases(lambda: (leaf(3, 4), leaf(4, 5)), context=doubling)
def saved_tensor_hooks_of_the_caller(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin()


def in_another_type() -> saved_tensors_hooks:
    return saved_tensors_hooks(lambda t: (t.dtype, t.double()), lambda packed: packed[1].to(packed[0]))


@cases(lambda: (leaf(3, 4), leaf(4, 5)), context=in_another_type)
def saved_tensor_hooks_that_pack_a_pair(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin().exp()


@cases(lambda: (leaf(3, 4), leaf(4, 5)))
def saved_on_cpu_inside(x: Tensor, w: Tensor) -> Tensor:
    with save_on_cpu():
        return (x @ w).sin()


@cases(lambda: (leaf(3, 4), leaf(4, 5)), context=save_on_cpu)
def saved_on_cpu_by_the_caller(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).sin()


@cases(lambda: (leaf(3, 4),))
def default_dtype_inside(x: Tensor) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        made = torch.ones(4)
    finally:
        torch.set_default_dtype(torch.float32)
    return x * made


@cases(lambda: (leaf(3, 4),), "inductor")
def device_context_inside(x: Tensor) -> Tensor:
    with torch.device("cpu"):
        return x * torch.ones(4)


@cases(lambda: (plain(3, 4),))
def module_made_on_meta_inside(x: Tensor) -> Tensor:
    with torch.device("meta"):
        shaped = nn.Linear(4, 4)
    return x * shaped.weight.shape[0]


@cases(lambda: (leaf(4, 4),), "dynamic")
def views_under_inference_mode_inside(x: Tensor) -> tuple[Tensor, ...]:
    with torch.inference_mode():
        return x.reshape(2, -1), x.t().flatten(0, 0), x.narrow(0, 1, 2), x.chunk(2)[0].ravel()


@cases(lambda: (leaf(4, 4),), "dynamic")
def view_under_inference_mode_inside_viewed_after_it(x: Tensor) -> Tensor:
    turned = x.t()
    with torch.inference_mode():
        quiet = turned.t()
    return quiet.t()


@cases(lambda: (leaf(4, 4),), "dynamic")
def views_of_an_intermediate_under_inference_mode_and_after(x: Tensor) -> tuple[Tensor, ...]:
    hidden = x.sin()
    with torch.inference_mode():
        quiet, rest = hidden.t().split(2)
    with torch.no_grad():
        part = rest[:1]
    return quiet, quiet.t(), part, part[0]


@cases(lambda: (plain(4, 4),))
def views_without_a_gradient_under_inference_mode_and_after(x: Tensor) -> tuple[Tensor, ...]:
    with torch.inference_mode():
        quiet = x.t()
    return quiet, quiet.t(), x.t()


@cases(lambda: (leaf(4, 4),), context=torch.inference_mode)
def views_with_inference_mode_off_inside(x: Tensor) -> tuple[Tensor, ...]:
    with torch.inference_mode(False):
        turned = x.t()
        with torch.no_grad():
            part = turned[1:]
    return turned, turned.t(), part, part.t()


@cases(lambda: (leaf(4, 4),))
def dropout_of_evaluation_under_inference_mode_inside(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return nn.functional.dropout(x, 0.5, training=False)


@cases(lambda: (tape(3, 4),), context=torch.no_grad)
def write_with_grad_under_no_grad(x: Tensor) -> Tensor:
    with torch.enable_grad():
        x.mul_(2)
        x.t_()
    return x * 3


@cases(lambda: (tape(3, 4),))
def detaching_in_place_under_inference_mode_inside(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        x.detach_()
    return x.t(), x * 2


@cases(lambda: (leaf(3, 4),), "dynamic")
def results_made_under_inference_mode(x: Tensor) -> tuple[Tensor, ...]:
    with torch.inference_mode():
        quiet = x.sin()
        part = quiet[1:]
    return quiet, part, quiet.t(), quiet.detach(), quiet.clone(), x * 2


@cases(lambda: (plain(3, 4),))
def views_of_what_is_made_under_inference_mode(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    with torch.inference_mode():
        quiet = x.sin()
    return quiet[1:], quiet[:2], x.view(-1)


@cases(lambda: (plain(3, 4),))
def lazily_conjugated_under_inference_mode(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        turned = torch.view_as_complex(x.sin().view(6, 2)).conj()
        return turned, (turned * 2).conj().imag


@cases(lambda: (leaf(3, 4),), "module")
class StateMadeUnderInferenceMode(nn.Module):
    """Its buffer is an inference tensor from the first call on."""

    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(3, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        before = self.state.t()
        with torch.inference_mode():
            self.state = self.state + 1
        return before, x * 2


@cases(lambda: (leaf(3, 4),), context=torch.inference_mode)
def made_with_inference_mode_off(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):
        made = torch.ones(3).sin()
    return made, x * 2


@cases(lambda: (plain(3, 4),))
def write_to_what_is_made_under_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        quiet = x.sin()
    return quiet.mul_(2)


@cases(lambda: (leaf(3, 4),))
def gradient_through_what_is_made_under_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        quiet = x.sin()
    return x * quiet


def inference_tensor() -> tuple[Tensor]:
    with torch.inference_mode():
        return (plain(3, 4),)


@cases(inference_tensor)
def write_to_an_inference_tensor(x: Tensor) -> Tensor:
    return x.mul_(2)


@cases(inference_tensor)
def inference_tensor_through_dropout_of_evaluation(x: Tensor) -> tuple[Tensor, Tensor]:
    return functional.dropout(x, 0.5, training=False), x * 2


@cases(inference_tensor)
def inference_tensor_read_and_viewed(x: Tensor) -> tuple[Tensor, Tensor]:
    x.detach().mul_(2)
    return x.view(-1), x * 2


@cases(inference_tensor)
def write_to_an_inference_tensor_in_its_mode(x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode():
        x.mul_(2)
    return x, x * 2


@cases(lambda: (plain(3, 4),))
def inference_tensor_detached_outside(x: Tensor) -> Tensor:
    with torch.inference_mode():
        quiet = x.sin()
    part = quiet.detach()
    part.mul_(2)
    return part


@cases(lambda: (plain(3, 4),))
def write_to_a_view_of_what_is_made_under_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        quiet = x.sin()
    return quiet.detach()[1:].mul_(2)


@cases(lambda: (plain(3, 4),))
def view_of_what_is_made_under_inference_mode_turned(x: Tensor) -> Tensor:
    with torch.inference_mode():
        quiet = x.sin()
    return quiet[1:].t_()

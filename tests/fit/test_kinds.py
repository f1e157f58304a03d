"""Who holds the memory of a step, in exact bytes by kind."""

import linecache
from collections.abc import Callable
from contextlib import nullcontext
from types import CodeType

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from aotlens.compiled import Compiled
from aotlens.fit.graph_lines import GraphLines
from aotlens.fit.observer import Observer, observing_memory
from aotlens.fit.placeholders import placeholder_value
from aotlens.fit.step import fit_of, period_of
from aotlens.model.fit import Fit
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.torch_api.fake.tensors import DynamicOutputShapeException, FakeTensorMode

ROWS, WIDTH, HIDDEN = 64, 8, 16
WEIGHTS = 4 * (WIDTH * HIDDEN + HIDDEN * WIDTH)
"""Bytes of the two layers."""
OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, int]]] = {
    "SGD": (lambda p: torch.optim.SGD(p, 0.1, foreach=False), {}),
    "momentum": (
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=False),
        {"momentum_buffer": WEIGHTS},
    ),
    "AdamW": (
        lambda p: torch.optim.AdamW(p, foreach=False),
        {"step": 8, "exp_avg": WEIGHTS, "exp_avg_sq": WEIGHTS},
    ),
}


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.register_buffer("scale", torch.ones(WIDTH))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(rows).tanh()) * self.scale


def train(optimizer: str = "SGD", is_fake: bool = True, *, checkpointed: bool = False) -> Fit:
    """Three steps of two layers; what autograd saves is the hidden rows and, without a checkpoint, more."""
    with FakeTensorMode() if is_fake else nullcontext(), observing_memory() as observer:
        layers, rows = Layers(), torch.ones(ROWS, WIDTH)
        update = OPTIMIZERS[optimizer][0](layers.parameters())
        for _ in range(3):
            loss = (checkpoint(layers, rows, use_reentrant=False) if checkpointed else layers(rows)).sum()
            loss.backward()
            update.step()
            update.zero_grad()
        return fit_of(observer, is_fake)


def bytes_of(fit: Fit, kind: str, phase: str | None = None) -> int:
    """Of everything of that kind that the step holds at some moment."""
    rows = [each for each in fit.allocations if each.kind == kind and phase in (None, each.phase)]
    return sum(each.bytes for each in rows)


@pytest.mark.parametrize("is_fake", [True, False])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_gradients_and_optimizer_state(name: str, is_fake: bool) -> None:
    fit = train(name, is_fake)
    states: dict[str, int] = {}
    for each in fit.allocations:
        if each.kind == "optimizer state":
            states[each.state] = states.get(each.state, 0) + each.bytes
    assert states == OPTIMIZERS[name][1]
    # The gradients of the step before are freed at the start of the step that is shown.
    gradients = [each for each in fit.allocations if each.kind == "gradient" and each.made >= 0]
    assert (bytes_of(fit, "parameter"), sum(each.bytes for each in gradients)) == (WEIGHTS, WEIGHTS)


def test_state_that_a_module_registers_stays_optimizer_state() -> None:
    """Dynamo registers what a compiled optimizer step reads as buffers of its graph module."""
    with FakeTensorMode(), observing_memory() as observer:
        layer, graph = nn.Linear(4, 4, bias=False), nn.Module()
        update = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
        for _ in range(3):
            layer(torch.ones(2, 4)).sum().backward()
            update.step()
        graph.register_buffer("state", update.state[layer.weight]["momentum_buffer"])
        observer.learn_modules()
        fit = fit_of(observer)
    assert (bytes_of(fit, "optimizer state"), bytes_of(fit, "buffer")) == (64, 0)


def test_a_sparse_gradient_is_its_indices_and_values() -> None:
    with observing_memory() as observer:
        table = nn.Embedding(100, 4, sparse=True)
        optimizer = torch.optim.SparseAdam(table.parameters())
        for _ in range(2):
            table(torch.tensor([3, 5, 3])).sum().backward()
            optimizer.step()
    gradients = [life.bytes for life in observer.lives if life.kind == "gradient" and life.freed_at is None]
    assert sorted(gradients) == [2 * 3 * 8, 2 * 3 * 4 * 4]  # of both backwards: indices of 6 rows, and 6 rows


def test_the_size_of_a_sparse_gradient_is_unknown_on_fake_tensors() -> None:
    with FakeTensorMode(), observing_memory():
        table = nn.Embedding(100, 4, sparse=True)
        loss = table(torch.tensor([3, 5, 3])).sum()
        with pytest.raises(DynamicOutputShapeException):
            loss.backward()


def test_inputs_buffers_outputs_and_saved_values() -> None:
    fit = train()
    assert (bytes_of(fit, "input"), bytes_of(fit, "buffer")) == (4 * ROWS * WIDTH, 4 * WIDTH)
    assert bytes_of(fit, "output", "forward") == 4  # the loss of this step
    saved = [each for each in fit.allocations if each.kind == "saved activation"]
    # The rows after `tanh`, for its backward and that of `down`, and the gradient of the loss, which is made
    # before the backward's first node; the scaled rows die in the sum.
    assert [(each.bytes, each.op) for each in saved] == [
        (4 * ROWS * HIDDEN, "aten.tanh.default"),
        (4, "aten.ones_like.default"),
    ]


def test_a_checkpoint_saves_nothing_in_the_forward() -> None:
    gradient_of_loss, rng_state = 4, torch.get_rng_state().nbytes
    assert bytes_of(train(checkpointed=True), "saved activation") == gradient_of_loss + rng_state
    assert train(checkpointed=True).step_peak_bytes >= train().step_peak_bytes - 4 * ROWS * HIDDEN


def test_a_compiled_step_holds_what_eager_holds_and_names_its_lines() -> None:
    compiled: list[Compiled] = []
    observer = Observer(graph_frames=GraphLines(compiled).frames_at)
    with FakeTensorMode(), observing_memory(observer):
        layers, rows = Layers(), torch.ones(ROWS, WIDTH)
        update = torch.optim.SGD(layers.parameters(), 0.1, foreach=False)
        compiled.append(
            compile_direct(layers, (rows,), {}, CompileOptions(backend="eager", policy="default"))
        )
        for _ in range(3):
            loss = compiled[0].call(rows).sum()
            loss.backward()
            update.step()
            update.zero_grad()
        fit = fit_of(observer)
    saved = [each for each in fit.allocations if each.kind == "saved activation"]
    assert 4 * ROWS * HIDDEN in [each.bytes for each in saved]
    spans = [each.span for each in saved if each.bytes == 4 * ROWS * HIDDEN]
    code: CodeType = Layers.forward.__code__
    assert {(span.file, span.line) for span in spans if span} == {(__file__, code.co_firstlineno + 1)}
    assert "tanh()" in linecache.getline(__file__, code.co_firstlineno + 1)
    assert bytes_of(fit, "parameter") == WEIGHTS


def test_a_step_with_two_optimizers_repeats_after_two_calls() -> None:
    with FakeTensorMode(), observing_memory() as observer:
        small, large = nn.Linear(4, 4), nn.Linear(64, 64)
        updates = [torch.optim.SGD(each.parameters(), 0.1) for each in (small, large)]
        for _ in range(3):
            for layer, update in zip((small, large), updates, strict=True):
                layer(torch.ones(2, layer.in_features)).sum().backward()
                update.step()
                update.zero_grad()
        assert period_of(observer) == 2
        assert fit_of(observer).step == 3


def test_values_that_fake_tensors_lack() -> None:
    with FakeTensorMode(), observing_memory() as observer:
        assert (torch.ones(3).sum().item(), torch.ones(3, dtype=torch.int64).sum().item()) == (0.0, 1)
        assert not (torch.ones(3).sum() > 2)
    assert sum(observer.placeholders.values_read.values()) == 3
    assert len(observer.placeholders.integers_read) == 1
    assert placeholder_value(torch.bfloat16) == 0.0


def test_working_memory_of_a_kernel_is_freed_at_once() -> None:
    """A product in which the left side has gaps copies it."""
    with FakeTensorMode(), observing_memory() as observer:
        gaps = torch.ones(32, 2 * WIDTH, 2)[:, ::2, 0]
        gaps @ torch.ones(WIDTH, WIDTH)
        fit = fit_of(observer)
    (working,) = [each for each in fit.allocations if each.kind == "working memory"]
    assert working.freed == working.made + 1
    assert working.bytes == 4 * 32 * WIDTH


def test_a_scalar_loss_keeps_the_storage_of_all_losses() -> None:
    """So does the real one, and autograd's caller usually holds it until the next step."""
    rows, targets = torch.ones(ROWS, WIDTH), torch.zeros(ROWS, WIDTH)
    real = nn.functional.mse_loss(rows, targets).untyped_storage().nbytes()
    with FakeTensorMode(allow_non_fake_inputs=True), observing_memory() as observer:
        loss = nn.functional.mse_loss(rows, targets)
        (life,) = [life for life in observer.lives if life.op == "aten.mse_loss.default" and not life.kind]
        (working,) = [life for life in observer.lives if life.kind == "working memory"]
        del loss
    assert (life.bytes, working.bytes) == (real, real) == (4 * ROWS * WIDTH, 4 * ROWS * WIDTH)


def test_statistics_of_a_mixed_precision_norm_are_float32() -> None:
    norm, rows = nn.LayerNorm(WIDTH), torch.ones(ROWS, WIDTH, dtype=torch.bfloat16)
    real = torch.native_layer_norm(rows, [WIDTH], norm.weight, norm.bias, 1e-5)
    with FakeTensorMode(allow_non_fake_inputs=True), observing_memory() as observer:
        fakes = torch.native_layer_norm(rows, [WIDTH], norm.weight, norm.bias, 1e-5)
        lives = [life.bytes for life in observer.lives if life.op == "aten.native_layer_norm.default"]
        del fakes
    assert lives == [tensor.untyped_storage().nbytes() for tensor in real]

"""The step's memory as the observer notes it, in exact bytes, on fake tensors and on real ones."""

import copy
import linecache
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import aotlens
from aotlens.fit.observer import observing_memory
from aotlens.fit.step import fit_of
from aotlens.model.fit import Fit
from aotlens.options import CompileOptions
from aotlens.torch_api.fake.tensors import FakeTensorMode

WEIGHT, HIDDEN = 4 * 8 * 16, 4 * 32 * 16
"""Bytes of the layer's weight, and of what it returns for 32 rows."""


def training_steps(is_fake: bool, steps: int = 3) -> Fit:
    """Train one layer, whose weight is the only parameter."""
    with FakeTensorMode() if is_fake else nullcontext(), observing_memory() as observer:
        layer = nn.Linear(8, 16, bias=False)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9, foreach=False)
        rows = torch.ones(32, 8)
        for _ in range(steps):
            optimizer.zero_grad()
            layer(rows).relu().sum().backward()
            optimizer.step()
        return fit_of(observer, is_fake)


@pytest.mark.parametrize("is_fake", [True, False])
def test_kinds_add_up_to_the_peak(is_fake: bool) -> None:
    fit = training_steps(is_fake)
    kinds = {(row.kind, row.state): row.bytes for row in fit.by_kind}
    assert fit.step_peak_bytes == sum(kinds.values()) == sum(row.bytes for row in fit.by_line)
    assert kinds["parameter", ""] == WEIGHT
    assert kinds["optimizer state", "momentum_buffer"] == WEIGHT


def test_fake_tensors_predict_what_real_ones_take() -> None:
    fake, real = training_steps(is_fake=True), training_steps(is_fake=False)
    assert (fake.step_peak_bytes, fake.at.phase, fake.at.op) == (
        real.step_peak_bytes,
        real.at.phase,
        real.at.op,
    )
    assert [point.live_bytes for point in fake.curve] == [point.live_bytes for point in real.curve]


def test_step_repeats_and_releases_what_it_saved() -> None:
    fit = training_steps(is_fake=True, steps=4)
    saved = [each for each in fit.allocations if each.kind == "saved activation" and each.bytes == HIDDEN]
    assert fit.is_periodic
    assert saved
    assert all(each.freed is not None for each in saved)


def test_backward_names_the_line_of_its_forward() -> None:
    fit = training_steps(is_fake=True)
    spans = {
        each.span for each in fit.allocations if each.phase == "backward" and each.op.startswith("aten.mm")
    }
    (span,) = spans
    assert span is not None
    assert span.file == __file__
    assert linecache.getline(span.file, span.line)[span.col : span.end_col] == "layer(rows)"


def test_each_micro_batch_has_its_own_forward_and_backward() -> None:
    with FakeTensorMode(), observing_memory() as observer:
        layer = nn.Linear(8, 16, bias=False)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=False)
        rows = torch.ones(32, 8)
        for _ in range(2):
            for _ in range(2):
                layer(rows).relu().sum().backward()
            optimizer.step()
        phases = [point.phase for point in fit_of(observer).curve]
    changes = [phase for phase, before in zip(phases, ["", *phases], strict=False) if phase != before]
    assert changes[:4] == ["forward", "backward", "forward", "backward"]


def test_two_steps_are_too_few_to_repeat() -> None:
    assert not training_steps(is_fake=True, steps=2).is_periodic


def penalty_steps(compiled: bool) -> Fit:
    """Train on the gradient of an energy, a double backward."""
    with FakeTensorMode(), observing_memory() as observer:
        net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1))
        energy = aotlens.compile(net, options=CompileOptions("eager")) if compiled else net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
        for _ in range(4):
            rows = torch.ones(128, 2, requires_grad=True)
            (slope,) = torch.autograd.grad(energy(rows).sum(), rows, create_graph=True)
            slope.pow(2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return fit_of(observer, is_fake=True)


def test_recording_a_derivative_is_not_counted() -> None:
    fit, eager = penalty_steps(compiled=True), penalty_steps(compiled=False)
    assert fit.step_peak_bytes <= eager.step_peak_bytes


def test_the_weights_of_a_copy_are_parameters() -> None:
    with observing_memory() as observer:
        layer = nn.Linear(8, 16, bias=False)
        average = copy.deepcopy(layer).requires_grad_(False)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=False)
        for _ in range(3):
            layer(torch.ones(32, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            average.weight.lerp_(layer.weight.detach(), 0.1)
        fit = fit_of(observer, is_fake=False)
    assert {row.kind: row.bytes for row in fit.by_kind}["parameter"] == 2 * WEIGHT

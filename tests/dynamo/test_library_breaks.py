"""Graph breaks inside a library: at the user's call, with a hint that needs no edit of the library."""

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from aotlens.dynamo.break_messages import message_parts
from aotlens.dynamo.breaks import Breaks
from aotlens.model.dynamo import Break
from aotlens.model.spans import location
from aotlens.session.dynamo.log import DynamoLog
from aotlens.torch_api.dynamo.events import DynamoLoss

LIBRARY = """\
import contextlib

import torch


class Layer(torch.nn.Module):
    @contextlib.contextmanager
    def hooks(self):
        yield

    def forward(self, x):
        with self.hooks():
            for part in x:
                if part.sum() > 1:
                    x = x + part
        return x


def total(x):
    return x + x.sum().item()
"""


@pytest.fixture
def library(tmp_path: Path) -> Iterator[ModuleType]:
    """An installed package."""
    torch._dynamo.reset()
    file = tmp_path / "site-packages" / "layers" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(LIBRARY)
    spec = importlib.util.spec_from_file_location("layers", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["layers"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["layers"]
    torch._dynamo.reset()


def breaks_of(function: Callable[..., Any]) -> tuple[Break, ...]:
    log = DynamoLog()
    with log.listening():
        compiled = torch.compile(function, backend="eager")
        compiled(torch.ones(2))
    dynamo = log.dynamo()
    assert dynamo is not None
    return dynamo.breaks


def test_a_context_manager_of_a_library_in_eager_is_no_break_of_its_own(library: ModuleType) -> None:
    (entry,) = breaks_of(library.Layer())
    assert (entry.text, entry.code, entry.effect) == (
        "compiled(torch.ones(2))",
        "GB0170",
        "function in eager",
    )
    assert "newer release" in entry.hint
    assert [location(line.span) for line in entry.related] == ["layers/__init__.py:14:20"]


def test_a_setting_is_the_hint_where_the_users_code_calls_a_library(library: ModuleType) -> None:
    def calls(x: torch.Tensor) -> torch.Tensor:
        return library.total(x) * 2

    (entry,) = breaks_of(calls)
    assert (entry.text, entry.code) == ("library.total(x)", "GB0124")
    assert entry.hint == "set `torch._dynamo.config.capture_scalar_outputs = True`"


def test_code_of_torchs_that_runs_at_a_break_is_not_split_too() -> None:
    call = traceback.FrameSummary(__file__, breaks_of.__code__.co_firstlineno + 4, "breaks_of")
    below = traceback.FrameSummary(torch.autograd.__file__, 1, "grad")
    breaks = Breaks()
    breaks.add(DynamoLoss(breaks_of.__code__, (call,), "Graph break", "Attempted to call it", "0/0"))
    breaks.add(DynamoLoss(torch.autograd.grad.__code__, (call, below), None, "Attempted to inline", "1/0"))
    (facts,) = breaks
    assert (list(facts.splits), facts.related, facts.effect) == (["breaks_of"], (), "graph split")


def test_the_path_of_a_package_is_short_in_a_reason() -> None:
    message = (
        "Attempted to inline function marked as skipped\n  Explanation: Dynamo developers marked that the"
        " function `f` in file `/env/lib/python3.11/site-packages/torch/nn/utils/rnn.py` is not traced.\n"
    )
    assert message_parts(message)[1].endswith(
        "the function `f` in file `torch/nn/utils/rnn.py` is not traced"
    )


def test_a_guard_on_a_module_of_torchs_names_it_self() -> None:
    torch._dynamo.reset()
    log, net = DynamoLog(), nn.Sequential(nn.BatchNorm1d(2))
    with log.listening():
        compiled = torch.compile(net, backend="eager")
        compiled(torch.ones(3, 2))
        net.eval()
        compiled(torch.ones(3, 2))
    dynamo = log.dynamo()
    assert dynamo is not None
    (function,) = dynamo.functions
    causes = [entry.cause.name for entry in function.compilations if entry.cause is not None]
    assert causes == ["self[0].training"]


def test_a_break_in_a_layer_of_torchs_needs_no_edit_of_the_layer() -> None:
    torch._dynamo.reset()
    layer = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def encoded(x: torch.Tensor) -> torch.Tensor:
        return encoder(x[:, None].expand(1, 2, 4), mask=torch.zeros(2, 2)) * 2

    (entry,) = breaks_of(encoded)
    assert entry.text.startswith("encoder(x")
    assert entry.hint == "set `torch._dynamo.config.capture_scalar_outputs = True`"

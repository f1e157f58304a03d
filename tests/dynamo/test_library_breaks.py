"""Graph breaks inside a library: at the user's call, with a hint that needs no edit of the library."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from aotlens.model.dynamo import Break
from aotlens.model.spans import location
from aotlens.session.dynamo.log import DynamoLog

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

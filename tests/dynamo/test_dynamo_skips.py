"""What Dynamo gives up without a word is told with its line; a graph break is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from aotlens.options import CompileOptions
from aotlens.session.verify_targets import verify_targets

SCRIPT = """\
import torch
from torch import nn

lstm = nn.LSTM(4, 4)


@torch.compile
def run(x):
    return lstm(x * 2)[0].sum()


@torch.compile
def broken(x):
    y = x * 2
    print("a graph break")
    return y + 1


@torch.compile
def never_called(x):
    return lstm(x)


run(torch.randn(3, 2, 4))
broken(torch.randn(3))
torch.compile(lstm)(torch.randn(3, 2, 4))
"""


@pytest.fixture(autouse=True)
def _dynamo_as_before() -> Iterator[None]:
    """Once Dynamo has left an `LSTM` out, it leaves out the outer frame of all that has one of torch's: eager
    `strict_mode`, which goes through `torch.compile`, raises from then on, until the reset.
    """
    yield
    torch.compiler.reset()


def test_functions_and_modules_without_a_graph(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = verify_targets(str(script), None, [], CompileOptions("eager"))
    compared = [
        name for name, verdict in found.verdicts if verdict is not None and verdict.outcome == "equal"
    ]
    assert compared == ["broken", "broken after line 15"]  # the two sides of the break
    function, module = found.failures
    assert (function.kind, function.file, function.line) == ("left-out", str(script), 9)
    assert f"{script}:9: Dynamo does not compile `run`, so there is no graph of it" in function.message
    assert "RNN, GRU, or LSTM" in function.message
    assert (module.kind, module.line) == ("left-out", 26)
    assert "Dynamo does not compile `LSTM`, so there is no graph of it" in module.message


LAYERS = """\
import torch
from torch import nn

x = torch.randn(3, 2, 4)
seen, recurrent, unused, skipped = map(torch.compile, (nn.Linear(4, 4), nn.LSTM(4, 4), nn.Tanh(), nn.ReLU()))
seen(x)
recurrent(x)
skipped(x)
"""


def test_a_layer_left_out_is_told_by_its_name_and_what_dynamo_skips_after_it_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(LAYERS)
    found = verify_targets(str(script), None, [], CompileOptions("eager"))
    outcomes = {name: verdict.outcome for name, verdict in found.verdicts if verdict is not None}
    assert outcomes["Linear"] == "equal"
    assert [name for name, outcome in outcomes.items() if outcome == "not verified"] == [
        "LSTM",
        "ReLU",
        "Tanh",
    ]
    recurrent, skipped = (failure.message for failure in found.failures)
    assert "Dynamo does not compile `LSTM`, so there is no graph of it: Dynamo does not" in recurrent
    assert "torch._dynamo.config.allow_rnn=True" in recurrent
    assert "Dynamo does not compile `ReLU`, so there is no graph of it: after `LSTM`" in skipped

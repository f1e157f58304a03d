"""Where functions are compiled, layers whose `compile()` has no effect, calls after the recompile limit."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._dynamo.eval_frame import set_guard_complete_hook

from aotlens.fixes.compiled_calls import calls_of, compile_sites, dynamic_edit
from aotlens.fixes.source import Source
from aotlens.model.dynamo import Dynamo, DynamoFunction
from aotlens.model.eager import NotCompiled
from aotlens.model.spans import text_of
from aotlens.session.dynamo.log import DynamoLog

LIMIT = 8


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def observed(run: Callable[[], Any]) -> Dynamo:
    log = DynamoLog()
    with log.listening():
        run()
    dynamo = log.dynamo()
    assert dynamo is not None
    return dynamo


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        return x + self.step


def by_name(dynamo: Dynamo) -> dict[str, DynamoFunction]:
    return {function.name: function for function in dynamo.functions}


def test_calls_after_the_limit_are_counted_by_function() -> None:
    """Calls that an earlier compilation serves, and those of the module itself, are not."""
    x, module = torch.ones(2), Counter()

    def texts(x: torch.Tensor, text: str) -> torch.Tensor:
        return x * len(text)

    def once(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def run() -> None:
        counter, others, single = (torch.compile(f, backend="eager") for f in (module, texts, once))
        for call in range(LIMIT + 5):
            counter(x)
            single(x)
            others(x, "a" * call)
        others(x, "aa")
        module(x)

    functions = by_name(observed(run))
    counts = {name: (entry.limit_hit, entry.eager_calls) for name, entry in functions.items()}
    assert counts == {"Counter": (True, 5), "texts": (True, 5), "once": (False, None)}


def test_run_says_how_many_calls_ran_in_eager() -> None:
    log = DynamoLog()
    with log.listening():
        counter = torch.compile(Counter(), backend="eager")
        for _ in range(LIMIT + 3):
            counter(torch.ones(2))
    (record,) = log.records
    assert (record.name, record.cause, record.calls) == ("Counter", "recompile limit", 3)
    assert "(8, `torch._dynamo.config.recompile_limit`)" in record.reason


def test_a_profiler_leaves_the_number_of_calls_in_eager_unknown() -> None:
    def run() -> None:
        counter = torch.compile(Counter(), backend="eager")
        for _ in range(LIMIT + 1):
            counter(torch.ones(2))
        profiler = seen.append
        sys.setprofile(lambda frame, event, argument: profiler(event))
        try:
            counter(torch.ones(2))
        finally:
            sys.setprofile(None)

    seen: list[str] = []
    function = by_name(observed(run))["Counter"]
    assert (function.limit_hit, function.eager_calls) == (True, None)
    assert seen  # it goes on


def test_the_hook_for_the_limit_is_removed() -> None:
    def run() -> None:
        counter = torch.compile(Counter(), backend="eager")
        for _ in range(LIMIT + 2):
            counter(torch.ones(2))

    observed(run)
    assert set_guard_complete_hook(None) is None
    assert sys.getprofile() is None


def test_where_functions_and_modules_are_compiled() -> None:
    def run() -> None:
        @torch.compile(backend="eager")
        def decorated(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        def passed(x: torch.Tensor) -> torch.Tensor:
            return x + 2

        first, second, layer = Counter(), nn.Linear(2, 2), torch.compile(passed, backend="eager")
        first.compile(backend="eager")
        for called in (decorated, layer, first, torch.compile(second, backend="eager")):
            called(torch.ones(2))

    functions = by_name(observed(run))
    sites = {name: [text_of(span) for span in entry.compiled_at] for name, entry in functions.items()}
    assert sites == {
        "decorated": ['torch.compile(backend="eager")'],
        "passed": ['torch.compile(passed, backend="eager")'],
        "Counter": ['first.compile(backend="eager")'],
        "Linear": ['torch.compile(second, backend="eager")'],
    }


def test_a_layer_of_torchs_own_whose_compile_has_no_effect() -> None:
    """Up to 2.13, torch compiles nothing then, and prints nothing."""
    captured = []

    def backend(graph: Any, inputs: Any) -> Any:
        captured.append(graph)
        return graph.forward

    log = DynamoLog()
    with log.listening():
        layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        layers.compile(backend=backend)
        layers(torch.ones(2))
    dynamo = log.dynamo()
    assert dynamo is not None
    (function,) = dynamo.functions
    assert (function.name, len(function.compilations)) == ("Sequential", len(captured))
    assert [text_of(span) for span in function.compiled_at] == ["layers.compile(backend=backend)"]
    if captured:
        assert (function.skipped, log.records) == ((), ())
        return
    (skipped,) = function.skipped
    assert (skipped.name, text_of(skipped.span), skipped.is_loss) == (
        "Sequential",
        "layers.compile(backend=backend)",
        True,
    )
    (record,) = log.records
    assert isinstance(record, NotCompiled)
    assert (record.name, record.cause, record.span) == ("Sequential", "skipped", skipped.span)


SCRIPT = """\
import re
import torch
pattern = re.compile("a")
model = Net()
model.compile(fullgraph=True)
model(torch.ones(2))
"""


def test_the_edit_for_dynamic_sizes_of_a_module(tmp_path: Path) -> None:
    source = Source(str(tmp_path / "script.py"), SCRIPT)
    (site,) = compile_sites(source, None)
    edit = dynamic_edit(source, site)
    assert edit is not None
    line = SCRIPT.splitlines()[edit.span.line - 1]
    assert line[: edit.span.col] + edit.text + line[edit.span.end_col :] == (
        "model.compile(fullgraph=True, dynamic=True)"
    )
    assert [source.code(call) for call in calls_of(source, None)] == ["model(torch.ones(2))"]


def test_code_in_eager_has_the_reason_and_the_hint_of_why() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if x.sum() > 0 else x.cos()

    log = DynamoLog()
    with log.listening():
        torch.compile(branches, backend="eager")(torch.ones(2))
    (record,) = log.records
    dynamo = log.dynamo()
    assert dynamo is not None
    (entry,) = dynamo.breaks
    assert record.reason == f"{entry.reason}; {entry.hint}"

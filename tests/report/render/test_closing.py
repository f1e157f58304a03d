"""The table that `aotlens run` ends with: one row a function, and before it what did not go well."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from aotlens.model.eager import NotCompiled
from aotlens.model.report import GraphId, Span, Target, Verdict
from aotlens.model.target_facts import CacheAnswer
from aotlens.render.text.closing import Closing, closing_text, print_closing
from aotlens.render.text.layout import path_end
from aotlens.view.functions import by_function
from aotlens.view.quantities import bytes_range
from tests.conftest import Golden
from tests.report.sample import sample_report, span

BLOCK, SCORE = sample_report().targets
EQUAL = Verdict("equal", "3 values, 4 gradients, 2 mutated inputs (max error 0)")


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are shown relative to the current folder."""
    monkeypatch.chdir(Path(__file__).parents[3])


def compiled(frame: int, compilation: int, line: int | None = None) -> Target:
    """One graph of `Block`, or of what follows a break in it, for a batch of its own size."""
    assert BLOCK.partition is not None
    first, *rest = BLOCK.inputs
    assert first.tensor is not None
    after = f" after line {line}" if line is not None else ""
    return replace(
        BLOCK,
        frontend="dynamo",
        name=f"Block{after}",
        qualname=f"Block.forward{after}",
        span=BLOCK.span if line is None else replace(_span(), line=line, end_line=line),
        inputs=(replace(first, tensor=replace(first.tensor, shape=(8 * (compilation + 1), 16))), *rest),
        partition=replace(BLOCK.partition, saved_bytes=8192 * (compilation + 1)),
        graph=GraphId(frame, compilation),
        cache_answer=CacheAnswer("hit", cold_ms=2000.0)
        if frame == 0
        else CacheAnswer("not stored", "it calls a custom operator"),
    )


def _span() -> Span:
    assert BLOCK.span is not None
    return BLOCK.span


def twelve_graphs() -> list[Target]:
    """Three graphs of `Block`, each compiled four times."""
    lines = (None, 14, 20)
    return [compiled(frame, number, line) for number in range(4) for frame, line in enumerate(lines)]


GRU = NotCompiled(
    "Encoder",
    "Encoder.forward",
    "graph break",
    "Dynamo captures no `torch.nn.GRU`",
    "AL403",
    span("x + self.down(gated)"),
    3,
)
GRAPH = NotCompiled("Head", "Head.forward", "unsupported", "sparse tensors", "AL402", None)


def test_a_function_and_nothing_to_remark(golden: Golden) -> None:
    closing = Closing((BLOCK,), (EQUAL,))
    golden("report/closing_clean.txt", closing_text(closing))


def test_everything_at_once(golden: Golden) -> None:
    targets = [*twelve_graphs(), SCORE]
    differs = Verdict("differs", "out differs by 0.5 at [0, 1]\nfirst at stage joint")
    verdicts = [differs, *[EQUAL] * 11, Verdict("not verified", "the data changed while it ran")]
    closing = Closing(targets, verdicts, (GRU, GRU, GRAPH))
    golden("report/closing.txt", closing_text(closing))


def test_each_graph(golden: Golden) -> None:
    targets = twelve_graphs()[:4]
    golden("report/closing_verbose.txt", closing_text(Closing(targets, [EQUAL] * 4, is_verbose=True)))


def test_nothing_compiled() -> None:
    assert closing_text(Closing(())) == "aotlens: nothing was compiled\n"
    lines = closing_text(Closing((), (), (GRAPH,))).splitlines()
    assert lines == [
        "aotlens: nothing was compiled",
        "Not compiled",
        "  Head  unsupported",
        "      sparse tensors [AL402]",
    ]


def test_the_graphs_of_a_function() -> None:
    (function,) = by_function(twelve_graphs())
    assert (function.name, function.span, function.counts, function.recompilations) == (
        "Block",
        BLOCK.span,
        "3 graphs × 4 compilations",
        9,
    )
    assert {graph.differing for graph in function.graphs} == {(BLOCK.inputs[0].name,)}
    (fewer,) = by_function(twelve_graphs()[:-1])
    assert fewer.counts == "3 graphs, 11 compilations"


def test_what_follows_a_break_belongs_to_the_definition_above_it() -> None:
    moved = replace(_span(), line=30, end_line=30)
    later = replace(compiled(3, 0), span=moved)
    after = replace(compiled(4, 0, 34), span=replace(moved, line=34, end_line=34))
    functions = by_function([*twelve_graphs(), later, after])
    assert [(function.span, len(function.targets)) for function in functions] == [(_span(), 12), (moved, 2)]


def test_a_call_of_another_kind_within_one_graph_is_a_compilation_of_it() -> None:
    other = replace(compiled(0, 0), graph=None)
    (function,) = by_function([compiled(0, 0), other])
    assert function.counts == "1 graph × 2 compilations"


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [
        (8192, 24576, "8 to 24 KiB"),
        (8192, 25000, "8.0 to 24.4 KiB"),
        (512, 2048, "512 B to 2.0 KiB"),
        (0, 0, "0 B"),
        (1, 9, "1 to 9 B"),
    ],
)
def test_a_range_of_sizes(least: int, most: int, text: str) -> None:
    assert bytes_range(least, most) == text


def test_a_terminal_gets_colour_and_its_own_width() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=70)
    print_closing(Closing(twelve_graphs()), console)
    assert isinstance(console.file, io.StringIO)
    assert "\x1b[" in console.file.getvalue()


@pytest.mark.parametrize(
    ("width", "shown"),
    [(40, "a/folder/and/file.py"), (16, "…/and/file.py"), (9, "…/file.py"), (3, "file.py")],
)
def test_the_end_of_a_long_path_is_shown(width: int, shown: str) -> None:
    assert path_end("a/folder/and/file.py", width) == shown

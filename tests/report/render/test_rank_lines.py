"""The section on ranks, and its findings, on records made by hand."""

from aotlens.diagnostics.tracing import rank_findings
from aotlens.model.ranks import (
    Collective,
    CollectiveMismatch,
    GraphDifference,
    PhaseImbalance,
    RankCompilation,
    Ranks,
)
from aotlens.model.source import Span
from aotlens.render.text.layout import Page, to_text
from aotlens.render.text.ranks import rank_lines
from aotlens.view.ranks import rank_names, ranks_summary

HERE, THERE = Span("tp.py", 19, 4, 19, 20), Span("tp.py", 18, 4, 18, 20)
AGREEING = Ranks(
    (0, 1, 2),
    (RankCompilation("0/0", "step", HERE, (0, 1, 2)),),
    phases=(PhaseImbalance("Dynamo", 2, 1.5, 0.5),),
    collectives=(
        Collective("all_reduce", "sum", "f32[8, 16]", 512, "0", "forward", "0/0", (0, 1, 2), HERE),
        Collective("all_gather_into_tensor", "", "f32[s0]", None, "0", "forward", "0/0", (0, 1, 2), None),
    ),
)
DIFFERENT = Ranks(
    (0, 1),
    (RankCompilation("0/0", "step", HERE, (0,)), RankCompilation("0/0", "step", HERE, (1,))),
    (GraphDifference("0/0", "step", "captured", (0,), (1,), "`y` = matmul", "`z` = mul", HERE, THERE),),
    mismatches=(CollectiveMismatch(2, 0, 1, "all_reduce f32[8]", "no further collective", HERE, None),),
)


def test_ranks_that_agree_are_one_line_with_their_times_and_collectives() -> None:
    assert to_text(rank_lines(AGREEING, Page(is_full=False))) == (
        "── Ranks " + "─" * 57 + " 3 ranks compiled the same graph\n"
        "Slowest rank in each phase of compilation\n"
        "  Dynamo  rank 2  1.5 s  median 500 ms\n"
        "\n"
        "Collectives  2 operations, 512 B on each rank\n"
        "  1  all_reduce sum          f32[8, 16]    512 B  forward 0/0  tp.py:19:5\n"
        "  2  all_gather_into_tensor  f32[s0]     unknown  forward 0/0\n"
        "\n"
    )


def test_what_differs_comes_first_with_both_lines() -> None:
    text = to_text(rank_lines(DIFFERENT, Page()))
    assert "2 ranks, 1 of 1 compilations differ" in text
    assert text.index("Different collectives") < text.index("Different graphs") < text.index("Compiled by")
    assert "rank 0 has `y` = matmul, rank 1 has `z` = mul" in text
    assert "      rank 0: tp.py:19:5\n      rank 1: tp.py:18:5\n" in text


def test_the_shortest_page_shows_both_sides() -> None:
    text = to_text(rank_lines(DIFFERENT, Page(is_full=False, scale=0.1)))
    assert "  0/0  step  rank 0  tp.py:19:5\n  0/0  step  rank 1  tp.py:19:5\n" in text


def test_each_difference_is_a_finding_at_its_line() -> None:
    assert rank_findings(None) == rank_findings(AGREEING) == ()
    collective, graph = rank_findings(DIFFERENT)
    assert (collective.code, collective.severity, collective.span) == ("AL411", "error", HERE)
    assert collective.message == (
        "ranks run different collectives: collective 2: rank 0 runs all_reduce f32[8], rank 1 runs no further"
        " collective"
    )
    assert (graph.code, graph.span, graph.related[0].span) == ("AL410", HERE, THERE)


def test_names_of_ranks() -> None:
    assert rank_names((3,)) == "rank 3"
    assert rank_names((0, 1)) == "ranks 0, 1"
    assert rank_names(tuple(range(8))) == "ranks 0 to 7"
    assert rank_names((0, 2, 5)) == "ranks 0, 2, 5"
    assert rank_names(tuple(range(0, 24, 2))) == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 4 more"


def test_the_summary_counts_compilations() -> None:
    assert ranks_summary(AGREEING) == "3 ranks compiled the same graph"
    assert ranks_summary(DIFFERENT) == "2 ranks, 1 of 1 compilations differ"

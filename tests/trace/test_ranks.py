"""The ranks of a run, from logs of two processes."""

import gzip
import re
import shutil
from pathlib import Path

from aotlens.trace.build import build_report
from aotlens.trace.listing import summaries
from aotlens.trace.logs.reader import Trace, open_trace
from aotlens.trace.ranks import ranks_of
from aotlens.trace.source.lines import whole_line

LOG = Path(__file__).parent / "logs" / "tensor_parallel-aot_eager"

NEXT_DIGIT = dict(zip("0123456789abcdef", "123456789abcdef0", strict=True))
"""Makes a checksum another text's."""


def _trace(folder: Path, *replacements: tuple[str, str]) -> Trace:
    """Rank 0's log twice: as it is, and with other text as rank 1."""
    (log,) = LOG.glob("*rank_0_*")
    text = gzip.decompress(log.read_bytes()).decode()
    (folder / "dedicated_log_torch_trace_rank_0_a.log").write_text(text)
    for old, new in (('"rank": 0', '"rank": 1'), *replacements):
        assert old in text
        text = text.replace(old, new)
    text = re.sub('"has_payload": "(.)', lambda match: f'"has_payload": "{NEXT_DIGIT[match[1]]}', text)
    (folder / "dedicated_log_torch_trace_rank_1_b.log").write_text(text)
    return open_trace(folder)


def test_the_first_node_that_differs_is_named_with_both_lines() -> None:
    ranks = ranks_of(open_trace(LOG), whole_line)
    assert ranks is not None
    assert [(row.compile_id, row.ranks) for row in ranks.compilations] == [("0/0", (0,)), ("0/0", (1,))]
    (difference,) = ranks.differences
    assert (difference.graph, difference.text, difference.other_text) == (
        "captured",
        "`partial` = matmul f32[8, 16]",
        "`hidden_1` = mul f32[8, 32]",
    )
    assert difference.span is not None
    assert difference.other_span is not None
    assert (difference.span.line, difference.other_span.line) == (19, 18)


def test_collectives_are_listed_in_order_with_bytes_and_all_ranks() -> None:
    ranks = ranks_of(open_trace(LOG), whole_line)
    assert ranks is not None
    assert [(row.op, row.detail, row.tensor, row.bytes, row.ranks) for row in ranks.collectives] == [
        ("all_reduce", "sum", "f32[8, 16]", 512, (0, 1)),
        ("all_gather_into_tensor", "", "f32[8, 16]", 1024, (0, 1)),
    ]
    assert ranks.mismatches == ()
    assert {row.span.line for row in ranks.collectives if row.span is not None} == {19}


def test_graphs_that_differ_in_a_groups_name_alone_are_one_target(tmp_path: Path) -> None:
    trace = _trace(tmp_path, ("'sum', '0')", "'sum', '17')"))
    ranks = ranks_of(trace, whole_line)
    assert ranks is not None
    assert ranks.agree
    assert [summary.ranks for summary in summaries(trace)] == [(0, 1)]


def test_different_collectives_are_an_error_at_their_position(tmp_path: Path) -> None:
    trace = _trace(tmp_path, ("'sum', '0')", "'max', '0')"))
    report = build_report(trace, "")
    assert report.ranks is not None
    (mismatch,) = report.ranks.mismatches
    assert (mismatch.position, mismatch.text, mismatch.other_text) == (
        1,
        "all_reduce f32[8, 16] (sum)",
        "all_reduce f32[8, 16] (max)",
    )
    assert [finding.code for finding in report.diagnostics[:2]] == ["AL411", "AL410"]


def test_a_rank_that_compiled_nothing_under_an_id_differs(tmp_path: Path) -> None:
    trace = _trace(tmp_path, ('"frame_id": 0', '"frame_id": 7'))
    ranks = ranks_of(trace, whole_line)
    assert ranks is not None
    assert [(row.compile_id, row.text, row.other_text) for row in ranks.differences] == [
        ("0/0", "a graph", "no graph"),
        ("7/0", "a graph", "no graph"),
    ]


def test_every_phase_names_the_slowest_rank() -> None:
    ranks = ranks_of(open_trace(LOG), whole_line)
    assert ranks is not None
    assert {"Dynamo", "AOT"} <= {row.phase for row in ranks.phases}
    assert all(row.slowest in (0, 1) and row.slowest_s >= row.median_s > 0 for row in ranks.phases)


def test_one_process_has_no_ranks(tmp_path: Path) -> None:
    (log,) = LOG.glob("*rank_0_*")
    shutil.copy(log, tmp_path)
    assert ranks_of(open_trace(tmp_path), whole_line) is None

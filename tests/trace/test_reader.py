"""Reading a log: what is split, found again by offset, and said of what is damaged."""

import gzip
from pathlib import Path

import pytest

from aotlens.errors import UserError
from aotlens.model.log import RecordKind
from aotlens.trace.logs import kinds, log_file, scan
from aotlens.trace.logs.kinds import unused_kinds
from aotlens.trace.logs.reader import Trace, is_trace, open_trace
from tests.trace.log_text import ARTIFACT, compiled, record

CACHES = ("fx_graph_cache", "aotautograd_cache")
GRAPH = "class GraphModule(torch.nn.Module):\n\n    def forward(self):\n        return ()\n"


def log_of(folder: Path, text: str, name: str = "a.log") -> Trace:
    (folder / name).write_text(text)
    return open_trace(folder / name)


def simple() -> str:
    return (
        record("str", ["/home/u/net.py", 1])
        + record("torch_version", ARTIFACT, '{"pytorch_version": "2.13.0"}')
        + record("dynamo_start", {"stack": [{"line": 3, "name": "f", "filename": 1}]}, None, **compiled())
        + record("dynamo_output_graph", {"sizes": {}}, GRAPH, **compiled())
        + record("aot_forward_graph", {}, GRAPH, **compiled(attempt=1))
    )


def test_records_are_grouped_by_compilation_and_read_on_demand(tmp_path: Path) -> None:
    trace = log_of(tmp_path, simple())
    (process,) = trace.processes
    (compilation,) = process.compilations
    start, graph = compilation.last("dynamo_start"), compilation.last("dynamo_output_graph")
    assert start is not None
    assert graph is not None
    assert (process.torch_version, process.pid, compilation.id, compilation.attempt) == (
        "2.13.0",
        "7",
        "0/0",
        1,
    )
    assert process.frames(start)[0].file == "/home/u/net.py"
    assert process.text(graph) == GRAPH
    assert trace.is_whole(graph)
    assert trace.notes == ()


def test_a_compressed_log_reads_as_the_plain_one(tmp_path: Path) -> None:
    plain = log_of(tmp_path, simple())
    (tmp_path / "b.bin").write_bytes(gzip.compress(simple().encode()))
    packed = open_trace(tmp_path / "b.bin")
    for first, other in zip(
        plain.processes[0].compilations[0].records(),
        packed.processes[0].compilations[0].records(),
        strict=True,
    ):
        assert (first, plain.text(first)) == (other, packed.text(other))


def test_a_compressed_log_that_ends_early_gives_what_it_has(tmp_path: Path) -> None:
    text = simple() + "".join(
        record("x", {}, f"{index * 7919 % 1000003}", **compiled(1)) for index in range(3000)
    )
    data = gzip.compress(text.encode())
    (tmp_path / "a.log.gz").write_bytes(data[: len(data) // 2])
    trace = open_trace(tmp_path / "a.log.gz")
    assert trace.processes[0].compilations[0].id == "0/0"
    assert any("ends early" in note for note in trace.notes)


def test_damage_in_the_middle_of_a_compressed_log_is_a_note(tmp_path: Path) -> None:
    data = bytearray(gzip.compress((simple() * 4000).encode(), 1))
    data[len(data) // 2] ^= 0xFF
    data[len(data) // 2 + 1] ^= 0xFF
    (tmp_path / "a.log.gz").write_bytes(data)
    assert any("damaged" in note for note in open_trace(tmp_path / "a.log.gz").notes)


def test_the_last_record_may_be_cut_off(tmp_path: Path) -> None:
    text = simple()
    trace = log_of(tmp_path, text[: text.rindex("return ()")])
    graph = trace.processes[0].compilations[0].last("aot_forward_graph")
    assert graph is not None
    assert not trace.is_whole(graph)
    assert "cut off" in trace.notes[0]


def test_lines_of_other_programs_are_no_part_of_a_text(tmp_path: Path) -> None:
    text = simple().replace("\t    def forward", "\nValueError: from another process\n\t    def forward", 1)
    trace = log_of(tmp_path, "starting\n" + text)
    graph = trace.processes[0].compilations[0].last("dynamo_output_graph")
    assert graph is not None
    assert trace.text(graph) == GRAPH


def test_processes_in_one_log_are_told_apart(tmp_path: Path) -> None:
    text = "".join(
        record("dynamo_start", {}, None, pid=10 + rank, rank=rank, **compiled()) for rank in (1, 0)
    )
    trace = log_of(tmp_path, text)
    assert [(process.rank, process.pid) for process in trace.processes] == [(0, "10"), (1, "11")]


def test_ids_that_start_anew_are_other_compilations(tmp_path: Path) -> None:
    trace = log_of(tmp_path, simple() + simple())
    assert [(record.id, record.number) for record in trace.processes[0].compilations] == [
        ("0/0", 0),
        ("0/0", 1),
    ]


def test_a_log_that_grows_is_read_on(tmp_path: Path) -> None:
    text = simple()
    cut = text.index("def forward")
    trace = log_of(tmp_path, text[:cut])
    (tmp_path / "a.log").write_text(text)
    trace.refresh()
    records = trace.processes[0].compilations[0].records()
    assert [record.kind for record in records] == ["dynamo_start", "dynamo_output_graph", "aot_forward_graph"]
    assert trace.text(records[1]) == GRAPH
    assert trace.notes == ()


def test_records_of_any_length_cross_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way in which a block's end can fall within a record gives the same rows."""
    text = simple() + record("x", {}, "y" * 500, **compiled(1)) + simple()
    expected = _rows(log_of(tmp_path, text))
    monkeypatch.setattr(scan, "MAX_PENDING", 300)
    for size in range(1, 97, 5):
        monkeypatch.setattr(log_file, "BLOCK_BYTES", size)
        assert _rows(log_of(tmp_path, text)) == expected


def _rows(trace: Trace) -> list[tuple[str, str | None, str]]:
    table = trace.tables[0]
    records = [trace.record(row) for row in range(len(table))]
    return [(record.kind, record.compile_id, trace.text(record)) for record in records]


def test_a_folder_is_searched_by_content_and_no_link_is_followed(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "dedicated_log_torch_trace_rank_3_abc.log").write_text(simple())
    (folder / "notes.log").write_text("V is for victory\n")
    (tmp_path / "outside.log").write_text(simple())
    (folder / "link.log").symlink_to(tmp_path / "outside.log")
    trace = open_trace(folder)
    assert [process.rank for process in trace.processes] == [3]
    assert is_trace(folder)
    assert not is_trace(folder / "notes.log")


def test_a_folder_without_logs_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="TORCH_TRACE"):
        open_trace(tmp_path)


def test_kinds_that_the_report_does_not_use_are_listed(tmp_path: Path) -> None:
    others = ("vllm_piecewise", "vllm_piecewise", "link", "f_ORIGINAL_BYTECODE", "inductor_new_thing")
    trace = log_of(tmp_path, simple() + "".join(record(kind, ARTIFACT, "x", **compiled()) for kind in others))
    assert unused_kinds(trace.kinds()) == (
        RecordKind("vllm_piecewise", 2, is_known=False),
        RecordKind("f_ORIGINAL_BYTECODE", 1, is_known=True),
        RecordKind("inductor_new_thing", 1, is_known=True),
        RecordKind("link", 1, is_known=True),
    )


def test_every_kind_that_the_report_uses_is_in_the_code_that_reads_logs() -> None:
    """The kinds of caches are composed of two words."""
    folder = Path(kinds.__file__).parents[1]
    code = "".join(file.read_text() for file in folder.rglob("*.py") if file.name != "kinds.py")
    composed = {f"{cache}_{word}" for cache in CACHES for word in ("hit", "miss", "bypass")}
    assert [kind for kind in kinds.USED_KINDS - composed if f'"{kind}"' not in code] == []
    assert not kinds.USED_KINDS & kinds.OTHER_KINDS


def test_a_code_object_keeps_its_number_under_compiled_autograd(tmp_path: Path) -> None:
    """The ids begin with the number of the backward that compiled autograd compiles."""
    records = (
        record("dynamo_start", {"stack": []}, None, compiled_autograd_id=0, **compiled(frame, number))
        for frame, number in ((3, 0), (3, 1), (4, 0))
    )
    (process,) = log_of(tmp_path, "".join(records)).processes
    codes = {compilation.id: compilation.code_id for compilation in process.compilations}
    assert codes == {"!0/3/0": "!0/3", "!0/3/1": "!0/3", "!0/4/0": "!0/4"}

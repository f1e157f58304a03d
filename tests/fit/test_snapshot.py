"""Memory snapshots: who holds memory, and files that are refused before anything in them runs."""

import contextlib
import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlens.errors import UserError
from aotlens.fit.snapshot import is_snapshot, read_snapshot
from aotlens.fit.snapshot_child import read_in_child
from aotlens.model.memory_snapshot import FailedAllocation, Holder
from aotlens.model.report import Report
from aotlens.render.html.build import html_page
from aotlens.view.step_memory.snapshots import snapshot_lines
from tests.fit.snapshot_files import MIB, STACKS, block, failed_step, segment, write


def test_the_bytes_of_each_line_and_phase(tmp_path: Path) -> None:
    path = write(tmp_path / "step.pickle", failed_step())
    assert is_snapshot(str(path))
    (device,) = read_snapshot(str(path))
    assert device.holders == (
        Holder("optimizer", "/job/train.py", 22, "main", 48 * MIB, 1),
        Holder("compiled code", "/job/model.py", 41, "forward", 40 * MIB, 1),
        Holder("parameters", "/job/train.py", 9, "main", 24 * MIB, 1),
        Holder("not recorded", "", 0, "", 10 * MIB, 1),
        Holder("forward", "/job/model.py", 41, "forward", 6 * MIB, 1),
        Holder("backward", "/job/train.py", 20, "main", 3 * MIB, 1),
    )
    assert device.failure == FailedAllocation(5 * MIB, MIB, "/job/model.py", 41, "forward")
    assert (device.reserved_bytes, device.allocated_bytes) == (137 * MIB, 131 * MIB)
    assert (device.unused_bytes, device.largest_free_bytes) == (6 * MIB, 4 * MIB)


def test_a_child_reads_the_same(tmp_path: Path) -> None:
    path = str(write(tmp_path / "step.pickle", failed_step()))
    assert read_in_child(path) == read_snapshot(path)


def test_blocks_of_one_line_are_one_row_and_devices_are_apart(tmp_path: Path) -> None:
    data = {
        "segments": [
            segment(block(MIB, STACKS["forward"]), block(2 * MIB, STACKS["forward"])),
            segment(block(4 * MIB, STACKS["backward"]), device=1),
        ],
        "device_traces": [[], [], []],
    }
    first, second = read_snapshot(str(write(tmp_path / "two.pickle", data)))
    assert [(holder.size_bytes, holder.blocks) for holder in first.holders] == [(3 * MIB, 2)]
    assert (second.device, second.allocated_bytes, second.failure) == (1, 4 * MIB, None)


def test_the_answer_as_text(tmp_path: Path) -> None:
    (device,) = read_snapshot(str(write(tmp_path / "step.pickle", failed_step())))
    lines = list(snapshot_lines(device))
    assert lines[:2] == [
        "out of memory on device 0: 5.0 MiB were asked for at /job/model.py:41 in forward",
        "  the GPU had 1.0 MiB free outside of the memory that torch reserved",
    ]
    assert lines[2].startswith("  137.0 MiB reserved, 131.0 MiB of it in use; 6.0 MiB reserved and free, in ")
    assert lines[3].startswith("  enough was free, but in pieces: with PYTORCH_CUDA_ALLOC_CONF=expandable_")
    assert lines[5:8] == [
        "Alive, by the line that allocated it",
        "    48.0 MiB       1 block  optimizer  /job/train.py:22 in main",
        "    40.0 MiB       1 block  compiled code  /job/model.py:41 in forward",
    ]


class Hostile:
    """What a pickle that runs code looks like."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run",))


def test_a_pickle_that_would_run_code_is_refused_by_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "hostile.pickle", {"segments": [Hostile()], "device_traces": []})
    for read in (read_snapshot, read_in_child):
        with pytest.raises(UserError, match=r"nothing in it was run: it asks for `builtins\.print`"):
            read(str(path))
    assert "run\n" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([1, 2], "has no list of segments"),
        ({"segments": 3}, "has no list of segments"),
        ({"segments": [{"device": 0}]}, "KeyError"),
        ({"segments": [{"device": "0", "blocks": [], "total_size": 1}]}, "`device` is str"),
    ],
)
def test_what_is_no_snapshot_says_why(tmp_path: Path, data: object, why: str) -> None:
    with pytest.raises(UserError, match=why):
        read_snapshot(str(write(tmp_path / "other.pickle", data)))


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "cut.pickle"
    path.write_bytes(pickle.dumps(failed_step())[:200])
    with pytest.raises(UserError, match="damaged or cut short"):
        read_snapshot(str(path))
    with pytest.raises(UserError, match="cannot be read"):
        read_snapshot(str(tmp_path / "missing.pickle"))


@given(
    st.sampled_from((2, 4)), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_damaged_bytes_are_an_error_of_the_users(protocol: int, changes: list[tuple[int, int]]) -> None:
    data = bytearray(pickle.dumps(failed_step(), protocol))
    for position, value in changes:
        data[position % len(data)] = value
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(UserError):
            assert all(device.reserved_bytes or device.failure for device in read_snapshot(file.name))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x80\x02}]K\x01s.", r"damaged or cut short \(TypeError\)"),
        (b"\x80\x02X\x01\x00\x00\x00a)R.", r"damaged or cut short \(TypeError\)"),
        (b"\x80\x05\x96" + (1 << 60).to_bytes(8, "little") + b"a.", "asks for more memory"),
    ],
)
def test_opcodes_that_make_no_sense_say_so(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "odd.pickle"
    path.write_bytes(data)
    with pytest.raises(UserError, match=why):
        read_snapshot(str(path))


def test_names_that_would_act_on_a_terminal_are_made_safe(tmp_path: Path) -> None:
    frames = [{"filename": "/job/\x1b[31mred.py", "line": 1, "name": "f\x07"}]
    path = write(tmp_path / "names.pickle", {"segments": [segment(block(MIB, frames))], "device_traces": []})
    (device,) = read_snapshot(str(path))
    text = "\n".join(snapshot_lines(device))
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_page_shows_a_snapshot_without_a_script(tmp_path: Path) -> None:
    devices = read_snapshot(str(write(tmp_path / "step.pickle", failed_step())))
    page = html_page(Report("", "3.11", "fit step.pickle", memory_snapshots=devices), "step.pickle")
    assert "out of memory on device 0: 5.0 MiB were asked for at /job/model.py:41 in forward" in page
    assert "compiled code  /job/model.py:41 in forward" in page


REAL = Path(__file__).parent / "snapshots" / "h200-oom.pickle"
"""Written by torch 2.11 on an H200, when `train_oom.py` beside it asked for more than the GPU had."""


def test_a_snapshot_of_a_real_gpu() -> None:
    (device,) = read_snapshot(str(REAL))
    gib = 1 << 30
    assert [
        (row.phase, row.line, row.function, round(row.size_bytes / gib, 1)) for row in device.holders[:3]
    ] == [
        ("forward", 17, "forward", 96.0),
        ("forward", 24, "main", 8.0),
        ("parameters", 22, "main", 3.0),
    ]
    assert device.failure is not None
    assert (device.failure.size_bytes, device.failure.line) == (8 * gib, 17)
    assert round(device.reserved_bytes / gib) == 131

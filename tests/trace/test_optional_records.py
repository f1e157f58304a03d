"""A log without the records of any one kind still opens: every kind is optional."""

import gzip
import re
from pathlib import Path

import pytest

from aotlens.model.codec import dumps
from aotlens.render.text.report import Shown, report_text
from aotlens.trace.build import Extras, build_report
from aotlens.trace.logs.reader import open_trace
from aotlens.trace.partition_reasons import with_reasons

LOGS = Path(__file__).parent / "logs"
KIND = re.compile(rb'\] \{(?:"artifact": \{"name": )?"([^"]+)"')


def records(log: str) -> list[bytes]:
    (packed,) = (LOGS / log).iterdir()
    return re.split(rb"\n(?=V\d)", gzip.decompress(packed.read_bytes()).rstrip(b"\n"))


def kind(text: bytes) -> str:
    match = KIND.search(text[:400])
    assert match is not None
    return match[1].decode()


CASES = [(log, name) for log in ("net-inductor", "net-h100") for name in sorted(set(map(kind, records(log))))]


@pytest.mark.rotates
@pytest.mark.parametrize(("log", "missing"), CASES)
def test_a_log_without_one_kind_of_records_opens(tmp_path: Path, log: str, missing: str) -> None:
    others = [text for text in records(log) if kind(text) != missing]
    (tmp_path / "a.log").write_bytes(b"\n".join(others) + b"\n")
    report = build_report(open_trace(tmp_path / "a.log"), "test", extras=Extras(with_reasons))
    assert report.targets
    assert report_text(report, Shown(is_full=True)).strip()
    assert dumps(report)

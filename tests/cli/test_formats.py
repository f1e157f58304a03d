"""`aotlens inspect` on a saved report, and the formats of other programs."""

import json
from pathlib import Path

import pytest

from aotlens.model import dumps
from aotlens.render.model_explorer import model_explorer_text
from aotlens.render.perfetto import perfetto_text
from tests.command import aotlens
from tests.report.sample import sample_report


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "r.json").write_text(dumps(sample_report()), encoding="utf-8")
    return tmp_path


def test_a_saved_report_is_written_for_other_programs(folder: Path) -> None:
    ended = aotlens("inspect", "r.json", "--format", "model-explorer", "-o", "graphs.json", cwd=folder)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    graphs = json.loads((folder / "graphs.json").read_text())
    expected = json.loads(model_explorer_text(sample_report(), "r.json"))
    assert graphs["label"] == "r.json"
    assert [graph["id"] for graph in graphs["graphs"]] == [graph["id"] for graph in expected["graphs"]]
    ended = aotlens("inspect", "r.json", "--format", "perfetto", cwd=folder)
    names = [event["name"] for event in json.loads(ended.out)["traceEvents"]]
    assert names == [event["name"] for event in json.loads(perfetto_text(sample_report()))["traceEvents"]]


def test_one_target_of_a_saved_report(folder: Path) -> None:
    ended = aotlens("inspect", "r.json::score", "--format", "json", cwd=folder)
    assert [target["name"] for target in json.loads(ended.out)["targets"]] == ["score"]
    ended = aotlens("inspect", "r.json::step", cwd=folder)
    assert (ended.code, ended.err) == (2, "aotlens: error: no target step in r.json; it has Block, score\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("r.json", "--dynamic"),
            "r.json is a report, which is only shown: --dynamic needs a script to trace",
        ),
        (
            ("r.json", "--", "-n", "3"),
            "r.json is a report, which is only shown: -n, 3 needs a script to trace",
        ),
        (("no.json",), "cannot read no.json: No such file or directory"),
        (
            ("r.json", "--format", "perfetto", "--stage", "joint"),
            "--stage selects a part of the text: remove it, because the file has every part",
        ),
    ],
)
def test_mistakes(folder: Path, words: tuple[str, ...], message: str) -> None:
    ended = aotlens("inspect", *words, cwd=folder)
    assert (ended.code, ended.out, ended.err) == (2, "", f"aotlens: error: {message}\n")

"""Every command that takes a TARGET or a report takes a log."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.command import aotlens, python
from tests.trace.log_text import ARTIFACT, compiled, record

LOGS = Path(__file__).parent / "logs"
PHASES = ("dynamo", "backend_compile", "inductor_compile")
EAGER, INDUCTOR = LOGS / "net-aot_eager", LOGS / "net-inductor"


@pytest.mark.rotates
def test_inspect_shows_one_target_in_each_format(tmp_path: Path) -> None:
    text = aotlens("inspect", f"{INDUCTOR}::0/0", "--full")
    assert text.code == 0
    assert "Saved for backward  5.8 KiB in 12 values, policy torch's own" in text.out
    assert "unknown  times of kernels, compared with eager" in text.out
    report = json.loads(aotlens("inspect", f"{INDUCTOR}::infer", "--format", "json").out)
    assert [(target["qualname"], target["frontend"]) for target in report["targets"]] == [("infer", "trace")]
    page = tmp_path / "page.html"
    assert aotlens("inspect", EAGER, "--format", "html", "-o", page).code == 0
    assert "log of torch.compile" in page.read_text()


def with_unknown_kinds(folder: Path) -> Path:
    """Return a copy of a log with records of a library, one with a name that would act on a terminal."""
    log = folder / "a.log"
    (packed,) = EAGER.iterdir()
    kinds = ("vllm_piecewise", "vllm_piecewise", "my\x1b[31m_kind", "link")
    added = "".join(record(kind, ARTIFACT, "<b>text</b>", **compiled(3)) for kind in kinds)
    added = added.replace("\\u001b", "\x1b")
    log.write_bytes(gzip.decompress(packed.read_bytes()) + added.encode())
    return log


@pytest.mark.rotates
def test_unknown_kinds_of_records_are_listed_in_every_format(tmp_path: Path) -> None:
    log = with_unknown_kinds(tmp_path)
    short = aotlens("inspect", log).out
    assert "2 unknown kinds of records: my\ufffd[31m_kind, vllm_piecewise ×2; of a library" in short
    assert "unknown kinds" not in aotlens("inspect", EAGER).out
    full = aotlens("inspect", log, "--full").out
    assert re.search(r"vllm_piecewise +2 +unknown\n", full)
    assert re.search(r"\n +link +1\n", full)
    report = json.loads(aotlens("inspect", log, "--format", "json").out)
    assert report["log"]["unused"][1] == {"name": "vllm_piecewise", "count": 2, "is_known": False}
    page = tmp_path / "page.html"
    aotlens("inspect", log, "--format", "html", "-o", page)
    assert "vllm_piecewise ×2" in page.read_text()


def test_several_runs_in_one_folder_are_said_first(tmp_path: Path) -> None:
    (packed,) = EAGER.iterdir()
    for name in ("first.log.gz", "second.log.gz"):
        shutil.copy(packed, tmp_path / name)
    said = "2 processes with the same rank, or with none, wrote here, such as several runs into one folder"
    shown = aotlens("inspect", tmp_path)
    assert shown.code == 0
    assert shown.out.startswith(said)
    assert aotlens("why", tmp_path).out.startswith(said)
    report = json.loads(aotlens("inspect", tmp_path, "--format", "json").out)
    assert report["log"]["processes_of_a_rank"] == 2
    assert said[:30] not in aotlens("inspect", LOGS / "ddp-aot_eager").out  # one process for each rank


def test_a_program_of_the_log_is_printed_as_torch_wrote_it() -> None:
    shown = aotlens("inspect", f"{EAGER}::infer", "--stage", "inference")
    assert "torch.ops.aten._softmax.default" in shown.out


def test_options_that_need_a_script_are_errors() -> None:
    for options, command in ((("--dynamic",), "inspect"), (("--guards",), "why")):
        ended = aotlens(command, EAGER, *options)
        assert ended.code == 2
        assert "is a log" in ended.err
        assert options[0] in ended.err


@pytest.mark.rotates
def test_our_solver_is_asked_under_the_policy_of_the_command() -> None:
    budget = aotlens("inspect", f"{INDUCTOR}::0/0", "--memory-budget", "700B", "--full")
    assert budget.code == 0
    assert "our solver with policy budget=700B would save 672 B" in budget.out
    small = aotlens("inspect", f"{INDUCTOR}::0/0", "--memory-budget", "1B", "--full")
    assert "below 128 bytes" in small.out


def test_what_if_weighs_our_solvers_choice_on_the_logged_graph() -> None:
    ended = aotlens(
        "inspect",
        f"{INDUCTOR}::0/0",
        "--what-if",
        "recompute:addmm",
        "--what-if",
        "default",
        "--format",
        "json",
    )
    assert ended.code == 0, ended.err
    partition = json.loads(ended.out)["targets"][0]["partition"]
    less, default = partition["what_if"]
    assert less["no_longer_saved"] == ["addmm"]
    assert (
        less["before"]["saved_bytes"] == default["before"]["saved_bytes"] == partition["own"]["saved_bytes"]
    )
    assert less["after"]["saved_bytes"] == less["before"]["saved_bytes"] - 1024
    assert less["after"]["recompute_flops"] > less["before"]["recompute_flops"]
    assert default["after"]["saved_bytes"] == partition["default_bytes"]
    assert default["after"]["recompute_flops"] == 0


def test_the_text_says_whose_choice_a_what_if_changes() -> None:
    ended = aotlens("inspect", f"{INDUCTOR}::0/0", "--what-if", "recompute:addmm")
    assert "recompute:addmm, compared with our solver's choice under min-cut, not torch's" in ended.out


def test_a_what_if_that_no_target_answers_is_an_error() -> None:
    unknown = aotlens("inspect", EAGER, "--what-if", "recompute:nowhere")
    assert (unknown.code, "nowhere" in unknown.err) == (2, True)
    untrained = aotlens("inspect", f"{EAGER}::infer", "--what-if", "default")
    assert (untrained.code, "no target that was read is trained" in untrained.err) == (2, True)


def test_a_name_that_is_not_there_lists_those_that_are() -> None:
    ended = aotlens("inspect", f"{EAGER}::missing")
    assert ended.code == 2
    assert "infer (3/0)" in ended.err


def test_why_explains_breaks_and_recompilations_of_the_log() -> None:
    ended = aotlens("why", INDUCTOR)
    assert ended.code == 0
    assert "graph break in broken" in ended.out
    assert "n changes: 1 recompilation" in ended.out
    assert "AOTAutograd cache: no hits, 6 misses" in ended.out


def test_one_function_of_a_log_is_explained_checked_and_compared() -> None:
    shown = aotlens("why", f"{INDUCTOR}::infer")
    assert (shown.code, "no graph breaks" in shown.out) == (0, True)
    assert "1 target of 1 file" in aotlens("check", f"{INDUCTOR}::infer").err
    assert "infer: no difference" in aotlens("diff", f"{INDUCTOR}::infer", f"{INDUCTOR}::infer").out
    assert "has no compilation `other`" in aotlens("why", f"{INDUCTOR}::other").err


def test_check_judges_the_log() -> None:
    ended = aotlens("check", EAGER)
    assert (ended.code, "AL406" in ended.out) == (0, True)
    assert "6 targets" in ended.err
    assert aotlens("check", EAGER, "--max-saved-bytes", "1KiB").code == 1


@pytest.mark.rotates
def test_a_process_that_died_names_its_last_phase_and_fails_a_check(tmp_path: Path) -> None:
    head = 'class GraphModule(torch.nn.Module):\n    def forward(self, L_x_: "f32[4][1]cpu"):\n'
    graph = f"{head}        return ()\n"
    events = (f'{{\n"name": "{name}",\n"ts": {at}.0,\n"ph": "B"\n}}' for at, name in enumerate(PHASES))
    start = {"stack": [{"line": 2, "name": "f", "filename": 1}]}
    records = (
        record("str", ["/home/u/net.py", 1]),
        record("dynamo_start", start, None, **compiled()),
        record("dynamo_output_graph", {"sizes": {}}, graph, **compiled()),
        *(record("chromium_event", {}, text, **compiled()) for text in events),
    )
    log = tmp_path / "a.log"
    log.write_text("".join(records) + "V1124 08:40:07")
    ended = aotlens("check", log)
    assert ended.code == 1
    assert "AL405" in ended.out
    assert "in `inductor_compile`: the process died, or still runs" in " ".join(ended.out.split())
    assert "aotlens: incomplete: a.log: the last record is cut off" in ended.err


def test_settings_of_the_current_folder_hold_for_a_log_and_its_sources(tmp_path: Path) -> None:
    project, log = tmp_path / "project", tmp_path / "elsewhere"
    shutil.copytree(EAGER, log)
    project.mkdir()
    shutil.copy(LOGS.parent / "programs" / "net.py", project / "net.py")
    settings = project / "pyproject.toml"
    settings.write_text('[tool.aotlens]\nmax-saved-bytes = "1 KiB"\n')
    ended = aotlens("check", log, cwd=project)
    assert ended.code == 1
    assert "AL801" in ended.out
    settings.write_text('[tool.aotlens.per-target."net.py::Net.forward"]\nmax-saved-bytes = "1 KiB"\n')
    ended = aotlens("check", log, cwd=project)
    assert (ended.code, ended.out.count("AL801")) == (1, 1)
    settings.write_text("[tool.aotlens]\nmax-graph-breaks = 0\n")
    assert "AL805" in aotlens("check", log, cwd=project).out


def test_diff_compares_two_logs() -> None:
    ended = aotlens("diff", EAGER, INDUCTOR)
    assert ended.code == 0
    assert "kernels" in ended.out


def test_the_app_needs_a_terminal_for_a_log_too() -> None:
    ended = aotlens("tui", EAGER)
    assert ended.code == 2
    assert f"aotlens inspect {EAGER}" in ended.err


def test_a_log_is_read_without_torch() -> None:
    """Front ends without torch build the same report, but for our solver's reasons."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from aotlens.trace.build import build_report\n"
        "from aotlens.trace.logs.reader import open_trace\n"
        f"print(len(build_report(open_trace(Path({str(INDUCTOR)!r})), 'x').targets))"
    )
    assert python("-c", code).out.strip() == "6"

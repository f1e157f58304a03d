"""Processes that a script starts are counted, with the line that starts them."""

import inspect
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from aotlens.dynamo.spans import statement_span
from aotlens.model.dynamo import Dynamo, StartedProcesses
from aotlens.model.report import Report
from aotlens.render.text.why import why_text
from aotlens.session.processes.log import ProcessLog
from aotlens.view.tabs.dynamo import why_lines


def _worker_loop() -> None:
    """Has the name of what a `DataLoader` starts."""


def work() -> None:
    """Ends at once."""


def start(target: object) -> None:
    process = multiprocessing.get_context("fork").Process(target=target)  # type: ignore[arg-type]
    process.start()
    process.join()


@pytest.mark.filterwarnings("ignore:This process .*is multi-threaded:DeprecationWarning")
def test_each_way_to_start_a_process() -> None:
    log = ProcessLog()
    with log.listening():
        for _ in range(2):
            start(_worker_loop)
        start(work)
        subprocess.run([sys.executable, "-m", "platform"], check=True, capture_output=True)
        subprocess.run(["true"], check=True)
        if (process := os.fork()) == 0:
            os._exit(0)
        os.waitpid(process, 0)
    start(work)
    found = [(entry.kind, entry.name.partition(" ")[2] or entry.name, entry.count) for entry in log.records]
    assert found == [
        ("data loader", "", 2),
        ("multiprocessing", "work", 1),
        ("command", "-m platform", 1),
        ("fork", "", 1),
    ]
    first = inspect.getsourcelines(start)[1]
    assert log.records[0].span == statement_span(__file__, first + 2)


def test_compilers_of_torch_are_left_out() -> None:
    log = ProcessLog()
    code = compile("import subprocess\nsubprocess.run(command)", "/x/torch/_inductor/cpp_builder.py", "exec")
    with log.listening():
        exec(code, {"command": [sys.executable, "-c", ""]})
    assert log.records == ()


def test_what_is_said_of_them() -> None:
    processes = (
        StartedProcesses("data loader", "", None, 4),
        StartedProcesses("multiprocessing", "train", None, 2),
        StartedProcesses("command", "torchrun train.py", None, 1),
    )
    dynamo = Dynamo(processes=processes)
    report = Report("2.13.0", "3.11", "why net.py", dynamo=dynamo)
    words = ["4 workers of a data loader", "2 processes of `train`", "`torchrun train.py`"]
    assert why_text(report).splitlines() == [
        "Dynamo compiled nothing in the script's own process",
        "Not observed  processes that the script started",
        *(f"  {line}" for line in words),
    ]
    shown = [line.text.strip() for line in why_lines(dynamo)]
    assert [line for line in shown if line in words] == words
    assert why_text(replace(report, dynamo=None)).startswith("Dynamo compiled nothing: ")

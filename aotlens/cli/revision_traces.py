"""Trace one target at two git revisions, each in its own worker.

Invariant: a revision's trace imports that revision's modules, and its report has the user's file names.
"""

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from aotlens.cli.progress import waiting
from aotlens.cli.targets import TargetName
from aotlens.cli.terminal import say
from aotlens.errors import TargetError, UserError
from aotlens.git_revisions import Repository, parse_range
from aotlens.model.codec import decode
from aotlens.model.report import Report
from aotlens.worker.client import WorkerClient
from aotlens.worker.protocol import Answer, TraceOptions, TraceRequest

__all__ = ["trace_revisions"]

_PACKAGE = Path(__file__).resolve().parents[2]
"""The folder from which aotlens itself is imported."""


@dataclass(frozen=True, slots=True)
class _TraceJob:
    """What is traced at both revisions."""

    repository: Repository
    target: TargetName
    argv: tuple[str, ...]
    options: TraceOptions
    time_limit_s: float


def trace_revisions(
    revisions: str, target: TargetName, argv: list[str], options: TraceOptions, time_limit_s: float
) -> tuple[Report, Report]:
    """Return the reports of both revisions.

    Raises:
        UserError: an unknown revision; a target that neither revision has; a failed trace.
    """
    revision_range = parse_range(revisions)
    repository = Repository.containing(Path(target.path).resolve().parent)
    job = _TraceJob(repository, target, tuple(argv), options, time_limit_s)
    old = repository.commit(revision_range.old)
    new = None if revision_range.new is None else repository.commit(revision_range.new)
    with tempfile.TemporaryDirectory(prefix="aotlens-diff-") as name:
        folder = Path(name).resolve()
        trees = [
            repository.lay_out(commit, folder / side) if commit is not None else repository.root
            for side, commit in (("old", old), ("new", new))
        ]
        with waiting(f"tracing {target} at {revisions}"), ThreadPoolExecutor(2) as both:
            reports = list(both.map(lambda tree: _traced(job, tree), trees))
    if reports[0] is None and reports[1] is None:
        raise TargetError(f"{target.path} is at neither revision of {revisions}")
    none = Report("", platform.python_version(), "diff")
    return reports[0] or none, reports[1] or none


def _traced(trace_job: _TraceJob, tree: Path) -> Report | None:
    """Return the report with file names in the user's own tree; None if the script does not exist."""
    root = trace_job.repository.root
    script, folder = Path(trace_job.target.path).resolve(), Path.cwd().resolve()
    inside = tree / script.relative_to(root)
    if not inside.is_file():
        return None
    working_folder = tree / folder.relative_to(root) if folder.is_relative_to(root) else inside.parent
    working_folder.mkdir(parents=True, exist_ok=True)  # a folder that exists only in the user's tree
    with WorkerClient(cwd=str(working_folder), env={"PYTHONPATH": _search_path(root, tree)}) as client:
        request = TraceRequest(
            str(inside),
            trace_job.target.qualname,
            trace_job.argv,
            trace_job.options,
            trace_job.time_limit_s,
        )
        answer: Answer = client.submit(request).future.result()
    if answer.failure is not None:
        message, trace = (
            text.replace(str(tree), str(root)) for text in (answer.failure.message, answer.failure.traceback)
        )
        if trace:
            say(trace.rstrip())
        raise UserError(message, kind=answer.failure.kind)
    assert answer.report is not None
    return decode(_renamed(answer.report, str(tree), str(root)))


def _search_path(root: Path, tree: Path) -> str:
    """Return the folders of the user's repository that Python imports from, moved to the tree.

    They precede those of an editable installation, which would lead to the working tree.
    """
    entries = [Path(entry).resolve() for entry in (*sys.path, *_editable()) if entry]
    own = (entry for entry in entries if entry.is_relative_to(root) and entry != _PACKAGE)
    inside = (str(tree / entry.relative_to(root)) for entry in own if "site-packages" not in entry.parts)
    python_path = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([*dict.fromkeys(inside), *([python_path] if python_path else [])])


def _editable() -> Iterator[str]:
    """Yield the folders of editable installations by setuptools, which their finders know."""
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable___"):
            yield from (os.path.dirname(path) for path in getattr(module, "MAPPING", {}).values())


def _renamed(data: object, tree: str, root: str) -> object:
    """Return the report's data with every path below the tree moved below the root."""
    if isinstance(data, dict):
        return {key: _renamed(value, tree, root) for key, value in data.items()}
    if isinstance(data, list):
        return [_renamed(value, tree, root) for value in data]
    return root + data.removeprefix(tree) if isinstance(data, str) and data.startswith(tree) else data

"""Tries aotlens with each release of torch that it supports, in an environment of its own.

`python scripts/release/torch_versions.py [2.11 …]` builds the wheel and, for each release, installs it with
that torch and what the tests need, under the Python that runs this script (a torch for CUDA takes 6 GB;
`--environments FOLDER` keeps and reuses them), then tries the commands there and a part of the tests, from a
folder in which the checkout's own aotlens is not found.  The rows go to docs/torch-versions.md.  Fails where
a test fails that `DIFFERENCES` does not name.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from smoke import COMMANDS, IMPORT, ROOT, SCRIPT, build

sys.path.insert(0, str(ROOT))

from aotlens.torch_versions import NEWEST, OLDEST

PAGE = ROOT / "docs" / "torch-versions.md"
RESULTS = ROOT / "build" / "torch_versions.jsonl"
NEEDED_BYTES = 8 << 30
"""The size of an environment while pip unpacks it."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
RELEASES = tuple(f"{OLDEST[0]}.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1))


@dataclass(frozen=True, slots=True)
class Check:
    """Tests that one column of the table counts."""

    title: str
    tests: str
    every: int = 1
    """Every how many tests one is run."""
    configuration: str | None = None
    """The configuration of every program; None for tests of one subject."""


PROGRAMS = "tests/engine/test_programs.py::test_program"
CHECKS = (
    Check("shared programs", PROGRAMS, every=10, configuration="min-cut"),
    Check("symbolic sizes", PROGRAMS, every=10, configuration="symbolic"),
    Check("`torch.compile`", PROGRAMS, every=10, configuration="dynamo"),
    Check("Inductor", "tests/codegen/test_backends.py", every=6),
    Check("GPU code", "tests/gpu_code/test_costs.py", every=6),
    Check("`why`", "tests/dynamo/test_programs.py"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A test that fails with some releases, and the reason."""

    test: str
    """A part of its name."""
    releases: tuple[str, ...]
    reason: str


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "distributed/reduced",
        ("2.11", "2.12"),
        "torch's fake process group does not write the output of a reduce-scatter, so eager "
        "differs from eager",
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    """The results of one release."""

    release: str
    torch: str
    """The version that pip chose, with its build; empty if none is available."""
    triton: str
    commands: str
    """Empty, or the command that failed."""
    checks: dict[str, tuple[int, int]]
    """By title: how many tests passed, of how many that ran."""
    failed: tuple[str, ...]
    missing: str = ""
    """Why there is no such torch here."""
    python: str = PYTHON
    """The Python that tried it, without its patch number."""

    @property
    def pair(self) -> tuple[int, int]:
        """The position of torch's release, and the minor number of Python."""
        return RELEASES.index(self.release), int(self.python.partition(".")[2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("releases", nargs="*", default=RELEASES, metavar="RELEASE", help="default: all")
    parser.add_argument(
        "--environments", type=Path, help="keep the environments here, and use those there are"
    )
    parser.add_argument(
        "--only", metavar="TITLE", help="one column of the table; the others stay as they were"
    )
    options = parser.parse_args()
    if unknown := set(options.releases) - set(RELEASES):
        parser.error(f"{', '.join(sorted(unknown))}: raise NEWEST in aotlens/torch_versions.py first")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = next(path for path in build(folder / "dist") if path.suffix == ".whl")
        copy_tests(folder / "checkout")
        for release in options.releases:
            row = tried(release, wheel, folder, options)
            before = next((earlier for earlier in remembered() if earlier.pair == row.pair), None)
            remember(joined(before, row) if before is not None and options.only else row)
            print(row_text(row), flush=True)
            PAGE.write_text(page(remembered()), encoding="utf-8")
    rows = remembered()
    return int(any(unexplained(row) or row.commands for row in rows))


def copy_tests(folder: Path) -> None:
    """Copy what the tests read, without the packages: those are the installed ones."""
    for name in ("tests", "examples", "docs", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def tried(release: str, wheel: Path, folder: Path, options: argparse.Namespace) -> Row:
    environments: Path | None = options.environments
    environment = (environments or folder / "environments").resolve() / f"torch-{release}-python-{PYTHON}"
    failure = install(release, wheel, environment)
    if failure:
        return Row(release, "", "", "", {}, (), failure)
    try:
        return results(release, environment / "bin", folder, options.only)
    finally:
        if environments is None:
            shutil.rmtree(environment)


def install(release: str, wheel: Path, environment: Path) -> str:
    """Install the release; return why it is impossible, or an empty text."""
    is_new = not environment.exists()
    if is_new:
        environment.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(environment.parent).free
        if free < NEEDED_BYTES:
            return f"{free >> 30} GiB are free, {NEEDED_BYTES >> 30} are needed"
        venv.create(environment, with_pip=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    for words in (
        [f"torch=={release}.*", f"aotlens[test] @ {wheel.as_uri()}"],
        ["--no-deps", "--force-reinstall", str(wheel)],  # an environment from before has an older wheel
    ):
        done = started([*pip, *words], environment)
        if done.returncode:
            if is_new:
                shutil.rmtree(environment)
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return lines[-1].removeprefix("ERROR: ") if lines else "pip failed"
    return ""


def started(words: list[str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**own, "AOTLENS_CACHE_DIR": "", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def results(release: str, programs: Path, folder: Path, only: str | None) -> Row:
    say = "import torch, importlib.util as i; print(torch.__version__, __import__('triton').__version__ "
    versions = started([str(programs / "python"), "-c", say + "if i.find_spec('triton') else '')"], folder)
    torch, _, triton = versions.stdout.strip().partition(" ")
    checks: dict[str, tuple[int, int]] = {}
    failed: list[str] = []
    for check in (check for check in CHECKS if only in (None, check.title)):
        passed, wrong = tests(check, programs, folder)
        checks[check.title] = (passed, passed + len(wrong))
        failed += [f"{check.title}: {test}" for test in wrong]
    return Row(release, torch, triton, commands(programs, folder), checks, tuple(failed))


def joined(before: Row, new: Row) -> Row:
    """Return the row with the new results in place of the earlier ones."""
    titles = tuple(new.checks)
    failed = tuple(test for test in before.failed if not test.startswith(titles))
    return replace(new, checks=before.checks | new.checks, failed=(*failed, *new.failed))


def commands(programs: Path, folder: Path) -> str:
    """Return the first command that fails, with its last line."""
    workspace = folder / "commands"
    workspace.mkdir(exist_ok=True)
    (workspace / "step.py").write_text(SCRIPT)
    for name, *words in (("python", "-W", "error", "-c", IMPORT), *COMMANDS):
        done = started([str(programs / name), *words], workspace)
        if done.returncode:
            return f"{name} {' '.join(words)}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    return ""


def tests(check: Check, programs: Path, folder: Path) -> tuple[int, list[str]]:
    """Return how many of the check's tests pass, and those that do not."""
    pytest = [str(programs / "python"), "-m", "pytest", "-p", "no:cacheprovider", "-o", "timeout=900"]
    pytest += ["--configuration", check.configuration] if check.configuration is not None else []
    names_file, results_file = folder / "asked", folder / "found.xml"
    listed = started([*pytest, "--collect-only", "-q", check.tests], folder / "checkout").stdout.splitlines()
    names = [line for line in listed if "::" in line][:: check.every]
    if not names:
        return 0, [f"{check.tests}: {(listed or ['nothing was collected'])[-1]}"]
    names_file.write_text("\n".join(names))
    results_file.unlink(missing_ok=True)
    done = started([*pytest, f"--junitxml={results_file}", f"@{names_file}"], folder / "checkout")
    if not results_file.exists():
        return 0, [f"{check.tests}: {(done.stdout + done.stderr).strip().splitlines()[-1]}"]
    cases = list(ElementTree.parse(results_file).iter("testcase"))
    wrong = [case.get("name", "") for case in cases if case.find("failure") is not None or _broken(case)]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return len(cases) - skipped - len(wrong), wrong


def _broken(case: ElementTree.Element) -> bool:
    return case.find("error") is not None


def explained(row: Row) -> list[Difference]:
    return [
        difference
        for difference in DIFFERENCES
        if row.release in difference.releases and any(difference.test in test for test in row.failed)
    ]


def unexplained(row: Row) -> list[str]:
    known = [difference.test for difference in DIFFERENCES if row.release in difference.releases]
    return [test for test in row.failed if not any(part in test for part in known)]


def remember(row: Row) -> None:
    """Store a row; rows of other pairs of torch and Python stay in the table."""
    rows = {other.pair: other for other in remembered()} | {row.pair: row}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("".join(f"{json.dumps(asdict(entry))}\n" for entry in rows.values()))


def remembered() -> list[Row]:
    """Return the rows of earlier runs; in a checkout without any, those of the page."""
    rows = published()
    if RESULTS.exists():
        loaded = [json.loads(line) for line in RESULTS.read_text().splitlines()]
        rows = [Row(**{**data, "failed": tuple(data["failed"])}) for data in loaded]
    return sorted((row for row in rows if row.release in RELEASES), key=lambda row: row.pair)


def published() -> list[Row]:
    """Return the rows of the page, without the tests that `DIFFERENCES` explains."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    table = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    head, *lines = [[cell.strip() for cell in line] for line in table] or [[]]
    rows = []
    for torch, python, triton, works, *counts in lines:
        release = ".".join(torch.split(".")[:2])
        pairs = zip(head[4:], (count.replace(",", "").split(" of ") for count in counts), strict=True)
        checks = {title: (int(count[0]), int(count[1])) for title, count in pairs if len(count) == 2}
        failed = tuple(
            re.findall(rf"^- {re.escape(release)} with Python {python}: `(.*)` fails\.$", text, re.MULTILINE)
        )
        broken = works.replace("all work", "")
        rows.append(Row(release, torch, triton.replace("none", ""), broken, checks, failed, python=python))
    return [row for row in rows if row.checks]


def row_text(row: Row) -> str:
    """Return a row for the terminal, with every test that fails."""
    if row.missing:
        return f"{row.release}: not available: {row.missing}"
    counts = ", ".join(f"{title} {passed}/{ran}" for title, (passed, ran) in row.checks.items())
    lines = [
        f"{row.release}: torch {row.torch}, Python {row.python}, triton {row.triton or 'none'}: {counts}"
    ]
    lines += [f"    {row.commands}"] if row.commands else []
    lines += [f"    FAILED {test}" for test in unexplained(row)]
    return "\n".join(lines + [f"    {difference.test}: {difference.reason}" for difference in explained(row)])


def page(rows: list[Row]) -> str:
    titles = [check.title for check in CHECKS]
    lines = [
        f"| torch | Python | Triton | commands | {' | '.join(titles)} |",
        "|---" * (len(titles) + 4) + "|",
    ]
    for release in RELEASES:
        of_release = [row for row in rows if row.release == release]
        lines += [f"| {' | '.join(cells(release, row))} |" for row in of_release or [None]]
    samples = "; ".join(f"{check.title}: one in {check.every}" for check in CHECKS if check.every > 1)
    differences = [
        f"- {', '.join(difference.releases)}: `{difference.test}` differs: {difference.reason}."
        for difference in DIFFERENCES
    ]
    failing = [
        f"- {row.release} with Python {row.python}: `{test}` fails."
        for row in rows
        for test in unexplained(row)
    ]
    table = "\n".join(lines)
    return (
        HEAD
        + table
        + f"\n\nPassed of those that ran; a sample ({samples}).\n"
        + TEXT
        + "\n".join([*differences, *failing, ""])
    )


def cells(release: str, row: Row | None) -> list[str]:
    if row is None or row.missing:
        why = "not tried" if row is None else row.missing
        return [release, row.python if row is not None else "", "", why, *("" for _ in CHECKS)]
    counts = [row.checks.get(check.title, (0, 0)) for check in CHECKS]
    works = row.commands or "all work"
    return [
        row.torch,
        row.python,
        row.triton or "none",
        works,
        *(f"{passed:,} of {ran:,}" for passed, ran in counts),
    ]


HEAD = """\
# Releases of torch

<!-- written by scripts/release/torch_versions.py -->

aotlens uses private names of torch, all of them in `aotlens/torch_api/`, so each release is tried: the
wheel in an environment of its own, with the build of torch that pip finds (its name is in the table), on a
machine without a GPU. `make torch-versions` does that; with `PYTHON=python3.13 VENV=.venv-3.13`, under that
Python. Another release of torch gives one warning.

"""
TEXT = """
## What differs

The engine is one and the same; where releases differ, `torch_api/` asks what the installed one has.

- Before 2.12, `torch.cond`, `map`, `scan` and similar operators compile their subgraphs themselves;
  capture replaces `torch.compile` there. Creating a fake tensor for a GPU also creates a real one,
  except under GPU emulation.
- From 2.14 on, `torch.utils.checkpoint` starts in another function, `map` is passed which operands its
  subgraph writes to (such a subgraph is unsupported), and a fake tensor of one number would remember
  that number, which would specialise the program; ours do not remember it.
- A build for CUDA on a machine without a GPU counts GPUs when the first fake tensor is created. The
  worker starts autograd before that, because a child of a process with autograd's GPU threads cannot run
  a backward.
- Triton: each release brings its own, 3.6 with 2.11 to 3.9 with 2.15; kernels for a GPU differ with it.
- `aotlens why`: before 2.13, Dynamo's stack frames have no columns, and 2.11 does not say which functions
  it skips; `torch_api/` finds both. torch's number of a graph break differs for a few kinds, and where the
  `hash` of a tensor breaks the graph; `tests/dynamo` names these by release.
- 2.11's Inductor does not name the nodes when it explains why two kernels were not fused: `--gpu` shows
  only the reason.

Tests that fail with some releases:

"""

if __name__ == "__main__":
    sys.exit(main())

"""Fill the marked blocks of README.md and of the pages in docs/ with what the commands print.

A block stands between `<!-- output: COMMAND -->` and `<!-- /output -->`; COMMAND is run from the
repository's root with the `aotlens` of the running Python.  `<!-- output stderr: COMMAND -->` takes
stderr, `<!-- output error: COMMAND -->` the stderr of a command that fails by the user's mistake,
`<!-- output 1-30: COMMAND -->` only those lines, `<!-- output markdown: COMMAND -->` what is Markdown
already.  `--check` changes nothing and exits with 1 when a block is not current; times are not compared.
"""

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"<!-- output(?P<stderr> stderr| error)?(?P<markdown> markdown)?(?: (?P<first>\d+)-(?P<last>\d+))?:"
    r" (?P<command>[^\n]+?) -->\n"
    r".*?<!-- /output -->",
    re.DOTALL,
)
NO_PROGRAMS = ("--stage kernels", "--stage cuda-graph")
"""Commands that print tables."""
TIME = re.compile(r"\d[\d,]*(\.\d+)? ?(ms|s|µs)\b")
SETTINGS = {
    "AOTLENS_CACHE_DIR": "",  # a document shows what a first run prints
    "COLUMNS": "100",  # the width that the documents show well
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",  # the examples are small, and threads that wait for a busy core cost minutes
}
FINE_EXIT_CODES = (0, 1)
"""1 means findings, which a document may show."""
MISTAKE = 2
"""The exit code of a command that fails by the user's mistake."""


@dataclass(frozen=True, slots=True)
class Arguments:
    check: bool
    documents: tuple[Path, ...]


def run(command: str, stderr: bool, fails: bool) -> str:
    """Return what the command prints, without trailing blanks and this machine's folders."""
    program, *rest = shlex.split(command)
    if program == "aotlens":
        start = [sys.executable, "-m", "aotlens"]
    elif program == "python":
        start = [sys.executable]
    else:
        sys.exit(f"{command!r}: blocks run `aotlens …` or `python …` only")
    done = subprocess.run(
        [*start, *rest], cwd=ROOT, env=os.environ | SETTINGS, capture_output=True, text=True, check=False
    )
    if done.returncode not in ((MISTAKE,) if fails else FINE_EXIT_CODES):
        sys.exit(f"{command!r} failed with exit code {done.returncode}:\n{done.stderr}")
    printed = done.stderr if stderr else done.stdout
    lines = [line.rstrip() for line in printed.replace(f"{ROOT}/", "").strip("\n").splitlines()]
    return "\n".join(lines)


def cut(text: str, first: str | None, last: str | None) -> str:
    """Return the requested lines; a last line of `…` says that more follows."""
    if first is None or last is None:
        return text
    lines = text.splitlines()
    selected = lines[int(first) - 1 : int(last)]
    return "\n".join([*selected, "…"] if len(lines) > int(last) else selected)


def filled(block: re.Match[str], outputs: dict[tuple[str, bool], str]) -> str:
    """Return the block with the current output; a command in several blocks runs once."""
    command, stderr = block["command"], bool(block["stderr"])
    key = command, stderr
    if key not in outputs:
        print(f"running: {command}", file=sys.stderr)
        outputs[key] = run(command, stderr, fails=block["stderr"] == " error")
    shown = cut(outputs[key], block["first"], block["last"])
    opening = block.group().partition("\n")[0]
    if block["markdown"]:
        return f"{opening}\n{shown}\n<!-- /output -->"
    shows_stage = " --stage " in command and ".." not in command and not command.endswith(NO_PROGRAMS)
    is_program = (command.startswith("aotlens export") and not command.endswith("--help")) or shows_stage
    language = "python" if is_program else "text"
    return f"{opening}\n```{language}\n{shown}\n```\n<!-- /output -->"


def without_times(text: str) -> list[str]:
    """Return lines with masked times and single blanks, so that column widths do not matter."""
    return [re.sub(r"[ ─━]+", " ", TIME.sub("TIME", line)) for line in text.splitlines()]


def parse_arguments() -> Arguments:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when out of date")
    parser.add_argument(
        "documents", nargs="*", type=Path, help="default: README.md, docs/*.md and docs/architecture/*.md"
    )
    options = parser.parse_args()
    pages = sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "docs" / "architecture").glob("*.md"))
    documents = options.documents or [ROOT / "README.md", *pages]
    return Arguments(options.check, tuple(documents))


def main() -> None:
    arguments = parse_arguments()
    outputs: dict[tuple[str, bool], str] = {}
    stale = False
    for document in arguments.documents:
        text = document.read_text()
        current = BLOCK.sub(lambda block: filled(block, outputs), text)
        if without_times(current) == without_times(text):
            continue
        if not arguments.check:
            document.write_text(current)
            continue
        stale = True
        difference = difflib.unified_diff(
            without_times(text), without_times(current), str(document), "now printed", lineterm=""
        )
        print("\n".join(difference))
    if stale:
        sys.exit("out of date: run `python scripts/readme_output.py`")


if __name__ == "__main__":
    main()

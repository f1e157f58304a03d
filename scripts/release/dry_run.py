"""Does everything for a release up to the upload: `make release-dry-run`.

The tree is clean, the version stands once and the changelog begins with it, wheel and sdist are built into
dist/, their metadata is what the index accepts, and both work in environments of their own
(`scripts/release/smoke.py`).
`--tag v0.1.0` is the tag that is being released; `--allow-dirty` is for trying this script.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
HEADING = re.compile(r"^## (?P<title>[^\n]+)$", re.MULTILINE)
IN_SDIST = ("LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "tests/conftest.py")
NEVER = re.compile(r"(^|/)(\.git|\.venv|\.results|node_modules|__pycache__)/|\.pyc$|\.sqlite3?$")
"""Files that no artefact may contain."""


def version_stated(root: Path = ROOT) -> str:
    """Return the version in `aotlens/_version.py`, from which the build takes it."""
    return (root / "aotlens" / "_version.py").read_text().split('"')[-2]


def disagreements(root: Path = ROOT, tag: str | None = None) -> list[str]:
    """Return what states another version than the package, and what the changelog lacks."""
    version = version_stated(root)
    problems = []
    text = (root / "CHANGELOG.md").read_text()
    titles = [heading["title"] for heading in HEADING.finditer(text)]
    first = titles[0] if titles else "nothing"
    if not re.fullmatch(rf"{re.escape(version)}( .*)?", first):
        problems.append(f"CHANGELOG.md begins with `{first}`, the version is {version}")
    elif not re.search(r"^- ", text.partition(f"## {first}")[2].partition("\n## ")[0], re.MULTILINE):
        problems.append(f"CHANGELOG.md says nothing about {version}")
    extension = json.loads((root / "editors" / "vscode" / "package.json").read_text())["version"]
    if extension != version:
        problems.append(f"editors/vscode/package.json says {extension}, the version is {version}")
    if tag is not None and tag != f"v{version}":
        problems.append(f"the tag is {tag}, the version is {version}")
    return problems


def members(artefact: Path) -> list[str]:
    """Return the files of a wheel or an sdist, without the sdist's own folder."""
    if artefact.suffix == ".whl":
        with zipfile.ZipFile(artefact) as wheel:
            return wheel.namelist()
    with tarfile.open(artefact) as sdist:
        return [name.partition("/")[2] for name in sdist.getnames()]


def faults(artefact: Path) -> list[str]:
    """Return the forbidden files of an artefact, and those that it lacks."""
    names = members(artefact)
    problems = [f"{artefact.name} holds {name}" for name in names if NEVER.search(name)]
    if artefact.suffix == ".whl":
        folders = {name.partition("/")[0] for name in names if "/" in name}
        own = {"aotlens", "lsp_server", "tui"}
        extra = {folder for folder in folders if not folder.endswith(".dist-info")} ^ own
        return problems + [
            f"{artefact.name} differs from {', '.join(sorted(own))} by {name}" for name in sorted(extra)
        ]
    return problems + [f"{artefact.name} lacks {name}" for name in IN_SDIST if name not in names]


def _is_clean() -> bool:
    status = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return not status.stdout.strip()


def _step(title: str, *words: str) -> None:
    print(f"== {title}", flush=True)
    done = subprocess.run([sys.executable, *words], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(f"{title}: failed with exit code {done.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--tag", help="the tag that is being released, as v0.1.0")
    parser.add_argument("--allow-dirty", action="store_true", help="do not ask for a clean tree")
    options = parser.parse_args()
    if not options.allow_dirty and not _is_clean():
        sys.exit("the tree has changes that are not committed; a release is built from a commit")
    if problems := disagreements(tag=options.tag):
        sys.exit("\n".join(problems))
    shutil.rmtree(DIST, ignore_errors=True)
    _step("build", "-m", "hatchling", "build", "-d", str(DIST))
    artefacts = sorted(DIST.iterdir())
    _step("metadata", "-m", "twine", "check", "--strict", *map(str, artefacts))
    if problems := [fault for artefact in artefacts for fault in faults(artefact)]:
        sys.exit("\n".join(problems))
    _step("try", "scripts/release/smoke.py", "--dist", str(DIST))
    print(f"== {version_stated()} can be uploaded: {', '.join(artefact.name for artefact in artefacts)}")


if __name__ == "__main__":
    main()

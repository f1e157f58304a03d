"""The architecture pages agree with the code: every module is on its page, and every path exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aotlens.pipeline import STAGES
from scripts.docs import callers
from scripts.docs import modules as modules_page
from scripts.docs.walkthrough import PRINTERS, walkthrough

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "architecture"

COVERED: dict[str, tuple[str, ...]] = {
    "capture.md": ("aotlens/capture",),
    "analysis.md": ("aotlens/analysis",),
    "joint.md": ("aotlens/joint",),
    "partition.md": ("aotlens/partition",),
    "codegen.md": ("aotlens/codegen",),
    "runtime.md": ("aotlens/runtime",),
    "report.md": tuple(
        f"aotlens/{name}" for name in ("model", "build", "diagnostics", "view", "render", "compare")
    ),
    "processes.md": ("aotlens/session", "aotlens/worker", "aotlens/cli", "tui", "lsp_server"),
    "packages.md": ("aotlens/ir", "aotlens/trace"),
    "modules.md": tuple(f"aotlens/{name}" for name in modules_page.PACKAGES),
    "torch.md": ("aotlens/torch_api",),
}
"""By page: the folders of which it lists every module, each under a heading that names the folder."""

PATH = re.compile(r"`([\w./]+\.(?:py|md|json)|[\w./]+/)`")
ROW = re.compile(r"^\| `([\w./]+\.py)` \|", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def modules(folder: str) -> set[str]:
    """Paths of a folder's modules relative to it; packages' own and `python -m` entries are not listed."""
    paths = (ROOT / folder).rglob("*.py")
    return {str(path.relative_to(ROOT / folder)) for path in paths if not path.stem.startswith("__")}


def sections(page: str) -> Iterator[tuple[str, set[str]]]:
    """Each folder that a page covers, with the files in the tables under its heading."""
    parts = re.split(r"^## ", (PAGES / page).read_text(), flags=re.MULTILINE)
    for folder in COVERED[page]:
        (own,) = [part for part in parts if f"`{folder}/`" in part.partition("\n")[0]]
        yield folder, set(ROW.findall(own))


@pytest.mark.parametrize("page", COVERED)
def test_every_module_is_on_its_page(page: str) -> None:
    for folder, listed in sections(page):
        assert listed == modules(folder), folder


def test_callers_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert (PAGES / "callers.md").read_text() == callers.page(), "run `python -m scripts.docs.callers`"
    assert "pipeline" in callers.callers()["aotlens/analysis"]["stage.py"]["analyse"]


def test_modules_of_other_packages_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert (PAGES / "modules.md").read_text() == modules_page.page(), "run `python -m scripts.docs.modules`"


def test_every_package_has_a_page() -> None:
    text = "".join((PAGES / name).read_text() for name in ("index.md", "packages.md"))
    folders = {path.parent.name for path in (ROOT / "aotlens").glob("*/__init__.py")}
    assert {name for name in folders if not re.search(rf"`(aotlens/)?{name}/`", text)} == set()


def test_modules_directly_in_the_package_are_listed() -> None:
    listed = set(ROW.findall((PAGES / "packages.md").read_text()))
    own = {f"aotlens/{path.name}" for path in (ROOT / "aotlens").glob("*.py")}
    assert {path for path in own if not Path(path).stem.startswith("_")} - listed == set()


@pytest.mark.parametrize("page", sorted({path.name for path in PAGES.glob("*.md")} - {"callers.md"}))
def test_paths_exist(page: str) -> None:
    bases = [ROOT, ROOT / "aotlens", *(ROOT / folder for folder in COVERED.get(page, ()))]
    bases += [ROOT / "aotlens" / Path(page).stem, ROOT / "aotlens" / "torch_api"]
    text = CODE_BLOCK.sub("", (PAGES / page).read_text())
    missing = [path for path in PATH.findall(text) if not any((base / path).exists() for base in bases)]
    assert [path for path in missing if "NAME" not in path] == []


def test_the_walkthrough_prints_every_stage() -> None:
    assert tuple(PRINTERS) == STAGES
    compiled = walkthrough()
    printed = {stage: "\n".join(printer(compiled)) for stage, printer in PRINTERS.items()}
    assert "aten.select.int(0, 0)" in printed["capture"]
    assert "MUTATED_OUT_GRAPH" in printed["analysis"]
    assert "select_scatter: MutatedInput `x`" in printed["joint"]
    assert "size_bytes = 12" in printed["partition"]
    assert printed["codegen"].startswith("forward: GraphCode\n")
    assert "lines " in printed["runtime"]

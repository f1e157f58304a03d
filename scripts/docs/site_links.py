"""A hook of the documentation site that copies files outside of `docs/` that pages link to, below `repo/`.

The pages then read well in the repository and on the site, and a broken link still fails the build.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?P<path>(?!\w+:)[^)#\s]+)(?P<part>#[^)]*)?\)")
OUTSIDE = "repo"
"""Their folder on the site."""


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    from mkdocs.structure.files import File

    waiting = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    known: set[Path] = set()
    while waiting:
        for path in _outside(waiting.pop()):
            if path not in known:
                known.add(path)
                name = f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"
                files.append(File.generated(config, name, abs_src_path=str(path)))
                waiting += [path] if path.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    assert page.file.abs_src_path is not None
    folder = Path(page.file.abs_src_path).parent
    here = Path(page.file.src_uri).parent

    def rewritten(link: re.Match[str]) -> str:
        target = _target(folder, link["path"])
        if target is None:
            return link.group()
        docs = ROOT / "docs"
        inside = (
            target.relative_to(docs) if target.is_relative_to(docs) else OUTSIDE / target.relative_to(ROOT)
        )
        return f"]({os.path.relpath(inside, here)}{link['part'] or ''})"

    return LINK.sub(rewritten, markdown)


def _outside(page: Path) -> set[Path]:
    """Return the files of the repository outside of `docs/` that a page links to."""
    targets = (
        _target(page.parent, match["path"]) for match in LINK.finditer(page.read_text(encoding="utf-8"))
    )
    return {path for path in targets if path is not None and not path.is_relative_to(ROOT / "docs")}


def _target(folder: Path, link: str) -> Path | None:
    """Return the file of a link; a folder means its page.  None for a missing one."""
    path = (folder / link).resolve()
    if path.is_dir():
        path /= "README.md"
    return path if path.is_file() and path.is_relative_to(ROOT) else None

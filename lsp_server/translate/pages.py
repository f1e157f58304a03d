"""The programs of a target as read-only documents, and the way between them and the user's expressions."""

import base64
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from aotlens.report.kernel_texts import kernel_texts
from aotlens.report.records import Kernel, Span, StageNode, Target
from lsp_server.index import Spot
from lsp_server.views import Views

SCHEME = "aotlens"
LANGUAGES = (".ttir", ".ttgir", ".llir", ".ptx", ".sass")
"""What a kernel becomes on its way to the machine; every other page is Python."""
ASSIGNED = re.compile(r"^\s*(?:\(?)([A-Za-z_]\w*)\)?\s*(?::[^=]*)?=(?!=)")


@dataclass(frozen=True, slots=True)
class Page:
    """One document: a stage's program, the wrapper module, or a kernel's source."""

    script: str
    """The path of the traced script."""
    qualname: str
    part: str
    """A stage's name, `wrapper`, a kernel's name, or that and a language: `triton_poi_fused_0.ptx`."""

    @property
    def uri(self) -> str:
        """The path is for people; the query holds all, in letters that no client escapes anew."""
        fields = json.dumps([self.script, self.qualname, self.part]).encode()
        token = base64.urlsafe_b64encode(fields).decode().rstrip("=")
        return f"{SCHEME}:/{quote(self.qualname)}/{quote(self.file_name)}?{token}"

    @property
    def file_name(self) -> str:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", self.part)
        return name if name.endswith(LANGUAGES) else f"{name}.py"

    @property
    def language(self) -> str:
        """As an editor names it: kernels below Triton have languages that few editors know."""
        return "plaintext" if self.part.endswith(LANGUAGES) else "python"


def parse(uri: str) -> Page | None:
    """The page that an address names; None when it is none of ours."""
    head, _, token = uri.partition("?")
    if not head.startswith(f"{SCHEME}:"):
        return None
    try:
        fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except ValueError:  # a made-up address: neither base64 nor JSON
        return None
    return Page(*fields) if isinstance(fields, list) and len(fields) == len(Page.__slots__) else None


def text_of(views: Views, page: Page) -> str | None:
    """The page's text from the newest trace that has it."""
    target = target_of(views, page.script, page.qualname)
    if target is None:
        return None
    if page.part == "wrapper":
        return target.wrapper.source if target.wrapper else None
    stage = target.stage(page.part)
    if stage is not None:
        return stage.text
    return _kernel_pages(target).get(page.part)


def parts_of(target: Target) -> tuple[str, ...]:
    """Every page that a target has."""
    wrapper = ("wrapper",) if target.wrapper else ()
    return (*(stage.name for stage in target.stages), *wrapper, *_kernel_pages(target))


def kernel_page(script: str, target: Target, kernel: Kernel) -> Page | None:
    """The page of a kernel's source; None for a library's own."""
    return Page(script, target.qualname, kernel.name) if kernel.source else None


def _kernel_pages(target: Target) -> dict[str, str]:
    """Every text of every kernel: the source under the kernel's name, the others with their language."""
    pages: dict[str, str] = {}
    for kernel in target.kernels:
        for at, (language, text) in enumerate(kernel_texts(kernel, (kernel,))):
            is_source = at == 0 and bool(kernel.source)
            pages.setdefault(kernel.name if is_source else f"{kernel.name}.{language}", text)
    return pages


def source_of(views: Views, page: Page, line: int) -> Span | None:
    """The user's expression behind a line (0-based) of a page."""
    target = target_of(views, page.script, page.qualname)
    stage = target.stage(page.part) if target else None
    if stage is None:
        return None
    names = {number: name for name, number in node_lines(stage.text).items()}
    node = next((node for node in stage.nodes if node.name == names.get(line)), None)
    return node.spans[0] if node and node.spans else None


def nodes_of(views: Views, page: Page) -> list[tuple[StageNode, int]]:
    """The nodes of a page with their lines (0-based), in its order."""
    target = target_of(views, page.script, page.qualname)
    stage = target.stage(page.part) if target else None
    where = node_lines(stage.text) if stage else {}
    return [(node, where[node.name]) for node in (stage.nodes if stage else ()) if node.name in where]


def lines_of(script: str, spot: Spot) -> list[tuple[Page, int]]:
    """Where an expression stands in the pages: its nodes in forward and backward, then its kernels."""
    found: list[tuple[Page, int]] = []
    for part, nodes in (("forward", spot.forward), ("inference", spot.forward), ("backward", spot.backward)):
        stage = spot.target.stage(part)
        if stage is None:
            continue
        where = node_lines(stage.text)
        page = Page(script, spot.target.qualname, part)
        found += [(page, where[node.name]) for node in nodes if node.name in where]
    pages = (kernel_page(script, spot.target, kernel) for kernel in spot.kernels)
    found += [(page, 0) for page in dict.fromkeys(pages) if page is not None]
    return found


@lru_cache(maxsize=32)
def node_lines(text: str) -> dict[str, int]:
    """The line (0-based) at which each name is assigned first."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines()):
        match = ASSIGNED.match(line)
        if match:
            lines.setdefault(match[1], number)
    return lines


def target_of(views: Views, script: str, qualname: str) -> Target | None:
    """A target of a script from the newest trace that has it."""
    for trace in sorted(views.traces.values(), key=lambda one: one.number, reverse=True):
        for target in trace.report.targets:
            if trace.key[0] == script and target.qualname == qualname:
                return target
    return None

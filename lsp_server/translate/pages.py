"""The programs of a target as read-only documents, linked with the user's expressions."""

import base64
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from aotlens.model.report import Kernel, Span, Stage, StageNode, Target, WrapperStep
from aotlens.view.kernels import kernel_texts
from aotlens.view.quantities import applied_steps
from lsp_server.index import Spot
from lsp_server.views import TraceKey, Views

SCHEME = "aotlens"
LANGUAGES = (".ttir", ".ttgir", ".llir", ".ptx", ".sass")
"""The intermediate languages of a kernel, down to machine code."""
CPU_KERNEL = "cpp_"
"""The prefix of CPU kernels, which are C++; every other page is Python."""
NAME = re.compile(r"[^\W\d]\w*")
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
        """Return the address: the path is for people; the query holds all fields, in letters that no client
        escapes.

        With `//`, without which Vim takes it for a file of the working folder; VS Code removes them.
        """
        fields = json.dumps([self.script, self.qualname, self.part]).encode()
        token = base64.urlsafe_b64encode(fields).decode().rstrip("=")
        return f"{SCHEME}:///{quote(self.qualname)}/{quote(self.file_name)}?{token}"

    @property
    def file_name(self) -> str:
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", self.part)
        return name if name.endswith(LANGUAGES) else f"{name}{self.suffix}"

    @property
    def suffix(self) -> str:
        if self.part.endswith(LANGUAGES):
            return self.part[self.part.rindex(".") :]
        return ".cpp" if self.part.startswith(CPU_KERNEL) else ".py"

    @property
    def language(self) -> str:
        """Return an editor's name of the language: few editors know those of kernels below Triton."""
        return {".py": "python", ".cpp": "cpp"}.get(self.suffix, "plaintext")


def parse(uri: str) -> Page | None:
    """Return the page of an address; None for other addresses."""
    head, _, token = uri.partition("?")
    if not head.startswith(f"{SCHEME}:"):
        return None
    try:
        fields = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except ValueError:  # an invalid address: neither base64 nor JSON
        return None
    return Page(*fields) if isinstance(fields, list) and len(fields) == len(Page.__slots__) else None


def text_of(views: Views, page: Page) -> str | None:
    """Return the page's text from the newest trace that has it."""
    target = target_of(views, page.script, page.qualname)
    if target is None:
        return None
    if page.part == "wrapper":
        return target.wrapper.source if target.wrapper else None
    stage = target.stage(page.part)
    if stage is not None:
        return stage.text
    return _kernel_pages(target).get(page.part)


def first_line(views: Views, page: Page) -> int:
    """Return the first line to show (0-based): in a graph its `def`, below the imported operators."""
    target = target_of(views, page.script, page.qualname)
    stage = target.stage(page.part) if target else None
    lines = stage.text.splitlines() if stage else []
    return next((number for number, line in enumerate(lines) if line.startswith("def ")), 0)


def parts_of(target: Target) -> tuple[str, ...]:
    """Every page that a target has."""
    wrapper = ("wrapper",) if target.wrapper else ()
    return (*(stage.name for stage in target.stages), *wrapper, *_kernel_pages(target))


def kernel_page(script: str, target: Target, kernel: Kernel) -> Page | None:
    """Return the page of a kernel's source; None for a library's kernel."""
    return Page(script, target.qualname, kernel.name) if kernel.source else None


def _kernel_pages(target: Target) -> dict[str, str]:
    """Every text of every kernel: the source under the kernel's name, the others with their language."""
    pages: dict[str, str] = {}
    for kernel in target.kernels:
        for index, (language, text) in enumerate(kernel_texts(kernel)):
            is_source = index == 0 and bool(kernel.source)
            pages.setdefault(kernel.name if is_source else f"{kernel.name}.{language}", text)
    return pages


def sources_of(views: Views, page: Page, line: int, index: int) -> tuple[Span, ...]:
    """Return the user's expressions behind a position (0-based line and character) of a page.

    In a graph those of the node at the position, or else of the line's; in the wrapper those that cause the
    step; in a kernel's text all of the kernel's.
    """
    target = target_of(views, page.script, page.qualname)
    if target is None:
        return ()
    if page.part == "wrapper":
        covering = (step for step in applied_steps(target) if step.lines and covers(step.lines, line))
        return tuple(dict.fromkeys(site.span for step in covering for site in step.sites))
    stage = target.stage(page.part)
    if stage is None:
        name = page.part.removesuffix(page.suffix) if page.part.endswith(LANGUAGES) else page.part
        same = (kernel for kernel in target.kernels if kernel.name == name)
        return tuple(dict.fromkeys(span for kernel in same for span in kernel.spans))
    node = node_at(stage, line, index)
    return node.spans[:1] if node else ()


def covers(lines: tuple[int, int], line: int) -> bool:
    """Return True if a line (0-based) is among the lines first to last (1-based)."""
    return lines[0] <= line + 1 <= lines[1]


def node_at(stage: Stage, line: int, index: int) -> StageNode | None:
    """Return the node named at a position of a stage's text, else the one that the line, or the line below a
    comment, assigns."""
    rows = stage.text.splitlines()
    row = rows[line] if line < len(rows) else ""
    named = next((word[0] for word in NAME.finditer(row) if word.start() <= index <= word.end()), None)
    if row.lstrip().startswith("#"):
        named, line = None, line + 1
    assigned = next((name for name, number in node_lines(stage.text).items() if number == line), None)
    by_name = {node.name: node for node in stage.nodes if node.name in (named, assigned)}
    return by_name.get(named or "") or by_name.get(assigned or "")


def stage_of(views: Views, page: Page) -> Stage | None:
    """Return the stage whose program a page shows; None for the wrapper and for kernels."""
    target = target_of(views, page.script, page.qualname)
    return target.stage(page.part) if target and page.part != "wrapper" else None


def uses_of(stage: Stage, node: StageNode) -> list[int]:
    """Return the lines (0-based) of a stage's text whose nodes read a node."""
    where = node_lines(stage.text)
    return [
        where[reader.name] for reader in stage.nodes if node.name in reader.inputs and reader.name in where
    ]


def nodes_of(stage: Stage) -> list[tuple[StageNode, int]]:
    """Return the nodes of a stage with their lines (0-based), in its order."""
    where = node_lines(stage.text)
    return [(node, where[node.name]) for node in stage.nodes if node.name in where]


def steps_of(views: Views, page: Page) -> list[WrapperStep]:
    """Return the steps of each call that have lines in a wrapper's page."""
    target = target_of(views, page.script, page.qualname) if page.part == "wrapper" else None
    return [step for step in applied_steps(target) if step.lines] if target else []


def lines_of(script: str, spot: Spot) -> list[tuple[Page, int]]:
    """Return an expression's lines in the pages: its nodes in forward and backward, then its kernels."""
    lines: list[tuple[Page, int]] = []
    for part, nodes in (("forward", spot.forward), ("inference", spot.forward), ("backward", spot.backward)):
        stage = spot.target.stage(part)
        if stage is None:
            continue
        where = node_lines(stage.text)
        page = Page(script, spot.target.qualname, part)
        lines += [(page, where[node.name]) for node in nodes if node.name in where]
    pages = (kernel_page(script, spot.target, kernel) for kernel in spot.kernels)
    lines += [(page, 0) for page in dict.fromkeys(pages) if page is not None]
    return lines


@lru_cache(maxsize=32)
def node_lines(text: str) -> dict[str, int]:
    """Return the line (0-based) at which each name is assigned first."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines()):
        match = ASSIGNED.match(line)
        if match:
            lines.setdefault(match[1], number)
    return lines


def target_of(views: Views, script: str, qualname: str) -> Target | None:
    """Return a target of a script from the newest trace that has it."""
    traced = trace_of(views, script, qualname)
    return traced[1] if traced is not None else None


def trace_of(views: Views, script: str, qualname: str) -> tuple[TraceKey, Target] | None:
    """Return the same, with the key of that trace."""
    for trace in sorted(views.traces.values(), key=lambda held: held.number, reverse=True):
        for target in trace.report.targets:
            if trace.key[0] == script and target.qualname == qualname:
                return trace.key, target
    return None

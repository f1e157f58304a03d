"""User-visible text and file names use PyTorch's terms: words of our former private language fail here.

Checked are documents, the catalogue, the help of every command, and each line and string constant of the
sources.  A pattern is precise enough to have no false positives; an exception names its reason.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from aotlens.diagnostics.catalogue import RULES

ROOT = Path(__file__).parent.parent
QUOTING = {"real-programs.md"}
"""Not checked: it quotes what programs and older runs printed."""
DOCUMENTS = (
    *sorted(ROOT.glob("*.md")),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name not in QUOTING),
    *(ROOT / folder / "README.md" for folder in ("aotlens", "benchmarks", "corpus", "editors/vscode")),
)
PACKAGES = (
    *sorted(str(path.parent.relative_to(ROOT)) for path in (ROOT / "aotlens").glob("*/__init__.py")),
    *("lsp_server", "tui", "scripts", "benchmarks", "corpus"),
)
OTHER_SOURCES = (
    "pyproject.toml",
    "docs/report.schema.json",
    "editors/vscode/package.json",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "aotlens").glob("*.py")),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "aotlens/render/html").glob("*.js")),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "editors/vscode/src").glob("*.ts")),
)

OUTPUT = re.compile(r"<!-- output.*?<!-- /output -->|^```.*?^```", re.DOTALL | re.MULTILINE)
"""Blocks of documents that commands print; their words are checked where the code holds them."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word that does not come back, and the one to use instead."""

    pattern: str
    instead: str


WORDS = (
    Word(r"\b(made|make|makes|taken|take) (it |them )?again\b", "regenerate"),
    Word(r"\bcomput(e|es|ed|ing) (it |them )?again\b", "recompute"),
    Word(r"\bcompil(e|es|ed|ing) (it |them )?(again|anew)\b", "recompile"),
    Word(r"\btrac(e|es|ed) again\b", "retrace"),
    Word(r"\bkept for the backward\b|\bkeeps? \S+ for the backward\b", "saved for the backward"),
    Word(r"\b(is|are|be|being) told\b|\btells of\b|\bis not told\b", "reported"),
    Word(r"\btold (with|from|where|of)\b", "reported"),
    Word(r"\btwins?\b", "counterpart"),
    Word(r"\bpretend(s|ed|ing)?\b", "emulate"),
    Word(r"\bstand-ins?\b", "fake tensor"),
    Word(r"\bautograd(?:'s)? history\b|\b(its|own|their|a) histor(y|ies)\b", "autograd graph, grad_fn"),
    Word(
        r"\b(a|the) second draw\b|\bdraw(s|n)? (random|again)\b|\bdrawn? a second time\b"
        r"|\bdraws? (a seed|from)\b|\bnumbers that (are|were) drawn\b",
        "random numbers",
    ),
    Word(r"\bgradients? (that|which) (do not )?arrives?\b|\barriving gradient\b", "tangent"),
    Word(r"\b(could|can) be spared\b|\bto spare\b", "free, save memory"),
    Word(r"\bwhy they are apart\b|\bkernels? (is|are) apart\b|\bapart from others\b", "not fused"),
    Word(r"\bbuilt in as\b|\b(is|are) built in(to the graph\b|[:;,.])", "constant, specialised"),
    Word(r"\bpass(es|ed)? (the|a|its) budget\b", "exceeds the budget"),
    Word(r"\bexchanged? (of )?storages?\b|\bstorages? (is |are )?exchanged\b", "storage swap"),
    Word(r"\bbe rid of\b", "clear"),
    Word(r"\bleft (behind|outside)\b|\bleaves (behind|outside)\b", "side effect"),
    Word(r"\btaken apart\b|\btakes? (it|them|the arguments) apart\b", "unwrap, unpack, decompose"),
    Word(r"\bonly (the )?data tells?\b|\bthe data tells\b", "data-dependent"),
    Word(r"\ba tensor that the function has from outside\b", "captured tensor"),
    Word(r"\breaches by itself\b", "free variable"),
    Word(r"\btaken off (its|the) history\b", "detached"),
    Word(r"\bnumbers? of the data\b", "data-dependent size"),
    Word(r"\bneed not be there\b", "need not be present"),
)

FILE_WORDS = ("given", "kept", "told", "turned", "moved", "exchange", "twin", "pretend", "shelf", "stand_in")
"""Words that no file name of the product contains, as a part between underscores."""


def violations(text: str) -> list[str]:
    """Return each forbidden phrase of a text with the term to use instead."""
    return [
        f"{match.group()!r}: say {word.instead!r}"
        for word in WORDS
        for match in re.finditer(word.pattern, text, re.IGNORECASE)
    ]


def _docstrings(tree: ast.AST) -> set[int]:
    """Identities of the constants that are statements: docstrings, and strings below fields."""
    statements = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {id(value) for value in statements if isinstance(value, ast.Constant)}


def visible_strings(source: str) -> Iterator[tuple[int, str]]:
    """Lines and texts of a module's string constants without its docstrings; a formatted value is `…`."""
    tree = ast.parse(source)
    skipped = _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values)
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Lines of a module, comments and docstrings included, then its strings, which may span lines."""
    yield from enumerate(source.splitlines(), 1)
    yield from visible_strings(source)


@cache
def modules(folder: str) -> tuple[Path, ...]:
    return tuple(sorted((ROOT / folder).rglob("*.py")))


@pytest.mark.parametrize("document", [str(path.relative_to(ROOT)) for path in DOCUMENTS])
def test_documents(document: str) -> None:
    assert violations(OUTPUT.sub("", (ROOT / document).read_text())) == []


@pytest.mark.parametrize("folder", PACKAGES)
def test_packages(folder: str) -> None:
    problems = {
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for path in modules(folder)
        for line, text in texts_of(path.read_text())
        for problem in violations(text)
    }
    assert problems == set()


@pytest.mark.parametrize("file", OTHER_SOURCES)
def test_other_sources(file: str) -> None:
    assert violations((ROOT / file).read_text()) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_catalogue(rule: object) -> None:
    texts = [getattr(rule, name) for name in ("title", "meaning", "cost", "advice")]
    assert violations("\n".join(texts)) == []


def test_help_of_the_commands() -> None:
    for path in sorted((ROOT / "tests" / "goldens" / "cli").glob("help*.txt")):
        assert violations(" ".join(path.read_text().split())) == [], path.name


def test_file_names() -> None:
    paths = [path for folder in ("aotlens", "lsp_server", "tui") for path in modules(folder)]
    assert [str(path) for path in paths if set(path.stem.split("_")) & set(FILE_WORDS)] == []


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("a view, which is made again on each call", "regenerate"),
        ("slow to compute again", "recompute"),
        ("another size is compiled anew", "recompile"),
        ("64 MiB are kept for the backward", "saved for the backward"),
        ("a second draw would differ", "random numbers"),
        ("its storage is exchanged or resized", "storage swap"),
        ("autograd refuses it, so its second draw differs", ""),
        ("the least size passes the budget", "exceeds the budget"),
        ("what is kept on disk, and how to be rid of it", "clear"),
    ],
)
def test_a_word_that_comes_back_is_found(text: str, instead: str) -> None:
    found = violations(text)
    assert any(instead in problem for problem in found) if instead else found == []


def test_messages_are_read_from_the_source() -> None:
    source = (
        'def f(x):\n    """Is kept for the backward."""\n    raise E(f"`{x}` is kept for the backward")\n'
    )
    assert [(line, violations(text)) for line, text in visible_strings(source)] == [
        (3, ["'kept for the backward': say 'saved for the backward'"])
    ]

"""A comment that hides a finding from `aotlens check` hides it in the editor."""

from lsp_server.index import build
from tests.report.sample import MODEL, sample_report


def test_an_ignored_finding_is_not_shown() -> None:
    lines = MODEL.read_text(encoding="utf-8").splitlines()

    def codes(text: list[str]) -> set[str]:
        index = build(sample_report(), str(MODEL), text, lambda name: name)
        return {finding.code for _, finding in index.diagnostics}

    assert "AL101" in codes(lines)
    at = next(number for number, line in enumerate(lines) if "cache.mul_(0.9)" in line)
    ignored = [*lines[:at], f"{lines[at]}  # aotlens: ignore[AL101]", *lines[at + 1 :]]
    assert codes(ignored) == codes(lines) - {"AL101"}

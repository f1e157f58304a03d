"""Each format of `aotlens check`, on a report made by hand."""

import json
from pathlib import Path

import jsonschema
import pytest

from aotlens.diagnostics.budgets import Budget, over_budget
from aotlens.diagnostics.checked import Checked, CheckedTarget, Finding
from aotlens.diagnostics.rules import rule
from aotlens.model.report import Diagnostic, Edit, Fix, Related, Span
from aotlens.render import findings_json as format_json
from aotlens.render import findings_text as format_text
from aotlens.render import github as format_github
from aotlens.render import sarif as format_sarif
from tests.report.sample import training_target

SCHEMA = Path(__file__).with_name("sarif-2.1.0.json")


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checked:
    """One finding with everything, one without a place, one hidden."""
    monkeypatch.chdir(tmp_path)
    Path("a b.py").write_text("é = x.add_(1)\ny = (é,\n     2)\n", encoding="utf-8")
    span, covered = Span("a b.py", 1, 5, 1, 14), Span("a b.py", 2, 4, 3, 7)
    full = Diagnostic(
        "AL101",
        "warning",
        "50% of\n`x`, copied",
        span,
        (Related(covered, "also here"),),
        (Fix("Write a copy", (Edit(span, "x.add(1)"),)),),
    )
    failed = Diagnostic("AL905", "error", "no target", None)
    findings = (Finding(full, "a b.py", "f"), Finding(failed, "a b.py", None, 2))
    hidden = (Finding(Diagnostic("AL301", "information", "large", covered), "a b.py", "f"),)
    targets = (CheckedTarget("a b.py", training_target(), Budget(1)),)
    return Checked(("a b.py",), targets, findings, hidden, 2)


def test_text(checked: Checked) -> None:
    assert format_text.render(checked).splitlines()[:3] == [
        "a b.py:1:5: AL101 warning: 50% of `x`, copied",
        "    1 │ é = x.add_(1)",
        "      │     ^^^^^^^^^",
    ]
    assert format_text.summary(checked) == (
        "2 findings (1 error, 1 warning) in 1 target of 1 file; 1 hidden by comments"
    )


def test_github(checked: Checked) -> None:
    first, second = format_github.render(checked).splitlines()
    assert first == (
        "::warning file=a b.py,line=1,endLine=1,col=5,endColumn=14,title=AL101%3A An argument with a"
        " gradient is mutated in place::50%25 of%0A`x`, copied%0Aa b.py:2:5: also here%0Afix: Write a copy"
    )
    assert second == f"::error file=a b.py,title=AL905%3A {rule('AL905').title}::no target"


def test_sarif_follows_the_schema(checked: Checked) -> None:
    data = json.loads(format_sarif.render(checked))
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    kind = jsonschema.validators.validator_for(schema)
    kind(schema, format_checker=kind.FORMAT_CHECKER).validate(data)
    with pytest.raises(jsonschema.ValidationError):
        kind(schema).validate(data | {"version": "2.2.0"})
    first, second, hidden = data["runs"][0]["results"]
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 1, "startColumn": 5, "endLine": 1, "endColumn": 14},
    }
    assert data["runs"][0]["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "AL101"
    assert "suppressions" not in second
    assert hidden["suppressions"] == [{"kind": "inSource"}]


def test_json(checked: Checked) -> None:
    data = json.loads(format_json.render(checked))
    assert [row["code"] for row in data["findings"]] == ["AL101", "AL905"]
    (target,) = data["targets"]
    partition = training_target().partition
    assert partition is not None
    assert target["saved_bytes"] == partition.saved_bytes
    assert target["budget"]["max_saved_bytes"] == 1


def test_a_budget_names_what_is_largest() -> None:
    target = training_target()
    by_code = {diagnostic.code: diagnostic for diagnostic in over_budget(target, Budget(0, 0, 0))}
    assert set(by_code) == {"AL801", "AL802", "AL803"}
    assert by_code["AL801"].message.endswith("for the backward, over its budget of 0 B (max-saved-bytes)")
    assert by_code["AL801"].related
    assert list(over_budget(target, Budget())) == []

"""The published JSON Schema is current, and what the codec writes follows it."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from aotlens.model import Report, encode
from aotlens.model.schema import schema, schema_text
from tests.report.sample import sample_report

SCHEMA = schema()
FOLLOWS = jsonschema.Draft202012Validator(SCHEMA).validate
"""`jsonschema.validate` would check the schema itself each time, which takes half a second."""
PUBLISHED = Path(__file__).parents[3] / "docs" / "report.schema.json"


def test_published_schema_is_current() -> None:
    assert PUBLISHED.read_text(encoding="utf-8") == schema_text(), (
        "run: python -m aotlens.model.schema docs/report.schema.json"
    )


def test_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "report", [sample_report(), Report("2.13.0", "3.11.2", "x")], ids=["sample", "empty"]
)
def test_reports_follow_the_schema(report: Report) -> None:
    FOLLOWS(encode(report))


def test_later_minors_follow_the_schema() -> None:
    data = encode(sample_report()) | {"schema": "aotlens.report/1.2", "weather": "fine"}
    FOLLOWS(data)


@pytest.mark.parametrize(("key", "value"), [("schema", "aotlens.report/2"), ("torch", 2), ("targets", None)])
def test_bad_reports_do_not(key: str, value: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        FOLLOWS(encode(sample_report()) | {key: value})


def test_fields_are_described() -> None:
    place = SCHEMA["$defs"]["Tensor"]["properties"]["stride"]
    assert place["description"] == "In elements."

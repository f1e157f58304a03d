"""`[tool.aotlens]`: what it sets for which file and target, and what is refused how."""

from pathlib import Path

import pytest

from aotlens.check.settings import settings_for
from aotlens.diagnostics.budgets import Budget
from aotlens.errors import UserError

WHOLE = """\
[tool.aotlens]
ignore = ["al2"]
fail-on = "information"
max-saved-bytes = "1 MiB"
policy = "default"
gpu = "h100"
time-limit = 3

[tool.aotlens.per-file."models/*.py"]
select = ["AL1"]
max-wrapper-steps = 3

[tool.aotlens.per-target."models/net.py::Net*"]
ignore = ["AL101"]
max-saved-bytes = 7
"""


def _write(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    (folder / "models").mkdir()
    return folder / "models" / "net.py"


def test_the_nearest_settings_hold(tmp_path: Path) -> None:
    file = _write(tmp_path, WHOLE)
    (tmp_path / "models" / "pyproject.toml").write_text("[tool.other]\n")
    settings = settings_for(str(file))
    assert settings.file == tmp_path / "pyproject.toml"
    assert (settings.fail_on, settings.time_limit_s) == ("information", 3.0)
    options = settings.options
    assert (options.examples, options.policy, options.gpu) == (True, "default", "h100")


def test_a_target_is_more_than_its_file_and_a_file_more_than_all(tmp_path: Path) -> None:
    file = str(_write(tmp_path, WHOLE))
    settings = settings_for(file)
    assert settings.budget_of(str(tmp_path / "other.py"), "f") == Budget(1 << 20)
    assert settings.budget_of(file, "f") == Budget(1 << 20, None, 3)
    assert settings.budget_of(file, "Net.forward") == Budget(7, None, 3)
    selected = [
        settings.selects(code, file, name) for code, name in (("AL102", "f"), ("AL201", "f"), ("AL301", "f"))
    ]
    assert selected == [True, False, False]
    assert [settings.selects("AL101", file, name) for name in ("f", "Net")] == [True, False]
    assert settings.selects("AL301", str(tmp_path / "other.py"), None)


def test_without_a_file_everything_is_told(tmp_path: Path) -> None:
    settings = settings_for(str(tmp_path / "x.py"))
    assert settings.selects("AL903", "x.py", None)
    assert settings.budget_of("x.py", "f") == Budget()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-saved-byte = 3", "no setting `max-saved-byte`; did you mean `max-saved-bytes`?"),
        ('max-saved-bytes = "3 parsecs"', "max-saved-bytes: '3 parsecs' is not a size"),
        ("max-saved-bytes = 1.5", 'max-saved-bytes takes bytes, as 1048576 or "64 MiB", found 1.5'),
        ("max-wrapper-steps = true", "max-wrapper-steps takes a whole number, found True"),
        ('select = ["AL3", "AL109"]', "select: no diagnostic `AL109`; there is AL105"),
        ('select = "AL3"', 'select takes a list of codes, as ["AL1", "AL301"], found \'AL3\''),
        ('fail-on = "never"', 'fail-on takes "error", "warning", "information", "hint", found \'never\''),
        ('policy = "best"', "policy: no partition policy 'best'"),
        ("per-file = 3", "[tool.aotlens.per-file] takes tables"),
        ('[tool.aotlens.per-file."a"]\nexclude = []', '[tool.aotlens.per-file."a"] has no setting `exclude`'),
        ('[tool.aotlens.per-target."a.py"]\nmax-peak-bytes = 1', '"a.py"] is not FILE::NAME'),
        ("x = ", "cannot read "),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = _write(tmp_path, f"[tool.aotlens]\n{text}\n")
    with pytest.raises(UserError) as raised:
        settings_for(str(file))
    assert message in str(raised.value)
    assert str(tmp_path / "pyproject.toml") in str(raised.value)

"""One table of settings for the command line, editors and `[tool.aotlens]`, in this order of precedence."""

import argparse
from pathlib import Path

import pytest

from aotlens.check.settings import settings_for
from aotlens.cli.commands import inspect
from aotlens.cli.targets import fill_from_project
from aotlens.errors import UserError
from aotlens.settings import TRACE_SETTINGS, Setting, project_settings
from lsp_server.settings import SETTINGS, Settings, from_data

PROJECT = """\
[tool.aotlens]
backend = "inductor"
dynamic = true
policy = "default"
gpu = "a100"
time-limit = 30
"""
VALUES = {"backend": "inductor", "dynamic": True, "policy": "default", "gpu": "a100", "time_limit_s": 30.0}
OTHERS = {"backend": "eager", "dynamic": False, "policy": "min-cut", "gpu": "h100", "timeLimitSeconds": 5}
"""Values for an editor."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    return tmp_path / "train.py"


def arguments(*words: str | Path) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    inspect.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def options_of_inspect() -> set[str]:
    parser = argparse.ArgumentParser()
    inspect.add_arguments(parser)
    return {word for action in parser._actions for word in action.option_strings}


@pytest.mark.parametrize("setting", TRACE_SETTINGS, ids=lambda setting: setting.key)
def test_each_setting_exists_in_all_three(setting: Setting, script: Path) -> None:
    assert setting.option in options_of_inspect()
    assert SETTINGS[setting.editor][0] == setting.field
    assert hasattr(Settings(), setting.field)
    checked = settings_for(str(script))
    value = getattr(checked, setting.field, None)
    assert VALUES[setting.field] in (value, getattr(checked.options, setting.field, None))


def test_a_project_sets_what_the_command_line_leaves_out(script: Path) -> None:
    assert project_settings(str(script)) == VALUES
    filled = arguments(script)
    fill_from_project(filled, str(script))
    assert (filled.backend, filled.dynamic, filled.policy, filled.gpu, filled.time_limit) == (
        "inductor",
        True,
        ["default"],
        "a100",
        30.0,
    )


def test_an_option_goes_before_the_project(script: Path) -> None:
    words = (
        "--backend",
        "eager",
        "--no-dynamic",
        "--memory-budget",
        "0.5",
        "--gpu",
        "h100",
        "--time-limit",
        "5",
    )
    filled = arguments(script, *words)
    fill_from_project(filled, str(script))
    assert (filled.backend, filled.dynamic, filled.policy, filled.gpu, filled.time_limit) == (
        "eager",
        False,
        [],
        "h100",
        5.0,
    )


def test_an_editors_setting_goes_before_the_project(script: Path) -> None:
    plain, _ = from_data({}, Settings(), at_start=True)
    shown = plain.for_file(str(script))
    assert {field: getattr(shown, field) for field in VALUES} == VALUES
    chosen, problems = from_data(OTHERS, Settings(), at_start=True)
    assert problems == ()
    assert chosen.for_file(str(script)) == chosen
    assert chosen.with_gpu(None).for_file(str(script)).gpu is None


def test_a_value_that_does_not_fit_names_the_file_and_the_key(script: Path) -> None:
    project = script.with_name("pyproject.toml")
    project.write_text('[tool.aotlens]\nbackend = "gcc"\n')
    with pytest.raises(UserError) as raised:
        project_settings(str(script))
    assert str(raised.value) == (
        f'{project}: [tool.aotlens] backend takes "eager" or "inductor", found \'gcc\''
    )


def test_without_a_project_the_defaults_stay(tmp_path: Path) -> None:
    filled = arguments(tmp_path / "train.py")
    fill_from_project(filled, str(tmp_path / "train.py"))
    assert (filled.backend, filled.dynamic, filled.policy, filled.gpu) == ("eager", False, [], None)

"""The VS Code extension agrees with the server, and its package holds what it should."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from aotlens._version import __version__
from lsp_server.commands import COMMANDS
from lsp_server.settings import CLIENT_ONLY, SETTINGS, Settings
from tests.language_servers import ROOT

EXTENSION = ROOT / "editors" / "vscode"
PACKAGE: dict[str, Any] = json.loads((EXTENSION / "package.json").read_text())
PROPERTIES: dict[str, dict[str, Any]] = PACKAGE["contributes"]["configuration"]["properties"]
EXTENSIONS_OWN = ["server.command"]
FOR_USERS = [name for name in SETTINGS if name not in CLIENT_ONLY]


def walkthrough_files() -> set[str]:
    """The pages and pictures of the walkthrough's steps."""
    steps = [step for guide in PACKAGE["contributes"]["walkthroughs"] for step in guide["steps"]]
    return {file for step in steps for kind, file in step["media"].items() if kind != "altText"}


def default_of(name: str) -> Any:
    value = getattr(Settings(), SETTINGS[name][0])
    return list(value) if isinstance(value, tuple) else value


def test_the_settings_are_those_of_the_server() -> None:
    assert [name.removeprefix("aotlens.") for name in PROPERTIES] == [
        *FOR_USERS[:1],
        *EXTENSIONS_OWN,
        *FOR_USERS[1:],
    ]


@pytest.mark.parametrize("name", FOR_USERS)
def test_a_setting_has_the_server_s_default_and_a_description(name: str) -> None:
    shown = PROPERTIES[f"aotlens.{name}"]
    assert shown["default"] == default_of(name)
    assert shown.get("description") or shown.get("markdownDescription")
    _, check = SETTINGS[name]
    offered = shown.get("enum", [shown["default"]])
    assert [value for value in offered if not check.accepts(value)] == [], check.expected
    assert len(shown.get("enumDescriptions", ())) == len(shown.get("enum", ()))


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_documented_with_its_default(name: str) -> None:
    page = (ROOT / "docs" / "editors.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|") and f"`{name}`" in line.split("|")[1]]
    assert len(rows) == 1
    stated = rows[0].split("|")[2].strip()
    if stated.startswith("`"):
        assert json.loads(stated.strip("`")) == default_of(name)
    else:
        assert default_of(name) is None


def test_a_workspace_s_settings_that_lead_to_a_run_wait_for_trust() -> None:
    trust = PACKAGE["capabilities"]["untrustedWorkspaces"]
    assert trust["supported"] == "limited"
    assert {"aotlens.trace", "aotlens.server.command", "aotlens.python"} <= set(
        trust["restrictedConfigurations"]
    )


def test_every_command_of_the_palette_is_registered() -> None:
    registered = set(
        re.findall(r'^  "(aotlens\.\w+)": ', (EXTENSION / "src" / "commands.ts").read_text(), re.M)
    )
    offered = {command["command"] for command in PACKAGE["contributes"]["commands"]}
    assert offered == registered | {"aotlens.menu"}
    assert offered & set(COMMANDS) == set()  # the client library registers those itself


def test_every_command_of_the_server_that_the_extension_sends_exists() -> None:
    sources = "\n".join(path.read_text() for path in (EXTENSION / "src").glob("*.ts"))
    sent = set(re.findall(r'server\.run(?:<[^(]*>)?\("(aotlens\.\w+)"', sources))
    assert sent
    assert sent - set(COMMANDS) == set()


def test_the_lock_file_names_no_registry() -> None:
    assert "resolved" not in (EXTENSION / "package-lock.json").read_text()


def test_licence_and_version_are_the_project_s() -> None:
    assert (EXTENSION / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert PACKAGE["version"] == __version__


def test_the_package_holds_the_bundle_and_the_pages_alone() -> None:
    vsix = EXTENSION / "aotlens.vsix"
    if not vsix.exists():
        pytest.skip("the extension is not built here: make vscode")
    names = {Path(name).as_posix() for name in zipfile.ZipFile(vsix).namelist()}
    shown = set(re.findall(r"\((images/\S+?)\)", (EXTENSION / "README.md").read_text()))
    assert names == {
        "[Content_Types].xml",
        "extension.vsixmanifest",
        "extension/package.json",
        "extension/readme.md",
        "extension/LICENSE.txt",
        "extension/dist/extension.js",
        *(f"extension/{picture}" for picture in shown),
        *(f"extension/{file}" for file in walkthrough_files()),
        f"extension/{PACKAGE['icon']}",
        "extension/images/activity.svg",
    }


def test_what_a_marketplace_needs_is_there() -> None:
    assert "private" not in PACKAGE
    assert {"icon", "repository", "bugs", "homepage", "license", "publisher"} <= set(PACKAGE)
    head = (EXTENSION / PACKAGE["icon"]).read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) == (256, 256)


def test_the_walkthrough_has_its_files_and_leads_to_commands_that_exist() -> None:
    assert [file for file in walkthrough_files() if not (EXTENSION / file).is_file()] == []
    contributed = json.dumps([PACKAGE["contributes"][part] for part in ("walkthroughs", "viewsWelcome")])
    named = set(re.findall(r"command:(aotlens\.\w+(?:\.focus)?)", contributed, re.I))
    offered = {command["command"] for command in PACKAGE["contributes"]["commands"]}
    assert named - offered == {"aotlens.memory.focus"}
    assert [view["id"] for view in PACKAGE["contributes"]["views"]["aotlens"]] == ["aotlens.memory"]


def test_keys_run_commands_that_exist_and_differ() -> None:
    keys = PACKAGE["contributes"]["keybindings"]
    offered = {command["command"] for command in PACKAGE["contributes"]["commands"]}
    assert {row["command"] for row in keys} <= offered
    assert len({row["key"] for row in keys}) == len(keys)
    readme = (EXTENSION / "README.md").read_text()
    assert [row["key"] for row in keys if f"`{row['key']}`" not in readme] == []

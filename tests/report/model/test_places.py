"""Lines and paths as people read them: whose file a line number belongs to is always clear."""

from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.model import LiveValue, Memory, Partition, SavedValue, Span, Tensor, Use
from aotlens.model.spans import (
    file_name,
    is_users_own,
    line_of,
    line_text,
    lines_text,
    own_first,
    relative_path,
    shown_path,
)
from aotlens.render.text.activations import partition_lines
from aotlens.render.text.layout import Page, to_text
from aotlens.render.text.peak import memory_lines

SITE = "/env/lib/python3.12/site-packages"
LLAMA = f"{SITE}/transformers/models/llama/modeling_llama.py"
F32 = Tensor("f32", (256,), (1,), "cpu", True, 1024)


def at(file: str, line: int) -> Span:
    return Span(file, line, 0, line, 4)


@pytest.mark.parametrize(
    ("file", "shown", "name"),
    [
        (LLAMA, "transformers/…/modeling_llama.py", "transformers/…/modeling_llama.py"),
        (f"{SITE}/timm/models/vit.py", "timm/models/vit.py", "timm/models/vit.py"),
        (f"{SITE}/einops.py", "einops.py", "einops.py"),
        ("/usr/lib/python3/dist-packages/a/b/c/d.py", "a/…/d.py", "a/…/d.py"),
        ("/elsewhere/lib/model.py", "/elsewhere/lib/model.py", "model.py"),
    ],
)
def test_paths(file: str, shown: str, name: str) -> None:
    assert (shown_path(file), file_name(file)) == (shown, name)


def test_an_environment_inside_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inside = str(tmp_path / ".venv/lib/python3.12/site-packages/peft/tuners/lora/layer.py")
    assert shown_path(inside) == "peft/…/layer.py"
    assert relative_path(inside) == ".venv/lib/python3.12/site-packages/peft/tuners/lora/layer.py"
    assert shown_path(str(tmp_path / "train.py")) == "train.py"


def test_a_line_without_its_file_belongs_to_the_target() -> None:
    spans = (at("/home/train.py", 41), at("/home/blocks.py", 7), at(LLAMA, 123), None)
    assert [line_of(span, "/home/./train.py") for span in spans] == [
        "41",
        "blocks.py:7",
        "transformers/…/modeling_llama.py:123",
        "",
    ]
    assert [line_text(span, "/home/train.py") for span in spans[:2]] == ["line 41", "blocks.py:7"]
    assert line_text(spans[0], None) == "train.py:41"


def test_several_lines() -> None:
    spans = [at(LLAMA, 9), at("/home/train.py", 12), at("/home/train.py", 5), at("/home/train.py", 12)]
    assert lines_text(spans, "/home/train.py") == "line 5, 12, transformers/…/modeling_llama.py:9"
    assert lines_text(spans, "/home/train.py", 1) == "line 5, …"
    assert lines_text(spans[:1], "/home/train.py") == "transformers/…/modeling_llama.py:9"
    assert lines_text([], "/home/train.py") == ""


def test_the_users_own_files_come_first() -> None:
    spans = [at(LLAMA, 9), at("/home/train.py", 12), None]
    assert sorted(spans, key=own_first) == [spans[1], None, spans[0]]
    assert [is_users_own(file) for file in (LLAMA, "/home/train.py")] == [False, True]


def test_saved_values_of_a_package_and_of_the_user() -> None:
    readers = (Use("mul", at(LLAMA, 8)),)
    library = SavedValue("silu", F32, 2048, "new", "needed", at(LLAMA, 9), readers)
    own = SavedValue("cos", F32, 1024, "new", "needed", at("/home/train.py", 3), readers)
    lines = to_text(partition_lines(Partition("min-cut", (library, own), (), 3072), Page())).splitlines()
    assert lines[1:] == [
        "  1.0 KiB  f32[256]  cos",
        "      /home/train.py:3:1  needed; read by the backward of transformers/…/modeling_llama.py:8",
        "  2.0 KiB  f32[256]  silu",
        "      transformers/…/modeling_llama.py:9:1  needed; read by the backward of line 8",
    ]


def test_what_is_alive_until_a_line_of_another_file() -> None:
    value = LiveValue(
        "silu", 100, at("/home/train.py", 3), "saved", last_in="backward", last_span=at(LLAMA, 8)
    )
    memory = Memory(100, (("silu", 100), ("mul", 100)), (value,), "mul", "backward", None, 1, 100)
    lines = to_text(memory_lines(memory, Page(home="/home/train.py"))).splitlines()
    assert lines[-1] == (
        "      /home/train.py:3:1  from the forward until the backward of transformers/…/modeling_llama.py:8"
    )
    unplaced = replace(value, span=None, last_span=at("/home/train.py", 5))
    text = to_text(memory_lines(replace(memory, live_at_peak=(unplaced,)), Page(home="/home/train.py")))
    assert text.splitlines()[-1] == "      from the forward until the backward of line 5"

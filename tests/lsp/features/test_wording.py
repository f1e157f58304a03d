"""Markdown of hovers."""

import pytest

from lsp_server.translate.wording import code, without_links


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("![x](https://e/p.png) [run](command:evil)", r"![x]\(https://e/p.png) [run]\(command:evil)"),
        ("<img src=x onerror=alert(1)>", r"\<img src=x onerror=alert(1)>"),
        ("[a][b]", r"[a]\[b]"),
        ("**f** · saves `f32[4](x) < 2` and f32[8, 4]", "**f** · saves `f32[4](x) < 2` and f32[8, 4]"),
        (f"{code('a`b [x](y)')} [x](y)", r"`` a`b [x](y) `` [x]\(y)"),
        ("a stray ` and [x](y)", r"a stray ` and [x]\(y)"),
    ],
)
def test_links_images_and_tags_are_shown_as_text(text: str, shown: str) -> None:
    assert without_links(text) == shown

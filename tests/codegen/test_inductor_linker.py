"""Which commands of the compiler link with gold, and what happens where gold fails."""

import pytest

from aotlens.torch_api.inductor import linker

LINK = "g++ k.cpp -O3 -shared -fPIC -o k.so -ltorch_cpu"


@pytest.fixture(autouse=True)
def gold_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker, "_has_gold", lambda: True)


def commands(command: str, failing: tuple[str, ...] = ()) -> list[str]:
    """The commands that are run for one of Inductor's, of which the `failing` ones raise its error."""
    ran: list[str] = []

    def run(text: str, cwd: str) -> None:
        ran.append(text)
        if text.endswith(failing):
            raise RuntimeError("C++ compile error")

    linker.link_with_gold(run, lambda: None)(command, "/tmp")
    return ran


def test_a_kernel_is_linked_with_gold() -> None:
    assert commands(LINK) == [f"{LINK} -fuse-ld=gold"]


@pytest.mark.parametrize(
    "command",
    [
        "g++ k.cpp -c -o k.o",
        "g++ header.hpp -E -P -o header.i",
        "clang++ k.cpp -shared -o k.so",
        f"{LINK} -fuse-ld=mold",
    ],
)
def test_other_commands_stay_as_they_are(command: str) -> None:
    assert commands(command) == [command]


def test_without_gold_the_usual_linker_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker, "_has_gold", lambda: False)
    assert commands(LINK) == [LINK]


def test_where_gold_fails_the_usual_linker_links() -> None:
    assert commands(LINK, failing=("-fuse-ld=gold",)) == [f"{LINK} -fuse-ld=gold", LINK]


def test_an_error_of_the_kernel_is_reported() -> None:
    with pytest.raises(RuntimeError, match="C\\+\\+ compile error"):
        commands(LINK, failing=("-fuse-ld=gold", "-ltorch_cpu"))

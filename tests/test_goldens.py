"""The golden files: each is there for something that no other shows."""

from collections import defaultdict

from tests.conftest import GOLDENS


def test_no_two_are_the_same() -> None:
    names = defaultdict(list)
    for path in sorted(GOLDENS.rglob("*")):
        if path.is_file():
            names[path.read_bytes()].append(str(path.relative_to(GOLDENS)))
    assert [same for same in names.values() if len(same) > 1] == []

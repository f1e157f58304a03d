"""Protocol lines: every record comes back as it was, and a foreign line is named."""

import json

import pytest

from aotlens.model.failure import Failure
from aotlens.worker.captured_output import HeadAndTail
from aotlens.worker.codec import Message, Outcome, ProtocolError, decode, encode
from aotlens.worker.protocol import Answer, Cancel, Hello, Progress, TraceOptions, TraceRequest

MESSAGES: tuple[Message, ...] = (
    TraceRequest(
        "a\nb.py",
        "M.forward",
        ("-x", "é"),
        TraceOptions(dynamic=True, what_if=("default",)),
        1.5,
        10,
        True,
        id=3,
    ),
    Cancel(3),
    Hello(12, "2.13.0", "3.11.7"),
    Progress(3, "joint", ""),
    Answer(3, {"targets": [{"name": "f"}]}, None, "out\u2028put\n", 12.5, True),
    Answer(3, None, Failure("user", "broke", "Traceback", "a.py", 4)),
    Outcome(None, Failure("internal", "ours", exit_code=3), ("/a.py",)),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_round_trip(message: Message) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


def test_unknown_fields_are_ignored() -> None:
    line = json.dumps({"protocol": 1, "type": "cancel", "id": 4, "later": True}).encode()
    assert decode(line) == Cancel(4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"hello", "not a JSON line"),
        (b"[]", "expected a message of protocol 1"),
        (b'{"protocol": 2, "type": "cancel", "id": 1}', "expected a message of protocol 1"),
        (b'{"protocol": 1, "type": "x"}', "unknown message type 'x'; known: trace, cancel"),
        (b'{"protocol": 1, "type": "cancel"}', "incomplete `cancel` message"),
    ],
)
def test_foreign_lines(line: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        decode(line)


def test_output_keeps_both_ends() -> None:
    output = HeadAndTail(head_bytes=4, tail_bytes=4)
    for piece in (b"ab", b"cdef", b"ghijklmnop", b"qr"):
        output.write(piece)
    assert output.text() == "abcd\n... 10 bytes of output cut here ...\nopqr"


def test_short_output_is_whole() -> None:
    output = HeadAndTail(head_bytes=4, tail_bytes=4)
    for piece in (b"abc", b"defgh"):
        output.write(piece)
    assert output.text() == "abcdefgh"

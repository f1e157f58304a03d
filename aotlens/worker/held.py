"""A trace that stays in memory after its answer, and answers further questions about the same graphs.

Invariant: each question is answered by a fork of the held process, which is a job of the server like any
other: it has limits, can be cancelled, and changes nothing that is held.  The held process ends when the
server closes its socket.
"""

import faulthandler
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

from aotlens.worker.answers import file_digest
from aotlens.worker.codec import Outcome, decode, encode
from aotlens.worker.job import WriteEnds
from aotlens.worker.protocol import TraceOptions, TraceRequest

__all__ = ["CAN_HOLD", "Answering", "Held", "control_pair", "leave_held", "question_key"]

Answering = Callable[[TraceRequest, WriteEnds, int], NoReturn]
"""Answers a question in this process, and ends it; the last argument is the server's process id."""

CAN_HOLD = sys.platform == "linux"
"""Whether the server becomes the parent of a held process's forks, which it must be to wait for them."""
_LONGEST_BYTES = 1 << 17
"""The longest request that a socket of this kind takes; a longer one runs the script again."""
_PID_BYTES = 8
"""The size of a process id as a message of the socket."""
_PATIENCE_S = 5.0
"""Time for the held process to fork."""


def question_key(request: TraceRequest) -> TraceRequest:
    """Return what a question and the trace that can answer it have in common."""
    options = replace(
        request.options,
        what_if=(),
        only_what_if=False,
        verify=False,
        measure=False,
        dead_values=False,
        gpu_texts=TraceOptions().gpu_texts,
        kernel_limit_s=None,
    )
    limits = {"time_limit_s": 0.0, "memory_limit_bytes": None}
    return replace(request, id=0, options=options, fresh=False, list_reads=False, **limits)  # type: ignore[arg-type]


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Return the ends of a socket for the server and for the child that may be held."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.settimeout(_PATIENCE_S)
    return mine, theirs


@dataclass(frozen=True, slots=True)
class Held:
    """A held process, as the server knows it."""

    key: TraceRequest
    control: socket.socket
    pid: int
    digests: tuple[tuple[str, str | None], ...]
    """Each file that the trace read, with the hash of its bytes."""

    @classmethod
    def from_child(
        cls, request: TraceRequest, control: socket.socket, outcome: Outcome | None
    ) -> "Held | None":
        """Return the process that outlives the ended child; None if there is none."""
        control.setblocking(False)
        try:
            pid = _decoded_pid(control.recv(_PID_BYTES))
        except OSError:  # nothing was sent: the child left no process
            pid = None
        if pid is None or outcome is None:
            control.close()
            return None
        control.settimeout(_PATIENCE_S)
        digests = tuple((file, file_digest(file)) for file in outcome.files)
        return cls(question_key(request), control, pid, digests)

    def answers(self, request: TraceRequest) -> bool:
        """Return True if the request is a question about what is held, and no file has changed."""
        is_question = request.hold and request.options.only_what_if and not request.fresh
        if not is_question or question_key(request) != self.key:
            return False
        return all(file_digest(file) == known for file, known in self.digests)

    def ask(self, request: TraceRequest, pipes: WriteEnds) -> int | None:
        """Return the process that answers, a child of the server; None if the held process has ended."""
        data = encode(request)
        if len(data) > _LONGEST_BYTES:
            return None
        try:
            socket.send_fds(self.control, [data], [pipes.result, pipes.output, pipes.dump])
            return _decoded_pid(self.control.recv(_PID_BYTES))
        except OSError:
            return None


def leave_held(control: socket.socket, pipes: WriteEnds, answer: Answering, server_pid: int) -> None:
    """Fork the process that is held, and tell the server about it; this process then ends as usual."""
    pid = os.fork()
    if pid == 0:
        _hold(control, pipes, answer, server_pid)
    os.setpgid(pid, pid)  # before this process ends, with which the server kills its group
    control.send(_encoded_pid(pid))


def _hold(control: socket.socket, pipes: WriteEnds, answer: Answering, server_pid: int) -> NoReturn:
    """Fork for every question until the server closes its end."""
    try:
        os.setpgid(0, 0)
        faulthandler.disable()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):
            os.dup2(null, number)
        for number in (null, pipes.result, pipes.dump):
            os.close(number)
        while True:
            data, received, _, _ = socket.recv_fds(control, _LONGEST_BYTES, 3)
            if not data:
                break
            control.send(_fork_for(data, WriteEnds(*received), control, answer, server_pid))
            for number in received:
                os.close(number)
    finally:
        os._exit(0)


def _fork_for(
    data: bytes, pipes: WriteEnds, control: socket.socket, answer: Answering, server_pid: int
) -> bytes:
    """Return the encoded id of a process that answers.

    It is forked by an intermediate process that ends at once, so that the server adopts it: the server can
    wait only for its own children.
    """
    reading, writing = os.pipe()
    intermediate = os.fork()
    if intermediate == 0:
        pid = os.fork()
        if pid == 0:
            control.close()
            os.close(reading)
            os.close(writing)
            request = decode(data)
            assert isinstance(request, TraceRequest)
            answer(request, pipes, server_pid)
        os.write(writing, _encoded_pid(pid))
        os._exit(0)
    os.close(writing)
    answering_pid = os.read(reading, _PID_BYTES)
    os.close(reading)
    os.waitpid(intermediate, 0)
    return answering_pid


def _encoded_pid(pid: int) -> bytes:
    return pid.to_bytes(_PID_BYTES, "little")


def _decoded_pid(data: bytes) -> int | None:
    """Return the process id; None if the other end was closed instead."""
    return int.from_bytes(data, "little") if len(data) == _PID_BYTES else None

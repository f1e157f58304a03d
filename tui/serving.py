"""The app in a browser: `aotlens tui --serve`, through textual-serve.

Promise: only a browser with the page's key can open the page, and no other page can reach the app. The app
runs the user's code and may write to their files, and a port of this machine is open to all of its users and,
through their browsers, to every page they visit. Each visitor gets an app of their own, which ends with the
visit.
"""

import os
import secrets
import shlex
import socket
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit
from weakref import WeakSet

from aiohttp import WSCloseCode, web
from textual_serve.app_service import AppService
from textual_serve.server import Server

from aotlens.errors import UserError
from tui.served import SERVER_PID

SHUTDOWN_S = 10.0
"""The time that the apps have to end their workers when the server ends."""

COOKIE = "aotlens-key"
CONTENT_POLICY = (
    "default-src 'self' 'unsafe-inline' data: blob:; font-src 'self' data:; connect-src 'self' ws: wss:"
)
"""The page loads nothing from other hosts; textual-serve's page loads fonts."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AppServer(Server):
    """One command, started for each visitor with the key."""

    def __init__(self, command: Sequence[str], title: str, listening: socket.socket) -> None:
        host, port = listening.getsockname()[:2]
        super().__init__(shell_words(command), host=host, port=port, title=title)
        self.key = secrets.token_urlsafe(16)
        self._listening = listening
        self._visits: WeakSet[web.WebSocketResponse] = WeakSet()

    @property
    def address(self) -> str:
        """Return the address to open in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?key={self.key}"

    def run(self, announce: Callable[[str], None]) -> None:
        """Serve until a signal ends it; call `announce` with the address once it can be opened."""
        self._announce = announce
        web.run_app(
            self._guarded(), sock=self._listening, print=None, access_log=None, shutdown_timeout=SHUTDOWN_S
        )

    async def _guarded(self) -> web.Application:
        app = await self._make_app()
        app.middlewares.append(self._check)
        return app

    async def on_startup(self, app: web.Application) -> None:
        self._announce(self.address)

    async def on_shutdown(self, app: web.Application) -> None:
        """Ends each visit, which ends its app."""
        for visit in list(self._visits):
            await visit.close(code=WSCloseCode.GOING_AWAY, message=b"the server ends")

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Only who has the key, and only this page."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text=f"requests from another page are rejected: {origin}\n")
        if is_key(request.query.get("key"), self.key):
            answer = web.Response(status=303, headers={"Location": "/"})
            answer.set_cookie(COOKIE, self.key, httponly=True, samesite="Strict")
            return answer
        if not is_key(request.cookies.get(COOKIE), self.key):
            raise web.HTTPForbidden(
                text="the key is missing: open the address that `aotlens tui --serve` printed\n"
            )
        # The page uses relative addresses, which also work behind a forwarded port.
        self.public_url = f"{request.scheme}://{request.host}"
        answered = await handler(request)
        if not answered.prepared:
            answered.headers["Content-Security-Policy"] = CONTENT_POLICY
        return answered

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: AppService) -> None:
        self._visits.add(websocket)
        await super()._process_messages(websocket, app_service)

    def initialize_logging(self) -> None:
        """Nothing: the command's own log settings hold, and stdout is data."""


def is_key(candidate: str | None, key: str) -> bool:
    return candidate is not None and secrets.compare_digest(candidate.encode(), key.encode())


def shell_words(command: Sequence[str]) -> str:
    """Return the command for textual-serve's shell, which it replaces, so that the app's parent is the
    server."""
    return subprocess.list2cmdline(command) if os.name == "nt" else f"exec {shlex.join(command)}"


def listen(host: str, port: int) -> socket.socket:
    """Raises UserError for an address that cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        # Python adds the address to the system's words.
        reason = str(getattr(error, "strerror", "this port does not exist")).partition(" (while")[0]
        raise UserError(
            f"cannot serve on {host} port {port}: {reason}; choose another with --port (0: any free port)"
        ) from error


def serve(
    command: Sequence[str], title: str, listening: socket.socket, announce: Callable[[str], None]
) -> int:
    """Serve the command's app to browsers until Ctrl-C; returns the exit code."""
    if os.name != "nt":  # there a shell is the app's parent
        os.environ[SERVER_PID] = str(os.getpid())
    AppServer(command, title, listening).run(announce)
    return 0

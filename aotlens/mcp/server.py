"""The protocol: list the tools, call one in a thread, and turn errors into answers.

Invariant: every call ends with one answer, and a call that the client cancels leaves no process running.
"""

import asyncio
import json
import os
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from aotlens._version import __version__
from aotlens.cli.terminal import say
from aotlens.errors import AotlensError, ReportError, UserError
from aotlens.mcp.reports import Root
from aotlens.mcp.runs import Call
from aotlens.mcp.session import Session
from aotlens.mcp.tools import INSTRUCTIONS, TOOLS, Tool
from aotlens.model.codec import decode_record, encode_record, json_key
from aotlens.model.schema import answer_schema, arguments_schema

__all__ = ["make_server", "serve"]

Context = ServerRequestContext[Any, Any]


def make_server(session: Session) -> "Server[Any]":
    """Return a server for this session; the session ends with it."""

    @asynccontextmanager
    async def lifespan(_: "Server[Any]") -> AsyncIterator[dict[str, Any]]:
        try:
            yield {}
        finally:
            await asyncio.to_thread(session.close)

    async def list_tools(context: Context, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = next((tool for tool in TOOLS if tool.name == params.name), None)
        if tool is None:
            names = ", ".join(tool.name for tool in TOOLS)
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name}; there are {names}")
        return await _answered(session, tool, params.arguments or {}, context)

    return Server(
        "aotlens",
        version=__version__,
        instructions=INSTRUCTIONS,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve(root: Path) -> None:
    """Serve one client on stdin and stdout, until it closes them."""
    os.chdir(root)  # paths in answers are relative to it, as for a command that is run there
    asyncio.run(_serve(make_server(Session(Root(root)))))


async def _serve(server: "Server[Any]") -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _described(tool: Tool) -> types.Tool:
    is_read_only = not (tool.may_run_user_code or tool.writes)
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=arguments_schema(tool.request),
        output_schema=answer_schema(tool.answer),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=is_read_only,
            destructive_hint=not is_read_only,  # a user's script may do anything
            open_world_hint=tool.may_run_user_code,
        ),
    )


async def _answered(
    session: Session, tool: Tool, arguments: dict[str, Any], context: Context
) -> types.CallToolResult:
    call = Call(_progress_function(context))
    try:
        request = _request(tool, arguments)
        answer = await asyncio.to_thread(tool.run, session, request, call)
    except asyncio.CancelledError:
        call.cancel()
        raise
    except AotlensError as error:
        return _error(str(error))
    except Exception as error:  # noqa: BLE001 (a client must get an answer, whatever our fault is)
        say("".join(traceback.format_exception(error)).rstrip())
        return _error(f"internal error: {type(error).__name__}: {error}; the traceback is on stderr")
    data = encode_record(answer)
    return types.CallToolResult(content=[_text(_as_json(data))], structured_content=data)


def _progress_function(context: Context) -> Any:
    """Return a function that passes progress on from any thread, if the client asked for it."""
    loop, count = asyncio.get_running_loop(), 0

    def report(text: str) -> None:
        nonlocal count
        count += 1
        asyncio.run_coroutine_threadsafe(context.session.report_progress(count, None, text), loop)

    return report


def _request(tool: Tool, arguments: dict[str, Any]) -> Any:
    known = [json_key(entry.name) for entry in fields(tool.request)]
    unknown = [name for name in arguments if name not in known]
    if unknown:
        raise UserError(f"{tool.name} has no argument {', '.join(unknown)}; it takes {', '.join(known)}")
    try:
        return decode_record(tool.request, arguments)
    except ReportError as error:
        raise UserError(f"{tool.name}: {error.message}") from error


def _as_json(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False)


def _error(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[_text(message)], is_error=True)


def _text(text: str) -> types.TextContent:
    return types.TextContent(text=text)

"""A client of `aotlens mcp`, as an agent is: asks what a function saves, and what saving less would cost.

Run it from the repository's root: `python examples/agent.py`.
"""

import asyncio
import sys
from typing import Any

from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(command=sys.executable, args=["-m", "aotlens", "mcp"])
TARGET = {"target": "examples/saved_values.py", "run_user_code": True}


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool and return its structured answer."""
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        raise SystemExit(str(result.content))
    return result.structured_content


async def main() -> None:
    async with Client(SERVER) as client:
        for tool in (await client.list_tools()).tools:
            print(f"{tool.name:<10} {tool.title}")

        inspected = await ask(client, "inspect", **TARGET)
        (target,) = inspected["targets"]
        print(f"\n{inspected['report']}: {target['name']} saves {target['saved_bytes']:,} bytes")

        details = await ask(client, "inspect", report=inspected["report"], parts=["partition"], rows=1)
        (saved,) = details["details"][0]["partition"]["saved"]
        line, reason = saved["span"]["line"], saved["reason"]
        print(f"most: {saved['bytes']:,} bytes for `{saved['name']}`, line {line}: {reason}")
        print(f"left out: {details['left_out'][0]}")

        answered = await ask(client, "what-if", **TARGET, changes=["recompute:hidden"])
        after = answered["targets"][0]["changes"][0]["after"]
        print(f"recompute:hidden: {after['saved_bytes']:,} bytes, {after['recompute_flops']:,} FLOP repeated")


if __name__ == "__main__":
    asyncio.run(main())

"""An MCP server of the old protocol, by hand: it answers the handshake, and asks the client for what it must refuse.

`old_mcp_server.py [endless]`: its list of tools may have no end.
"""

import json
import sys
from typing import Any

ASKED = {
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
    "elicitation/create": {"message": "Your password?", "requestedSchema": {"type": "object", "properties": {}}},
    "roots/list": {},
}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def hear() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    heard: dict[str, Any] = json.loads(line)
    return heard


def ask_the_client() -> str:
    """What came of each request: the client's refusal, or "granted"."""
    came = []
    for number, (method, params) in enumerate(ASKED.items(), 100):
        say(id=number, method=method, params=params)
        answer = hear()
        while answer.get("id") != number:
            answer = hear()
        came.append(f"{method}: {'refused' if 'error' in answer else 'granted'}")
    return "\n".join(came)


def page_of(cursor: str) -> dict[str, Any]:
    """The tool that is there, and if there is no end fifty more on each page."""
    schema = {"type": "object", "properties": {}}
    tools = [{"name": "ask", "description": "Ask.", "inputSchema": schema}]
    if "endless" not in sys.argv:
        return {"tools": tools}
    start = int(cursor)
    tools += [{"name": f"t{start + number}", "inputSchema": schema} for number in range(50)]
    return {"tools": tools, "nextCursor": str(start + 50)}


def main() -> None:
    while True:
        heard = hear()
        method, number = heard.get("method"), heard.get("id")
        if method == "initialize":
            capabilities = heard["params"]["capabilities"]
            info = {"name": "old", "version": "1"}
            version = heard["params"]["protocolVersion"]
            say(id=number, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        elif method == "tools/list":
            say(id=number, result=page_of((heard.get("params") or {}).get("cursor") or "0"))
        elif method == "tools/call":
            text = f"{ask_the_client()}\n{json.dumps(capabilities)}"
            say(id=number, result={"content": [{"type": "text", "text": text}]})
        elif number is not None:
            say(id=number, error={"code": -32601, "message": f"no {method} here"})


if __name__ == "__main__":
    main()

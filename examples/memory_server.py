"""Remembers notes and finds them in other languages: a server of the Model Context Protocol.

pip install mcp
python examples/memory_server.py                 # shows what it does
python examples/memory_server.py notes.sqlite    # what an assistant starts

Assistants and editors read from a file which servers to start, most of them in this form. Paths are
absolute, because the servers start in a folder of the assistant's:

{"mcpServers": {"memory": {
    "command": "/path/to/.venv/bin/python",
    "args": ["/path/to/memory_server.py", "/path/to/notes.sqlite"]}}}
"""

import asyncio
import sqlite3
import sys
from typing import Annotated

from mcp import Client
from mcp.server.mcpserver import MCPServer
from pydantic import Field

import xling_tf

model = xling_tf.load()
notes = sqlite3.connect(sys.argv[1] if len(sys.argv) > 1 else ":memory:")
notes.execute("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text UNIQUE)")
server = MCPServer("memory", instructions="Keeps notes. Ask it before you say that you forgot.")


@server.tool()
async def remember(note: Annotated[str, Field(pattern=r"\S")]) -> str:
    """Keeps a note, a sentence or two in any language, for later conversations."""
    with notes:
        notes.execute("INSERT OR IGNORE INTO notes (text) VALUES (?)", (note,))
    return "remembered"


@server.tool()
async def recall(question: str, limit: Annotated[int, Field(ge=1)] = 5) -> list[str]:
    """Finds the notes that probably answer a question, in any language, the best first."""
    rows = notes.execute("SELECT id, text FROM notes").fetchall()
    # Tens of thousands of notes are encoded in about a second, so no vectors are stored.
    texts = [text for _, text in rows]
    (hits,) = model.semantic_search(question, texts, top_k=limit, min_probability=0.5)
    found = [rows[hit["corpus_id"]] for hit in hits]
    return [f"{number}: {text}" for number, text in found]


@server.tool()
async def forget(number: int) -> str:
    """Deletes a note by the number that `recall` gives it."""
    with notes:
        found = notes.execute("DELETE FROM notes WHERE id = ?", (number,)).rowcount
    return "forgotten" if found else f"there is no note {number}"


async def show() -> None:
    """Talks to the server as an assistant does."""
    async with Client(server) as client:
        for note in ("Anna is allergic to nuts.", "Der Schlüssel liegt unter der Fußmatte."):
            await client.call_tool("remember", {"note": note})
        for question in ("¿Dónde está la llave?", "¿Qué no puede comer Anna?", "¿Quién ganó?"):
            answer = await client.call_tool("recall", {"question": question})
            print(question, answer.structured_content["result"] or "nothing")


if len(sys.argv) > 1:
    server.run()
else:
    asyncio.run(show())
notes.close()

"""What every scenario has: a server to do things to, and a finding."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xling_tf.load_testing.server_process import ServerProcess

# A small queue, so that it can be filled, and little patience with slow clients.
CLIENT_SECONDS = 3
MAX_BATCH_SIZE = 64
MAX_ENQUEUED_BATCHES = 4
_FLAGS = (
    f"--client_seconds={CLIENT_SECONDS}",
    f"--max_batch_size={MAX_BATCH_SIZE}",
    f"--max_enqueued_batches={MAX_ENQUEUED_BATCHES}",
    "--file_system_poll_wait_seconds=0.5",
    "--log_level=DEBUG",
)


@dataclass(frozen=True)
class Finding:
    """What came of a fault.

    Attributes:
        name: Of the scenario.
        done: To the server.
        expected: Of it.
        seen: Figures.
        checks: What of the expected was true.
    """

    name: str
    done: str
    expected: str
    seen: Mapping[str, Any]
    checks: Mapping[str, bool]

    @property
    def passed(self) -> bool:
        """Whether all was as expected."""
        return all(self.checks.values())


@dataclass(frozen=True)
class Stage:
    """Where the scenarios play.

    Attributes:
        command: Starts a server of the model's versions, at any free port.
        model: Its name there.
        export: The model; only read.
        versions: Folder of its versions; there is version 1.
    """

    command: tuple[str, ...]
    model: str
    export: Path
    versions: Path

    def start(self, output: Path | None = None, port: int = 0) -> ServerProcess:
        """Starts a server that gives clients little time and little room.

        Args:
            output: Where it prints to; a file of its own by default.
            port: Where it listens; 0 for any that is free.
        """
        return ServerProcess([*self.command, *_FLAGS, f"--port={port}"], output)

    def newest(self) -> int:
        """The largest version's number."""
        return max(int(path.name) for path in self.versions.iterdir() if path.name.isdigit())

    def metric(self, server: ServerProcess, name: str) -> float:
        """One of the server's metrics that has no other label than the model's name."""
        return server.metrics()[f'{name}{{model_name="{self.model}"}}']

"""Load from wrk (https://github.com/wg/wrk), an HTTP client that is faster than any server here."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xling_tf.errors import UserError

_SCRIPT = Path(__file__).with_name("requests.lua")
_LINE = re.compile(r"^measured (\{.*\})$", re.MULTILINE)


@dataclass(frozen=True)
class Measured:
    """What clients saw that ask again as soon as they are answered.

    Attributes:
        requests: That were answered.
        seconds: That it took.
        p50_ms: Median of the latencies, in milliseconds.
        p99_ms: What 99 of 100 do not exceed.
        max_ms: The largest one.
        errors: By kind; "status" are answers of 400 and above.
        statuses: Answers by status, where they are counted.
    """

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    errors: Mapping[str, int] = field(default_factory=dict)
    statuses: Mapping[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds

    @property
    def failures(self) -> int:
        """Errors of all kinds."""
        return sum(self.errors.values())


def find_wrk() -> str:
    """The program's path.

    Raises:
        UserError: It is not installed.
    """
    found = shutil.which("wrk")
    if found is None:
        raise UserError(
            "the program wrk is expected on the PATH, but is not there; install it (Debian and Ubuntu: "
            "apt-get install wrk; macOS: brew install wrk)"
        )
    return found


def drive(
    url: str, bodies: Sequence[bytes], clients: int, seconds: float, *, statuses: bool = False
) -> Measured:
    """Posts bodies in turn from so many clients at a time.

    Args:
        url: Where to.
        bodies: One line each.
        clients: Connections; one thread drives them all, which leaves the other cores to the server.
        seconds: For how long, rounded up to whole ones.
        statuses: Whether to count the statuses.

    Raises:
        UserError: wrk is missing, or ends with an error.
    """
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(b"".join(body + b"\n" for body in bodies))
        file.flush()
        whole = max(1, round(seconds + 0.499))
        command = [find_wrk(), "-t1", f"-c{clients}", f"-d{whole}s", "--timeout=60s"]
        command += ["-s", str(_SCRIPT), url, "--", file.name, *["statuses"][: int(statuses)]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not _LINE.search(done.stdout):
        told = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
        raise UserError(f"wrk is expected to measure {url}, but says: {told[-1]}")
    return parse(done.stdout)


def parse(output: str) -> Measured:
    r"""Reads the line that the script of this module makes wrk print.

    Example:
        >>> parse(
        ...     'Running 1s test\nmeasured {"requests": 10, "seconds": 2.0, "p50_ms": 1.5, '
        ...     '"p99_ms": 3.0, "max_ms": 4.0, "errors": {"read": 1}, "statuses": {"200": 10}}'
        ... ).rate
        5.0
    """
    match = _LINE.search(output)
    if match is None:
        raise ValueError("wrk printed no figures")
    return Measured(**json.loads(match[1]))

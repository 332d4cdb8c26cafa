"""Log lines as JSON, written by a thread of their own: a reader that stalls stops no request."""

import json
import logging
import queue
import sys
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener

LOGGER = logging.getLogger("xling_tf.serving")

# Lines that wait for a reader that stalls; those beyond are dropped.
_MAX_WAITING = 10_000


class JsonFormatter(logging.Formatter):
    """A record as one line: time, level, event, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; lines of other packages have their text as `message`.

        Example:
            >>> record = logging.makeLogRecord({"msg": "ready", "levelname": "INFO", "created": 0})
            >>> record.fields = {"version": 3}
            >>> JsonFormatter().format(record)
            '{"time": "1970-01-01T00:00:00.000+00:00", "level": "info", "event": "ready", "version": 3}'
        """
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower()}
        fields = getattr(record, "fields", None)
        if fields is None:
            line |= {"event": record.name, "message": _told(record)}
        else:
            line |= {"event": record.getMessage(), **fields}
        return json.dumps(line, ensure_ascii=False)


def log(level: int, event: str, **fields: object) -> None:
    """Logs an event.

    Args:
        level: One of `logging`'s.
        event: Its name, in one word.
        **fields: What else the line says; what a client sent is not among it.
    """
    LOGGER.log(level, event, extra={"fields": fields})


def start_logging(level: str) -> QueueListener:
    """Writes this package's lines, and uvicorn's warnings, to standard output; `stop` ends it."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(_MAX_WAITING)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    for logger, wanted in ((LOGGER, level), (logging.getLogger("uvicorn"), logging.WARNING)):
        logger.handlers = [_Dropping(lines)]
        logger.setLevel(wanted)
        logger.propagate = False
    # A full disk or a closed pipe under standard output costs the lines, not the server.
    handler.handleError = _ignored  # type: ignore[method-assign]
    listener = QueueListener(lines, handler)
    listener.start()
    return listener


class _Dropping(QueueHandler):
    """Drops lines when the queue is full."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        del record


def _ignored(record: logging.LogRecord) -> None:
    del record


def _told(record: logging.LogRecord) -> str:
    """The text of a foreign line, and of its exception the last line."""
    told = " ".join(record.getMessage().split())
    if record.exc_info and record.exc_info[1]:
        told += f" {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
    return told

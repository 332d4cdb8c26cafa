"""The server that hostile requests are sent to: tiny models, small limits and impatience."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import uvicorn
from serving_models import LABELS, lay_out

from xling_tf.serving.app import make_app
from xling_tf.serving.batching import BatchingParameters
from xling_tf.serving.config import Limits, ModelConfig
from xling_tf.serving.http_protocol import limited
from xling_tf.serving.model_server import ModelServer

LIMITS = Limits(body_bytes=2**20, client_seconds=1)
NAMES = ("half_plus", "several", "texts")


@contextmanager
def hostile_server(folder: Path) -> Iterator[tuple[str, int]]:
    """Serves the models of serving_models.py in a thread.

    Args:
        folder: Empty.

    Yields:
        Its address.
    """
    lay_out(folder)
    models = [ModelConfig(name, folder / name, LABELS.get(name, {})) for name in NAMES]
    server = ModelServer(models, BatchingParameters())
    server.start(poll_seconds=0)
    config = uvicorn.Config(
        make_app(server, LIMITS),
        http=limited(LIMITS),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=LIMITS.client_seconds,
    )
    web = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=web.run, args=[[listener]])
        thread.start()
        while not web.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield listener.getsockname()
        web.should_exit = True
        thread.join()
    server.stop()

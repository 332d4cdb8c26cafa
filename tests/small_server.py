"""Our server with the tiny models of serving_models.py, in a thread of the tests."""

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

NAMES = ("half_plus", "several", "texts")


@contextmanager
def small_server(folder: Path, limits: Limits) -> Iterator[tuple[str, int]]:
    """Serves the models.

    Args:
        folder: Empty.
        limits: Of the server.

    Yields:
        Its address.
    """
    lay_out(folder)
    models = [ModelConfig(name, folder / name, LABELS.get(name, {})) for name in NAMES]
    server = ModelServer(models, BatchingParameters())
    server.start(poll_seconds=0)
    config = uvicorn.Config(
        make_app(server, limits),
        http=limited(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=limits.client_seconds,
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

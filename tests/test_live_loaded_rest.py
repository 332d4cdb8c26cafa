"""One vector however it is asked for: of the live encoder, hub.load, SentenceEncoder and the server."""

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_hub as hub
from serving_servers import server_in_thread
from testing import SENTENCES

import xling_tf
from xling_tf.evaluators.systems import open_system
from xling_tf.hub.module import HubModule
from xling_tf.serving.models import ModelConfig


def test_live_is_loaded_is_rest(hub_module: HubModule, hub_folder: Path):
    live = np.asarray(hub_module(SENTENCES))
    loaded: Any = hub.load(str(hub_folder))
    np.testing.assert_allclose(loaded(SENTENCES), live, atol=1e-6)
    np.testing.assert_allclose(xling_tf.load(hub_folder).encode(SENTENCES), live, atol=1e-6)
    with server_in_thread([ModelConfig("m", hub_folder)]) as server:
        answer = server.predict(SENTENCES).json["predictions"]
        np.testing.assert_allclose(answer, live, atol=1e-6)
        system = open_system(f"rest:{server.url}/v1/models/m")
        np.testing.assert_allclose(system(SENTENCES), live, atol=1e-6)

"""The messages of TensorFlow Serving, of an extra; imported where one is needed."""

from importlib import import_module
from typing import Any

from xling_tf.errors import UserError


def serving_proto(name: str) -> Any:
    """The module of generated messages.

    Args:
        name: Below `tensorflow_serving`, without `_pb2`: `apis.predict`.

    Raises:
        UserError: tensorflow-serving-api is not installed.
    """
    try:
        return import_module(f"tensorflow_serving.{name}_pb2")
    except ImportError as error:
        raise UserError(
            "the serving layout needs tensorflow-serving-api, which is not installed; install the "
            "extra with: pip install 'xling_tf[serving]' (in a checkout: pip install -e '.[serving]')"
        ) from error

"""Models behind TensorFlow Serving's REST interface as systems."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import urllib3

from xling_tf.errors import UserError
from xling_tf.evaluators.batching import in_batches
from xling_tf.evaluators.system import System
from xling_tf.systems.signatures import Signatures

# Per request: half a megabyte of JSON comes back, in well under a second from most servers.
_MAX_ROWS = 128
_MAX_CHARACTERS = 2**16
_TIMEOUT = urllib3.Timeout(connect=10.0, read=120.0)
# Waits of 0, 1, 2, 4, 8 and 16 seconds: a server that is started anew is back by then.
_RETRIES = 6
_BACKOFF_SECONDS = 0.5
# Full queue, gateway without server, not yet loaded, too slow; other errors would come again.
_PASSING = (429, 502, 503, 504)
# What JSON of another form raises, brackets without end and numbers beyond all floats among it.
_OTHER_FORMS = (AttributeError, OverflowError, RecursionError, TypeError, ValueError)
_PROBES = ["Hola", "The cat is sleeping.", "你好，世界", "¿Qué tal? 12 345"]
_URL = re.compile(
    r"https?://(?:\[[^]]+\]|[^/:?#\s]+)(?::\d+)?(?:/[^?#]*)?"
    r"/v1/models/(?P<name>[^/:?#]+)(?:/(?:versions|labels)/[^/:?#]+)?"
)


def open_rest(url: str) -> System:
    """Opens a model on a server that speaks TensorFlow Serving's REST protocol.

    Sentences are encoded by the signature `serving_default`, else `default` or `question_encoder`;
    the other functions of a system are there where the server's metadata names their signatures.

    Args:
        url: `http://host:8501/v1/models/en-es`, with `/versions/3` behind it or not.

    Raises:
        UserError: The URL is another one, the server does not answer, or its model maps no strings
            to vectors.
    """
    url = url.rstrip("/")
    match = _URL.fullmatch(url)
    if match is None:
        raise UserError(
            f"rest: must be followed by http://host:port/v1/models/name, but is followed by {url!r}; "
            "correct the URL"
        )
    model = _RestModel(url)
    version = model.version()
    signatures = Signatures(inputs=model.signature_inputs(), call=model.predict)
    sentences = signatures.sentences()
    if sentences is None:
        raise UserError(
            f"{url} must have a signature 'serving_default' with one input, but has "
            f"{', '.join(sorted(signatures.inputs)) or 'none'}; serve an exported sentence encoder"
        )
    system = System(
        name=f"{match['name']}-rest",
        sentences=sentences,
        questions=signatures.questions(),
        responses=signatures.responses(),
        inference=signatures.inference(),
        description={"kind": "REST", "url": url, "version": version},
    )
    return dataclasses.replace(system, checksum=_fingerprint(system, version))


class _RestModel:
    """A served model, by the requests of the protocol."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = urllib3.PoolManager()

    def version(self) -> str:
        """The newest version that can be used."""
        answer = self._request("GET", self._url)
        with _form_checked(self._url, answer):
            statuses = answer["model_version_status"]
            states = {int(status["version"]): status["state"] for status in statuses}
        available = [version for version, state in states.items() if state == "AVAILABLE"]
        if not available:
            raise UserError(
                f"{self._url} must serve an available version, but has {states}; look for the cause "
                "in the server's log"
            )
        return str(max(available))

    def signature_inputs(self) -> dict[str, tuple[str, ...]]:
        """Names of the inputs of each signature."""
        url = f"{self._url}/metadata"
        answer = self._request("GET", url)
        with _form_checked(url, answer):
            signatures = answer["metadata"]["signature_def"]["signature_def"]
            return {name: tuple(signature["inputs"]) for name, signature in signatures.items()}

    def predict(self, signature: str, columns: Mapping[str, list[str]]) -> np.ndarray:
        """Calls a signature with any number of rows: `[rows, outputs]`."""

        def predict(*batch: list[str]) -> np.ndarray:
            return self._predict(signature, dict(zip(columns, batch, strict=True)))

        return in_batches(
            predict, *columns.values(), max_rows=_MAX_ROWS, max_length=_MAX_CHARACTERS
        )

    def _predict(self, signature: str, columns: Mapping[str, list[str]]) -> np.ndarray:
        url = f"{self._url}:predict"
        rows = list(zip(*columns.values(), strict=True))
        # Of a single input the values alone, of several objects with their names.
        instances = (
            [text for (text,) in rows]
            if len(columns) == 1
            else [dict(zip(columns, row, strict=True)) for row in rows]
        )
        body = {"signature_name": signature, "instances": instances}
        answer = self._request("POST", url, body)
        with _form_checked(url, answer):
            predictions = answer["predictions"]
            # Of a single output its value alone, of several objects with their names.
            if isinstance(predictions[0], dict):
                predictions = [prediction["outputs"] for prediction in predictions]
            array = np.array(predictions)
            if array.ndim != 2 or len(array) != len(rows) or array.dtype.kind not in "fi":
                raise ValueError(f"{len(rows)} vectors were expected")
            return array.astype(np.float32)

    def _request(self, method: str, url: str, body: Any = None) -> Any:
        """Sends a request, again if the server is away, and reads the JSON of the answer."""
        retries = urllib3.Retry(
            total=_RETRIES,
            backoff_factor=_BACKOFF_SECONDS,
            status_forcelist=_PASSING,
            allowed_methods=None,
            raise_on_status=False,
            respect_retry_after_header=False,
        )
        options = {} if body is None else {"json": body}
        try:
            response = self._pool.request(method, url, timeout=_TIMEOUT, retries=retries, **options)
        except urllib3.exceptions.HTTPError as error:
            cause = str(getattr(error, "reason", None) or error)[:200]
            raise UserError(
                f"{url} must answer, but failed at try {_RETRIES + 1} of {_RETRIES + 1}: {cause}; start "
                "the server, and this again"
            ) from error
        if response.status != 200:
            tried = len(response.retries.history) + 1 if response.retries else 1
            raise UserError(
                f"{url} must answer 200 OK, but answered {response.status} {response.reason} "
                f"({_error_text(response.data)}) at try {tried} of {_RETRIES + 1}; correct the URL, or "
                "look for the cause in the server's log"
            )
        with _form_checked(url, response.data):
            return json.loads(response.data)


def _error_text(content: bytes) -> str:
    """What the server says, in the protocol's form or any other."""
    text = content.decode("utf-8", "replace").strip()
    with suppress(LookupError, *_OTHER_FORMS):
        text = str(json.loads(text)["error"])
    return " ".join(text.split())[:300]


@contextmanager
def _form_checked(url: str, answer: Any) -> Iterator[None]:
    """Raises a `UserError` where an answer is not of the protocol's form."""
    try:
        yield
    except (LookupError, *_OTHER_FORMS) as error:
        raise UserError(
            f"{url} must answer as TensorFlow Serving does, but gave {str(answer)[:120]!r} "
            f"({type(error).__name__}: {error}); give the URL of a sentence encoder on such a server"
        ) from error


def _fingerprint(system: System, version: str) -> str:
    """Digests a model's version and its vectors of a few texts, up to what computing in parallel changes."""
    probes = [
        system(_PROBES),
        system.encode_questions(_PROBES),
        system.encode_responses(_PROBES, _PROBES),
    ]
    digest = hashlib.blake2b(version.encode(), digest_size=16)
    for vectors in probes:
        # Adding zero makes -0.0 of rounding 0.0.
        digest.update((vectors.round(3) + 0).tobytes())
    return digest.hexdigest()

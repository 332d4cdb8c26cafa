"""Several models by name, and the thread that follows their files."""

import logging
from collections.abc import Mapping, Sequence
from threading import Event, Thread

from xling_tf.errors import UserError
from xling_tf.serving.config import ModelConfig
from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_log import log
from xling_tf.serving.metrics import Metrics
from xling_tf.serving.paths import Target
from xling_tf.serving.servable import Servable
from xling_tf.serving.served_model import ServedModel, not_found
from xling_tf.serving.status import VersionStatus


class ModelRepository:
    """The models of a server.

    One thread loads them all, one after another, so that at most one model is in memory twice.
    """

    def __init__(self, models: Sequence[ModelConfig], metrics: Metrics, *, batched: bool) -> None:
        self._configs = {model.name: model for model in models}
        self._models: Mapping[str, ServedModel] = {
            model.name: ServedModel(model, metrics, batched=batched) for model in models
        }
        self._stopped = Event()
        self._thread: Thread | None = None

    def start(self, poll_seconds: float) -> None:
        """Loads all models, and then follows their files.

        Args:
            poll_seconds: Between two looks at them; 0 for no look after this one.

        Raises:
            UserError: One has no version that can be loaded, or not those that labels name.
        """
        for name, model in self._models.items():
            model.poll()
            if not model.is_available():
                raise self._not_loaded(name, model)
        if poll_seconds:
            self._thread = Thread(
                target=self._follow, args=[poll_seconds], name="poll", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Follows the files no longer; a load that has begun is not waited for."""
        self._stopped.set()

    def names(self) -> list[str]:
        """The models' names."""
        return list(self._models)

    def is_available(self) -> bool:
        """Whether every model can answer."""
        return all(model.is_available() for model in self._models.values())

    def lease(self, target: Target) -> Servable:
        """What answers a request; its user calls its `release`.

        Raises:
            ServingError: The model, version or label is not served.
        """
        version = self._version(target)
        if target.model not in self._models:
            raise ServingError.not_found(not_found(target.model, version))
        return self._models[target.model].lease(version)

    def statuses(self, target: Target) -> list[VersionStatus]:
        """The state of the version that a request names, or of all.

        Raises:
            ServingError: There is none (`GetModelStatusImpl::GetModelStatusWithModelSpec`).
        """
        version = self._version(target)
        model = self._models.get(target.model)
        statuses = model.statuses() if model is not None else []
        if version is not None:
            statuses = [status for status in statuses if status.version == version]
        if not statuses:
            asked = "any versions" if version is None else f"version {version}"
            raise ServingError.not_found(f"Could not find {asked} of model {target.model}")
        return statuses

    def _version(self, target: Target) -> int | None:
        """The version that a request names by number or label (`ServerCore::GetModelVersionForLabel`)."""
        if target.label is None:
            return target.version
        model = self._models.get(target.model)
        version = model.labelled(target.label) if model is not None else None
        if version is None:
            raise ServingError.invalid_argument(
                f"Unrecognized servable version label: {target.label}"
            )
        return version

    def _follow(self, poll_seconds: float) -> None:
        while not self._stopped.wait(poll_seconds):
            for name, model in self._models.items():
                try:
                    model.poll()
                except Exception as error:  # A disk that fails now may answer at the next look.
                    log(logging.ERROR, "poll_failed", model=name, error=str(error))

    def _not_loaded(self, name: str, model: ServedModel) -> UserError:
        config = self._configs[name]
        failures = [
            f"version {status.version}: {status.error_message}"
            for status in model.statuses()
            if status.error_message
        ]
        wanted = ["1, 2, ...", *(f"{version} too" for version in config.labels.values())]
        return UserError(
            f"--model {name}={config.path} is expected to be an exported model, or to have such in "
            f"folders named {', '.join(wanted)}, but {'; '.join(failures) or 'there is none'}"
        )

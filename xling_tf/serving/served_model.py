"""The versions of one model: which are loaded, and how one takes the place of another."""

import logging
import time
from pathlib import Path
from threading import Lock

from xling_tf.serving.config import ModelConfig
from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_log import log
from xling_tf.serving.metrics import Metrics
from xling_tf.serving.model_errors import canonical_code, first_line
from xling_tf.serving.servable import Servable
from xling_tf.serving.status import VersionStatus
from xling_tf.serving.versions import Fingerprint, find_versions, fingerprint
from xling_tf.serving.warm_up import warm_up


class ServedModel:
    """One model; `poll` follows its files, everything else answers from what is loaded.

    The largest version is served, as by TensorFlow Serving's policy `latest`, and those with a
    label beside it. A version replaces another only when it is loaded and warm, and the other one
    stays until its last request is answered (the policy `availability_preserving`). A version that
    cannot be loaded leaves things as they are, until its files change.
    """

    def __init__(self, config: ModelConfig, metrics: Metrics, *, batched: bool) -> None:
        self._config = config
        self._metrics = metrics
        self._batched = batched
        self._lock = Lock()
        # Never changed, only replaced: a request sees all of a switch or nothing.
        self._serving: dict[int, Servable] = {}
        self._statuses: dict[int, VersionStatus] = {}
        # What the files were like when a version was last loaded, or could not be.
        self._tried: dict[int, Fingerprint] = {}
        metrics.load_failures.labels(config.name)  # A counter that is not there cannot be watched.

    def lease(self, version: int | None) -> Servable:
        """The servable of a version, or of the largest; its user calls its `release`.

        Raises:
            ServingError: It is not loaded.
        """
        while True:
            serving = self._serving
            wanted = max(serving, default=None) if version is None else version
            if wanted not in serving:
                raise ServingError.not_found(not_found(self._config.name, version))
            if serving[wanted].lease():
                return serving[wanted]

    def labelled(self, label: str) -> int | None:
        """The version that has a label."""
        return self._config.labels.get(label)

    def statuses(self) -> list[VersionStatus]:
        """The state of every version that was ever met."""
        with self._lock:
            return list(self._statuses.values())

    def is_available(self) -> bool:
        """Whether all that should be served is."""
        return bool(self._serving) and self._serving.keys() >= set(self._config.labels.values())

    def poll(self) -> None:
        """Loads what is new and wanted, and unloads what is not wanted any more.

        Without any version on the disk, what is loaded stays: that is what a folder looks like while
        it is replaced.
        """
        found = find_versions(self._config.path)
        if not found:
            return
        labelled = {version for version in self._config.labels.values() if version in found}
        for version in {max(found), *labelled} - self._statuses.keys():
            self._set_status(version, "START")
        largest = next((v for v in sorted(found, reverse=True) if self._load(v, found[v])), None)
        kept = {version for version in labelled if self._load(version, found[version])}
        if largest is None:
            kept |= self._serving.keys()
        for version in self._serving.keys() - kept - {largest}:
            self._unload(version)

    def _load(self, version: int, folder: Path) -> bool:
        """Whether the version is loaded, which is tried if its files are not those of the last try."""
        files = fingerprint(folder)
        if self._tried.get(version) == files:
            return version in self._serving
        self._tried[version] = files
        if version not in self._serving:
            self._set_status(version, "LOADING")
        self._log(logging.INFO, "loading", version)
        started = time.perf_counter()
        try:
            servable, calls = self._warm(version, folder)
        except Exception as error:  # Whatever is wrong with a model, the server goes on.
            self._fail(version, folder, error)
            return version in self._serving
        seconds = time.perf_counter() - started
        self._metrics.load_seconds.labels(self._config.name).set(seconds)
        self._switch(version, servable)
        self._log(logging.INFO, "available", version, ms=round(seconds * 1e3), warm_up_calls=calls)
        return True

    def _warm(self, version: int, folder: Path) -> tuple[Servable, int]:
        """A version that is ready, and how many calls made it so."""
        servable = Servable(self._config.name, version, folder, batched=self._batched)
        try:
            return servable, warm_up(servable, folder)
        except BaseException:
            servable.retire(lambda: None)
            raise

    def _switch(self, version: int, servable: Servable) -> None:
        """Serves a version, in place of an older export of the same number if there is one."""
        replaced = self._serving.get(version)
        self._serving = {**self._serving, version: servable}
        self._set_status(version, "AVAILABLE")
        self._metrics.available_version.labels(self._config.name).set(max(self._serving))
        if replaced is not None:
            replaced.retire(lambda: self._log(logging.INFO, "replaced", version))

    def _unload(self, version: int) -> None:
        """Stops serving a version; its memory is given back after its last request."""
        servable = self._serving[version]
        self._set_status(version, "UNLOADING")
        self._serving = {key: value for key, value in self._serving.items() if key != version}
        self._metrics.available_version.labels(self._config.name).set(max(self._serving))
        del self._tried[version]

        def unloaded() -> None:
            self._set_status(version, "END")
            self._log(logging.INFO, "unloaded", version)

        servable.retire(unloaded)

    def _fail(self, version: int, folder: Path, error: Exception) -> None:
        """Tells of a version that could not be loaded; an older export of it goes on."""
        message = first_line(str(error).replace(str(folder), f"version {version}"))
        state = "AVAILABLE" if version in self._serving else "END"
        self._set_status(version, state, canonical_code(error), message)
        self._metrics.load_failures.labels(self._config.name).inc()
        self._log(logging.ERROR, "load_failed", version, error=message)

    def _set_status(
        self, version: int, state: str, error_code: str = "OK", error_message: str = ""
    ) -> None:
        with self._lock:
            self._statuses[version] = VersionStatus(version, state, error_code, error_message)

    def _log(self, level: int, event: str, version: int, **fields: object) -> None:
        log(level, event, model=self._config.name, version=version, **fields)


def not_found(model: str, version: int | None) -> str:
    """TensorFlow Serving's words for a model or version that is not served.

    Source: `BasicManager::ServingMap::GetUntypedServableHandle` and `ServableRequest::DebugString`.
    """
    asked = f"Latest({model})" if version is None else f"Specific({model}, {version})"
    return f"Servable not found for request: {asked}"

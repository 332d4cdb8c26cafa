"""Loads the fixtures, and TensorFlow with them, in the processes that run tests."""

import pytest

collect_ignore = ["toys.py"]  # its import registers kinds, which other tests would see


def pytest_configure(config: pytest.Config) -> None:
    """The process that hands tests out to others needs neither, which takes 15 seconds."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("shared_fixtures")

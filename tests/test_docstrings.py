"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import xling_tf

MODULES = [module.name for module in pkgutil.walk_packages(xling_tf.__path__, "xling_tf.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module)
    assert results.failed == 0


def test_examples_are_found():
    module = importlib.import_module("xling_tf.config")
    assert doctest.testmod(module).attempted > 0

"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import xling_tf

MODULES = [module.name for module in pkgutil.walk_packages(xling_tf.__path__, "xling_tf.")]


WRONG = {
    "xling_tf.losses": "np is not imported in the module",
    "xling_tf.schedule": "0.5 comes out as 0.49999999999999994",
    "xling_tf.text.vocabulary": "TextConfig() does not lowercase",
    "xling_tf.text.word_ngram": "TextConfig() does not lowercase",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.xfail(reason=WRONG[name], strict=True) if name in WRONG else ()
        )
        for name in MODULES
    ],
)
def test_examples(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module)
    assert results.failed == 0


def test_examples_are_found():
    module = importlib.import_module("xling_tf.overrides")
    assert doctest.testmod(module).attempted > 0

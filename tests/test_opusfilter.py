"""The filter for OpusFilter: by its interface, and by the package where that is installed."""

import abc
import importlib
import importlib.util
import sys
from types import ModuleType

import numpy as np
import pytest

from xling_tf.errors import UserError


class FilterABC(abc.ABC):
    """What OpusFilter 3.3 documents of its filters."""

    def __init__(self, name=None, workdir="", **kwargs):
        assert not kwargs
        self.name, self.workdir = name, workdir

    @abc.abstractmethod
    def score(self, pairs): ...

    @abc.abstractmethod
    def accept(self, score): ...

    def decisions(self, pairs):
        return (self.accept(score) for score in self.score(pairs))

    @property
    @abc.abstractmethod
    def score_direction(self): ...


class Model:
    """The probability is the share of equal letters."""

    def __init__(self, name):
        assert name == "exported/en-es"

    def probability(self, texts1, texts2):
        return np.array(
            [len({*a} & {*b}) / len({*a} | {*b}) for a, b in zip(texts1, texts2, strict=True)]
        )


@pytest.fixture
def filters(monkeypatch):
    if importlib.util.find_spec("opusfilter") is None:
        package = ModuleType("opusfilter")
        package.FilterABC, package.CLEAN_HIGH = FilterABC, "clean_high"
        monkeypatch.setitem(sys.modules, "opusfilter", package)
    monkeypatch.delitem(sys.modules, "xling_tf.integrations.opusfilter", raising=False)
    module = importlib.import_module("xling_tf.integrations.opusfilter")
    monkeypatch.setattr(module, "SentenceEncoder", Model)
    yield module
    sys.modules.pop("xling_tf.integrations.opusfilter", None)


def test_pairs_are_scored_in_order_and_filtered(filters, monkeypatch):
    monkeypatch.setattr(filters, "_PAIRS", 2)
    # Of the letters a, b, c and d, "ab" and "abcd" share two of four.
    pairs = [("ab", "ba"), ("ab", "cd"), ("ab", "abcd")]
    filter_ = filters.SameMeaning("exported/en-es", min_probability=0.5, workdir="work")
    assert filter_.workdir == "work"
    assert filter_.score_direction == "clean_high"
    assert [*filter_.score(iter(pairs))] == [1.0, 0.0, 0.5]
    assert [*filter_.decisions(pairs)] == [True, False, True]
    assert [*filter_.score([])] == []
    with pytest.raises(UserError, match="min_probability"):
        filters.SameMeaning("exported/en-es", min_probability=2)

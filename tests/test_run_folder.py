import dataclasses
import re

import pytest

from xling_tf.config import ExperimentConfig, apply_overrides
from xling_tf.errors import UserError
from xling_tf.trainer.run_folder import RunFolder

REQUEST = apply_overrides(ExperimentConfig(), ["training.steps=5", "training.seed=3"])
RESOLVED = apply_overrides(REQUEST, ["training.precision=mixed_bfloat16", "text.num_ngram_buckets=77"])
DATA = {"parallel/tatoeba.en-es": 100, "nli/snli.en.train": 7}
WORDS = ["hola", "“", "日", "naïve"]


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path)
    folder.start(REQUEST, RESOLVED, WORDS, DATA)
    return folder


def changed(*overrides):
    return apply_overrides(REQUEST, overrides)


def test_a_start_that_was_killed_before_the_request_does_not_count(tmp_path):
    run = RunFolder(tmp_path)
    run.write("config.json", "{")
    run.write("vocabulary.txt", "half a vocab")
    assert run.resolved(REQUEST) is None
    run.require_same(changed("training.seed=4"), DATA)


def test_the_same_request_continues_with_what_was_decided(run):
    run.require_same(REQUEST, DATA)
    assert run.resolved(REQUEST) == (RESOLVED, WORDS)
    # Budget and housekeeping may change.
    request = changed("training.steps=9", "training.minutes=9", "training.dev_batches=9", "description=other")
    run.require_same(request, DATA)
    resolved, _ = run.resolved(request)
    assert resolved.training == dataclasses.replace(request.training, precision="mixed_bfloat16")
    assert resolved.text == RESOLVED.text


@pytest.mark.parametrize(
    ("override", "data", "message"),
    [
        ("training.seed=4", {}, "training.seed=3, not 4"),
        ("text.ngram_sizes=3", {}, "text.ngram_sizes=[3, 4], not (3,)"),
        ("data.corpus_weights.x=2", {}, "data.corpus_weights.x=None, not 2.0"),
        ("training.steps=9", {"nli/snli.en.train": 8}, "data.nli/snli.en.train=7, not 8"),
        ("training.steps=9", {"parallel/new.en-es": 1}, "data.parallel/new.en-es=None, not 1"),
    ],
)
def test_anything_else_may_not_and_both_values_are_named(run, override, data, message):
    with pytest.raises(UserError, match=re.escape(message)):
        run.require_same(changed(override), {**DATA, **data})

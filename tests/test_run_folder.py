"""A restart reads its files, makes them anew or fails with one error; another run is refused."""

import json
import logging as std_logging
import re

import pytest
from raw_files import flipped
from testing import accept, corpus

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import open_store
from xling_tf.errors import UserError
from xling_tf.settings import apply_overrides
from xling_tf.trainer.resolution import Resolved
from xling_tf.trainer.run_folder import RunFolder

GARBAGE = [b"", b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 100_000]
PAIRS = [TranslationPair(f"sentence {n}", f"frase {n}") for n in range(100)]
CORPUS = corpus("parallel", PAIRS)

DAMAGES = {"cut": lambda content: content[: len(content) // 2], "one byte": flipped}


@pytest.mark.parametrize("how", [*DAMAGES, "gone"])
def test_a_damaged_store_is_told_and_written_anew(how, tmp_path, caplog):
    folder = tmp_path / "store"
    whole = open_store(folder, [CORPUS], accept).contents()
    for name in ("texts", "text_starts", "first_text", "num_tokens", "part"):
        caplog.clear()
        path = folder / name
        path.unlink() if how == "gone" else path.write_bytes(DAMAGES[how](path.read_bytes()))
        with caplog.at_level(std_logging.WARNING, logger="absl"):
            store = open_store(folder, [CORPUS], accept)
        assert store.contents() == whole
        assert {*store.corpora[0].train, *store.corpora[0].held_out} <= {*PAIRS}
        assert f"the store {folder} is damaged" in caplog.text


def test_a_store_whose_content_is_garbage_is_written_anew(tmp_path):
    folder = tmp_path / "store"
    whole = open_store(folder, [CORPUS], accept).contents()
    for content in GARBAGE:
        (folder / "content.json").write_bytes(content)
        assert open_store(folder, [CORPUS], accept).contents() == whole
        assert json.loads((folder / "content.json").read_bytes())["files"]


REQUEST = apply_overrides(ExperimentConfig(), ["training.steps=5", "training.seed=3"])
RESOLVED = Resolved(
    precision="mixed_bfloat16",
    model={"encoder": {"kind": "transformer", "num_layers": 1}},
    files={"vocabulary.txt": "hola\n“\n日\nnaïve\n".encode()},
)
DATA = {"parallel/tatoeba.en-es": 100, "nli/snli.en.train": 7}


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path)
    folder.begin(REQUEST, DATA, RESOLVED)
    return folder


def changed(*overrides):
    return apply_overrides(REQUEST, overrides)


def test_a_start_that_was_killed_before_the_request_does_not_count(tmp_path):
    run = RunFolder(tmp_path)
    run.write("config.json", "{")
    run.write("vocabulary.txt", "half a vocab")
    assert run.resolved() is None
    run.require_same(changed("training.seed=4"), DATA)


def test_the_same_request_continues_with_what_was_decided(run):
    run.require_same(REQUEST, DATA)
    assert run.resolved() == RESOLVED
    # Budget and housekeeping may change.
    budget = [f"training.{name}=9" for name in ("steps", "minutes", "checkpoint_minutes")]
    run.require_same(changed(*budget, "description=other"), DATA)


@pytest.mark.parametrize(
    ("override", "data", "message"),
    [
        ("training.seed=4", {}, "training.seed=3, not 4"),
        ("encoder.kind=static", {}, "encoder.kind=transformer, not static"),
        ("tokenizer.ngram_sizes=3", {}, "tokenizer.ngram_sizes=[3, 4], not (3,)"),
        ("data.corpus_weights.x=2", {}, "data.corpus_weights.x=None, not 2.0"),
        ("training.steps=9", {"nli/snli.en.train": 8}, "data.nli/snli.en.train=7, not 8"),
    ],
)
def test_anything_else_may_not_and_both_values_are_named(run, override, data, message):
    with pytest.raises(UserError, match=re.escape(message)):
        run.require_same(changed(override), {**DATA, **data})


def test_a_run_of_another_version_is_refused(run):
    request = json.loads((run.path / "request.json").read_text())
    del request["format"]
    request["config"]["training"]["bow_share"] = 0.4
    (run.path / "request.json").write_text(json.dumps(request))
    for call in (run.resolved, lambda: run.require_same(REQUEST, DATA)):
        with pytest.raises(UserError, match=r"another version of xling_tf.* another `run_dir`"):
            call()


@pytest.mark.parametrize(
    ("name", "content"),
    [("vocabulary.txt", b"hola\n"), *(("request.json", garbage) for garbage in GARBAGE)],
)
def test_a_damaged_file_stops_the_restart(run, name, content):
    # With fewer words no checkpoint would fit, and the training would begin anew.
    (run.path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"{name} must be as the run wrote it, but is damaged"):
        run.resolved()
    if name == "request.json":
        with pytest.raises(UserError, match="must be as the run wrote it"):
            run.require_same(REQUEST, DATA)

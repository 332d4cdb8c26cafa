"""Every evaluator's properties: a perfect and a random encoder, other orders, invalid vectors."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from shutil import copy, copytree
from subprocess import run
from typing import Any

import evaluator_template
import numpy as np
import pytest
from encode_functions import by_meaning, random_vectors
from evaluation_data import LANGUAGES, meaning, write_evaluation_data, write_table
from programs import ROOT, run_python

from xling_tf.baselines.rueckle2018 import argument
from xling_tf.errors import UserError
from xling_tf.evaluators import transfer
from xling_tf.evaluators.data import Dataset, select
from xling_tf.evaluators.encoding import Embedder, Encode, NotApplicableError
from xling_tf.evaluators.running import SUITES

# The first score of a suite's data sets with a perfect encoder, and its range with a random
# encoder; "nli" needs a head, too.
KNOWN: Mapping[str, tuple[float, tuple[float, float]]] = {
    "sts": (1.0, (-0.5, 0.5)),
    "senteval": (1.0, (-0.2, 0.65)),
    "retrieval": (1.0, (0.0, 0.1)),
    "bitext": (1.0, (0.0, 0.1)),
    "similarity_search": (0.0, (0.9, 1.0)),
    "mixed_pool": (1.0, (0.0, 0.1)),
    "classification": (1.0, (0.1, 0.65)),
    "semantic_retrieval": (1.0, (0.0, 0.2)),
    "reqa": (1.0, (0.0, 0.1)),
    "nothing_to_find": (1.0, (0.0, 0.3)),
    "documents": (1.0, (0.2, 0.8)),
    "argument": (1.0, (0.15, 0.6)),
    "eigen_similarity": (0.0, (0.2, 2.0)),
    "triplets": (1.0, (0.3, 0.7)),
}
# The template of an evaluator is tested like the others.
ALL_SUITES = {**SUITES, evaluator_template.SUITE.name: evaluator_template.SUITE}

PERFECT = by_meaning(meaning, 256)


@pytest.fixture(autouse=True)
def _few_runs(small_classifiers, monkeypatch):
    monkeypatch.setattr(transfer, "_FOLDS", 3)
    monkeypatch.setitem(argument.SubsampleValidation.__init__.__kwdefaults__, "num_runs", 6)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same data sets twice, with their lines in different orders."""
    both = []
    for seed in (0, 1):
        folder = tmp_path_factory.mktemp("data")
        write_evaluation_data(folder, seed=seed)
        both.append(select(ALL_SUITES, folder, [], 0)[0])
    return both


def outcome(item: Dataset, encode: Encode) -> dict[str, Any]:
    """The scores, or none if the evaluator is not applicable."""
    try:
        return dict(item.load()(encode))
    except NotApplicableError:
        return {}


@pytest.mark.parametrize("suite", KNOWN)
def test_perfect_vectors_score_best_and_random_ones_by_chance(suite, both):
    best, (low, high) = KNOWN[suite]
    scored = []
    for name, item in both[0].items():
        if name.startswith(f"{suite}/"):
            perfect, chance = (outcome(item, e) for e in (PERFECT, random_vectors()))
            assert json.dumps([perfect, chance, dict(item.load().protocol)], allow_nan=False)
            if perfect:
                scored.append(name)
                metric = next(iter(perfect))
                assert perfect[metric] == pytest.approx(best, abs=0.005), (name, metric)
                assert low <= chance[metric] <= high, (name, metric)
                with pytest.raises(UserError, match=r"finite vectors, but .* first "):
                    item.load()(lambda texts: np.full((len(texts), 4), np.nan))
    assert scored


@pytest.mark.parametrize("suite", KNOWN)
def test_neither_the_order_of_lines_nor_that_of_encoding_matters(suite, both):
    """Uses an encoder between perfect and random, which hide much."""
    chance = random_vectors(256)

    def encode(texts: list[str]) -> np.ndarray:
        return PERFECT(texts) + 0.8 * chance(texts)

    def backwards(texts: list[str]) -> np.ndarray:
        return encode(texts[::-1])[::-1]

    for name, item in both[0].items():
        if name.startswith(f"{suite}/"):
            assert outcome(both[1][name], backwards) == outcome(item, encode), name


@pytest.mark.parametrize("suite", ALL_SUITES)
def test_zero_vectors_give_finite_scores(suite, both):
    def encode(texts: list[str]) -> np.ndarray:
        is_known = [int(meaning(text)[-1:] in {*"02468dt"}) for text in texts]
        return PERFECT(texts) * np.array(is_known)[:, np.newaxis]

    for name, item in both[0].items():
        if name.startswith(f"{suite}/"):
            for zeros in (encode, lambda texts: np.zeros((len(texts), 4))):
                assert json.dumps(outcome(item, zeros), allow_nan=False), name


# Where a line stands for others by its number, these get a blank line, too.
_TEXTS = {
    "text",
    "sentence",
    "question",
    "question1",
    "question2",
    "sentence1",
    "sentence2",
    "premise",
    "hypothesis",
    "source",
    "target",
    *LANGUAGES,
}


@pytest.mark.parametrize("suite", ALL_SUITES)
def test_rows_with_a_blank_text_change_no_score(suite, both, tmp_path, caplog):
    """They are left out with those of the same number in other languages; a warning counts
    them.
    """
    write_evaluation_data(tmp_path)
    for path in tmp_path.rglob("*.tsv"):
        header, *lines = path.read_text("utf-8").splitlines()
        columns = header.split("\t")
        cells = dict(zip(columns, lines[-1].split("\t"), strict=True))
        blanks = {name: "\u200b" for name in columns if name in _TEXTS}
        if blanks and columns[0] != "pair_id":
            ids = {name: f"new {cells[name]}" for name in columns if name.endswith("_id")}
            row = "\t".join({**cells, **ids, **blanks}.values())
            path.write_text("\n".join([header, *lines[:1], row, *lines[1:]]) + "\n", "utf-8")
    items = select(ALL_SUITES, tmp_path, [suite], 0)[0]
    assert items.keys() == {name for name in both[0] if name.startswith(f"{suite}/")}
    for name, item in items.items():
        assert outcome(item, PERFECT) == outcome(both[0][name], PERFECT), name
    assert any("rows have a blank text" in line for line in caplog.messages)


@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
@pytest.mark.filterwarnings("ignore:The number of unique classes:UserWarning")
@pytest.mark.parametrize("count", [1, 3, 14])
def test_few_rows_are_refused_when_they_are_read_or_give_finite_scores(count, tmp_path):
    write_evaluation_data(tmp_path)
    for path in tmp_path.rglob("*.tsv"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[: 1 + count]), encoding="utf-8")
    write_table(tmp_path / "similarity_search/one.tsv", "de", ("eins",), ("zwei",))
    for name, item in select(ALL_SUITES, tmp_path, [], 0)[0].items():
        try:
            evaluator = item.load()
        except UserError:
            continue
        with suppress(NotApplicableError):
            assert json.dumps(evaluator(random_vectors()), allow_nan=False), name


@pytest.mark.slow
def test_make_evaluator_writes_one_whose_tests_pass(tmp_path):
    for folder in ("xling_tf", "tests"):
        copytree(ROOT / folder, tmp_path / folder)
    for file in ("Makefile", "pyproject.toml"):
        copy(ROOT / file, tmp_path)
    run(["make", "evaluator", "NAME=word_order"], cwd=tmp_path, check=True)
    tests = ["tests/test_evaluator_contracts.py", "xling_tf/evaluators"]
    done = run_python(
        tmp_path,
        *("-m", "pytest", "-k", "word_order", *tests),
        environment=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.status == 0, done.output
    assert done.output.count(".") >= 5  # four properties and the example of the docstring


@pytest.mark.parametrize("name", ["senteval/CR", "documents/toy", "argument/AM"])
def test_vectors_of_the_encoders_own_lengths_are_classified(name, both):
    embedder = Embedder(name="x", sentences=lambda texts: np.ones((len(texts), 2)), raw=PERFECT)
    assert next(iter(both[0][name].load()(embedder).values())) == 1.0

"""Fine-tuning on pairs: the result, also after a stop or a restart, and what is refused."""

import itertools
import json
import logging
import re
import signal
import threading
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy.stats import spearmanr
from testing import TEXTS

from xling_tf.config import WordsConfig
from xling_tf.corpora.split import held_out
from xling_tf.corpora.store import transient_store
from xling_tf.corpora.trained_on import TrainedOn
from xling_tf.errors import UserError
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.model import CONFIG, CONFIG_FORMAT, Model
from xling_tf.tokenizers.treebank import EMPTY_TOKEN
from xling_tf.tokenizers.words import WordTokenizer
from xling_tf.trainer import fine_tuning, loop
from xling_tf.trainer.fine_tuning import PairCorpus, fine_tune
from xling_tf.trainer.validation import check_scores
from xling_tf.weights import arrays

pytestmark = pytest.mark.usefixtures("without_graphs")

TABLE = "encoder/embedding/words/table"
PAIRS = [
    (f"{source} {number}", f"{target} {number}")
    for number in range(4)
    for source, target in zip(TEXTS[::2], TEXTS[1::2], strict=True)
]
# Rates that do not depend on the number of steps, so that it may be changed.
SETTINGS = (
    "optimizer.warmup=0",
    "optimizer.decay=constant",
    "optimizer.learning_rate=0.01",
    "training.precision=float32",
)


def tune(model, folder, **changes):
    arguments = {"pairs": PAIRS, "output": folder / "mine", "run_dir": folder / "run"}
    return fine_tune(model, **{**arguments, "settings": SETTINGS, **changes})


def weights(folder):
    return arrays(Model.from_pretrained(folder).weights)


@pytest.mark.slow
def test_a_model_is_tuned_and_tuned_again_in_its_place(exports, tmp_path, monkeypatch):
    """It keeps its signatures; what it was trained on is known, and so is what its start was."""
    others = [(f"other {number}", f"otro {number}") for number in range(40)]
    trained, more = (
        np.mean([not held_out(source) for source, _ in pairs]) for pairs in (PAIRS, others)
    )
    start, mine = exports("cnn")[1], tmp_path / "mine"
    tune(start, tmp_path, steps=4)
    loaded, before = tf.saved_model.load(str(mine)), tf.saved_model.load(str(start))
    assert set(loaded.signatures) == set(before.signatures)
    assert np.abs(loaded(TEXTS) - before(TEXTS)).max() > 1e-3
    first, second, known = weights(start), weights(mine), TrainedOn.read(mine)
    assert (known.share_of_pairs(PAIRS), known.share_of_pairs(others)) == (trained, 0)

    # On a GPU, for which an exported model cannot be loaded in bfloat16.
    monkeypatch.setattr(
        tf.config, "get_visible_devices", lambda kind: ["GPU:0"] if kind == "GPU" else []
    )
    # Without a rate, the table stays, as do heads that nothing trains.
    kept = "optimizer.embedding_learning_rate=0"
    settings = (*SETTINGS, kept, "training.precision=mixed_bfloat16")
    # A call leaves signal handlers as they were; test_processes.py has more of this kind.
    handler = signal.getsignal(signal.SIGINT)
    changes = {"run_dir": tmp_path / "again", "steps": 4, "settings": settings}
    assert tune(mine, tmp_path, pairs=others, **changes).encode(TEXTS).shape == (len(TEXTS), 8)
    assert signal.getsignal(signal.SIGINT) == handler
    third, known = weights(mine), open_embedder(str(mine)).trained_on
    assert first.keys() == second.keys() == third.keys()
    for name, value in third.items():
        assert np.array_equal(value, second[name]) == (
            name == TABLE or name.startswith("heads/")
        ), name
        assert np.array_equal(second[name], first[name]) == name.startswith("heads/"), name
    assert (known.share_of_pairs(PAIRS), known.share_of_pairs(others)) == (trained, more)
    assert 0 < more < 1


def describe(folder, description=None):
    """Writes the description of a model, by default of averages of words."""
    ours = {"format": CONFIG_FORMAT, "xling_tf": "1", "encoder": {"kind": "static"}}
    (folder / CONFIG).write_text(json.dumps(description or ours))


@pytest.fixture
def runs(monkeypatch):
    """The trainings that `fine_tune` starts, none of which runs."""
    runs = []
    monkeypatch.setattr(fine_tuning, "run_and_draw", runs.append)
    return runs


@pytest.mark.parametrize(
    ("description", "rate"),
    [(None, 2e-4), ({"model_type": "bert"}, 4e-5), ({"model_type": "model2vec"}, 2e-4)],
)
def test_the_learning_rate_is_that_of_the_kind_of_encoder(description, rate, tmp_path, runs):
    describe(tmp_path, description)
    assert fine_tune(tmp_path, PAIRS, output=tmp_path / "mine") is None
    optimizer = runs[0].config.optimizer
    assert optimizer.learning_rate == optimizer.embedding_learning_rate == rate


def test_of_many_wrong_texts_five_are_drawn_and_other_rows_stay_narrow(tmp_path, runs):
    wrong = [f"wrong {number}" for number in range(100)]
    describe(tmp_path)
    for first in (wrong, wrong, wrong[:3] * 9):
        rows = [{"anchor": source, "positive": target, "negative": []} for source, target in PAIRS]
        rows[0]["negative"] = first
        fine_tune(tmp_path, rows, output=tmp_path / "mine")
    columns = [run.config.tasks["translation_ranking"].hard_negatives for run in runs]
    (many, *others), again, (few, *_) = (run.corpora[0].pairs for run in runs)
    assert columns == [5, 5, 3]
    assert many == again[0]
    assert len(set(many.negatives) & set(wrong)) == 5
    assert set(many.negatives) != set(wrong[:5])
    assert sorted(few.negatives) == wrong[:3]
    assert not any(pair.negatives for pair in others)


@pytest.mark.slow
def test_more_steps_go_on_and_no_other_call_deletes_what_was_stopped(
    headless, tmp_path, monkeypatch, caplog
):
    """Another one trains anew: with more pairs, or into a folder of the same name elsewhere."""
    monkeypatch.chdir(tmp_path)
    few = PAIRS[:9]
    tune(headless, Path("a"), pairs=few, run_dir=None, steps=1)
    (stop := threading.Event()).set()
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_stop_requests", lambda: nullcontext(stop))
        for folder, pairs in [("a", few), ("a", PAIRS), ("b", PAIRS)]:
            assert tune(headless, Path(folder), pairs=pairs, run_dir=None, steps=3) is None
    # The first one has gone on for a step.
    assert len(list(tmp_path.glob("a/.mine.*.run/checkpoints/step-000000001"))) == 2
    assert len(list(tmp_path.glob("a/.mine.*.run/checkpoints/step-000000002"))) == 1
    with caplog.at_level(logging.INFO, logger="absl"):
        tune(headless, Path("a"), run_dir=None, steps=3)
    assert "continuing at step 1" in caplog.text
    # Its own state stays for more steps, and the other one because it was stopped.
    assert len(list(tmp_path.glob("a/.mine.*.run"))) == 2
    with caplog.at_level(logging.INFO, logger="absl"):
        tune(headless, Path("a"), pairs=few, run_dir=None, steps=3)
    assert "continuing at step 2" in caplog.text
    assert len(list(tmp_path.glob("a/.mine.*.run"))) == 1


@pytest.mark.slow
def test_scores_are_learnt_from_a_table(headless, tmp_path):
    texts = TEXTS[:6]
    first, second = zip(*itertools.combinations(texts, 2), strict=True)
    table = pd.DataFrame({"first": first, "second": second})
    grades = np.random.default_rng(1).permutation(len(table))
    encoder = tune(
        headless, tmp_path, pairs=table.assign(score=grades / 4), steps=30, anchor_weight=0.0
    )
    (name,) = [name for name in encoder.scores if name.startswith("task/")]
    assert name == "task/graded_similarity_source"
    trained = [place for place, text in enumerate(first) if not held_out(text)]
    cosines = np.sum(encoder.encode(list(first)) * encoder.encode(list(second)), axis=1)
    assert 0 < len(trained) < len(first)
    assert spearmanr(grades[trained], cosines[trained]).statistic > 0.9


def test_pairs_that_cannot_be_learnt_from_are_refused(tmp_path):
    with pytest.raises(UserError, match="expected at least 8 different pairs, got 5"):
        fine_tune(tmp_path, PAIRS[:5] * 3, output=tmp_path / "mine")
    first, second = zip(*PAIRS, strict=True)
    alike = {"sentence1": first, "sentence2": second, "score": [1] * len(PAIRS)}
    with pytest.raises(UserError, match="expected different scores, but all are 1"):
        fine_tune(tmp_path, alike, output=tmp_path / "mine")


@pytest.mark.parametrize(("num_questions", "num_answers"), [(200, 5), (200, 20), (2000, 700)])
def test_questions_that_share_answers_are_trained_on(num_questions, num_answers):
    pairs = [
        (f"How do I do {n}?", f"This is answer {n % num_answers}.") for n in range(num_questions)
    ]
    (stored,) = transient_store([PairCorpus.from_pairs(pairs, ("source", "target"))]).corpora
    assert [pair[:2] for pair in stored.train] == [pair for pair in pairs if not held_out(pair[0])]
    assert [pair[:2] for pair in stored.held_out] == [pair for pair in pairs if held_out(pair[0])]


def test_wrong_texts_that_are_answers_of_others_stay():
    rows = [(f"Question {n}?", f"Answer {n % 5}.", f"Answer {(n + 1) % 5}.") for n in range(200)]
    (stored,) = transient_store([PairCorpus.from_pairs(rows, ("source", "target"))]).corpora
    assert [(*pair[:2], *pair.negatives) for pair in stored.train] == [
        r for r in rows if not held_out(r[0])
    ]


def test_scored_pairs_in_both_orders_are_held_out_together():
    base = [(f"sentence a {n}", f"sentence b {n}", float(n % 6)) for n in range(300)]
    rows = [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in base]
    rows += [{"sentence1": b, "sentence2": a, "score": s} for a, b, s in base]
    (stored,) = transient_store([PairCorpus.from_pairs(rows, ("source", "target"))]).corpora
    trained, held = (
        {t for pair in part for t in pair[:2]} for part in (stored.train, stored.held_out)
    )
    assert trained.isdisjoint(held)
    assert len(stored.train) + len(stored.held_out) == 600
    # 300 draws at 0.1: mean 30, standard deviation 5.2; five of them.
    assert 2 * 4 < len(stored.held_out) < 2 * 56


@pytest.mark.slow
@pytest.mark.parametrize("num_answers", [1, 2, 5])
def test_a_model_is_tuned_on_questions_that_share_answers(num_answers, exports, tmp_path):
    pairs = [(f"{TEXTS[0]} {n}", f"{TEXTS[n % num_answers]}") for n in range(60)]
    encoder = tune(exports("cnn")[1], tmp_path, pairs=pairs, steps=2)
    assert len(encoder.encode(pairs[0][0]))


def test_the_model_in_the_box_is_refused_before_the_training(tmp_path):
    with pytest.raises(UserError, match=r"model for NumPy, .* which cannot be trained"):
        fine_tune("multilingual-mini", PAIRS, output=tmp_path / "mine")


@pytest.mark.parametrize("languages", [("en", "en"), ("pt-BR", "en")])
def test_languages_that_are_no_pair_are_refused_before_the_training(languages, tmp_path):
    describe(tmp_path)
    with pytest.raises(UserError, match=r"must be (two different )?codes"):
        fine_tune(tmp_path, PAIRS, output=tmp_path / "mine", languages=languages)
    with pytest.raises(UserError, match="expected the folder of a model as the first argument"):
        fine_tune(PAIRS, tmp_path, output=tmp_path / "mine")


def test_the_log_says_which_label_means_alike(caplog):
    caplog.set_level("INFO", logger="absl")
    texts = [f"{number}" for number in range(100)]
    labels = [1, 0] * 50
    PairCorpus.from_pairs(
        {"sentence1": texts, "sentence2": texts[::-1], "label": labels}, ("en", "es")
    )
    assert "1 = alike, as '0' and '99'; 0 = different, as '1' and '98'" in caplog.text
    # Equal texts have the label 0: the model's cosines are 1 for them, and 0 for the others.
    for scores, word in ((labels, "reverse the scores"), ([0, 1] * 50, "others 0.00")):
        second = [str(int(text) + 100 * (int(text) % 2 == 0)) for text in texts]
        pairs = {"sentence1": texts, "sentence2": second, "score": scores}
        store = transient_store([PairCorpus.from_pairs(pairs, ("en", "es"))])
        caplog.clear()
        check_scores(lambda texts: np.eye(200, dtype=np.float32)[[*map(int, texts)]], store.corpora)
        assert word in caplog.text
        assert [record.levelname for record in caplog.records].count("WARNING") == (
            scores is labels
        )


SHEET = [
    (
        f"Perdone, ¿dónde está la habitación número {n}?",
        f"It is in room {n}; go upstairs, then left.",
    )
    for n in range(40)
]


def sheets(folder):
    """The same pairs as users save and load them."""
    frame = pd.DataFrame(SHEET, columns=["Pregunta", "Respuesta"])
    for number, mark in enumerate(",;\t|"):
        frame.to_csv(folder / f"{number}.csv", sep=mark, index=False)
    frame.to_csv(folder / "excel.csv", sep=";", index=False, encoding="cp1252")
    frame.to_csv(folder / "unicode.txt", sep="\t", index=False, encoding="utf-16")
    frame.to_parquet(folder / "x.parquet")
    frame.to_json(folder / "x.jsonl", orient="records", lines=True)
    if find_spec("openpyxl"):
        frame.to_excel(folder / "x.xlsx", index=False)
    rows = [{"translation": {"es": one, "en": other}} for one, other in SHEET]
    tables = [frame, datasets.Dataset.from_list(rows), SHEET]
    return [*sorted(folder.iterdir()), *tables]


def test_all_forms_of_a_table_are_trained_alike(tmp_path, runs):
    describe(tmp_path)
    (tmp_path / "sheets").mkdir()
    for pairs in sheets(tmp_path / "sheets"):
        assert fine_tune(tmp_path, pairs, output=tmp_path / "mine") is None
    # A model depends on nothing else than these.
    first, *others = [(run.config, run.corpora[0].version(), run.run_dir) for run in runs]
    assert len(others) >= 10
    assert others == [first] * len(others)


@pytest.mark.slow
def test_a_spreadsheet_and_a_data_set_end_in_the_same_model(headless, tmp_path):
    folder = tmp_path / "sheets"
    folder.mkdir()
    *_, rows, _ = sheets(folder)
    vectors = [
        tune(headless, tmp_path / form, pairs=pairs, steps=2).encode([*sum(SHEET, ())])
        for form, pairs in (("sheet", folder / "unicode.txt"), ("datasets", rows))
    ]
    np.testing.assert_array_equal(*vectors)


def looks_at(pairs, caplog, languages=("source", "target"), listed=("en", "es")):
    """The log of what is seen before a training, for a model that knows the words of `SHEET`."""
    caplog.clear()
    store = transient_store([PairCorpus.from_pairs(pairs, languages)])
    config = WordsConfig(ngram_sizes=(), num_oov_buckets=1)
    words = WordTokenizer([EMPTY_TOKEN], config).tokenize(tf.constant([*sum(SHEET, ())]))
    vocabulary = [EMPTY_TOKEN, *{word.decode() for word in words.values.numpy()}]

    def encode(texts):  # numbers tell the meanings
        found = [re.findall(r"\d+", text) for text in texts]
        vectors = np.zeros((len(texts), 100))
        vectors[range(len(texts)), [int(numbers[0]) if numbers else 99 for numbers in found]] = 1
        return tf.constant(vectors)

    class Fake:
        tokenizer = WordTokenizer(vocabulary, config)
        __call__ = staticmethod(encode)

    assert fine_tuning._inspect(listed, Fake(), store)
    return caplog.text


def test_what_was_understood_is_shown_and_what_seems_wrong_is_a_warning(caplog):
    caplog.set_level("INFO", logger="absl")
    log = looks_at(SHEET, caplog)
    assert re.search(
        "text:  Perdone, ¿dónde está la habitación número (\\d+)\\?.*right: It is in room \\1;",
        log,
        re.S,
    )
    assert "text: es, " in log
    assert "right: en, " in log
    assert "100 (" in log
    assert "little to learn" in log
    assert "look" not in log.replace("little to learn", "")
    assert "which is not among" not in log
    # Of a model that lists another language than one side's, and of one that lists none.
    log = looks_at(SHEET, caplog, listed=("en", "de"))
    assert "text: the texts seem to be in es, which is not among the 2 languages" in log
    assert log.count("which is not among") == 1
    assert "which is not among" not in looks_at(SHEET, caplog, listed=())
    # Answers of other questions.
    shuffled = [(one, SHEET[n - 7][1]) for n, (one, _) in enumerate(SHEET)]
    assert "rows are aligned" in looks_at(shuffled, caplog)
    # Questions on the right, and languages in the other order.
    back = [row[::-1] for row in SHEET]
    assert "the right texts are questions" in looks_at(back, caplog)
    log = looks_at(back, caplog, ("es", "en"))
    assert "the first is in en, the second in es" in log
    assert log.count("in es") == 1  # not said twice
    mixed = [row[:: 1 if n % 4 else -1] for n, row in enumerate(SHEET)]
    assert "rows have their sides swapped" in looks_at(mixed, caplog)
    # A script that the tokenizer does not know: three words of four, besides the numbers.
    unknown = [(one, f"ოთახი {n} ზემოთ მარცხნივ") for n, (one, _) in enumerate(SHEET)]
    assert "right: the model does not know 75% of the tokens" in looks_at(unknown, caplog)

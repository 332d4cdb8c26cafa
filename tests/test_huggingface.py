"""Data sets of Hugging Face's hub as corpora, from local folders that stand in for the hub."""

import json
import math
from pathlib import Path

import datasets
import pytest

from xling_tf.corpora.huggingface import HubCorpus, read_source
from xling_tf.corpora.records import (
    InferencePair,
    QuestionAnswer,
    SimilarityPair,
    TranslationPair,
)
from xling_tf.errors import UserError


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def publish(name: str, config: str, **splits: list[dict]) -> None:
    """Writes a data set where `load_dataset` finds it: below the working folder."""
    files = []
    for split, rows in splits.items():
        path = Path(name) / config / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        files.append({"split": split, "path": f"{config}/{split}.jsonl"})
    configs = json.dumps([{"config_name": config, "data_files": files}])
    (Path(name) / "README.md").write_text(f"---\nconfigs: {configs}\n---\n")


def read(spec: str, *languages: str) -> dict[str, list]:
    return {corpus.title: list(corpus) for corpus in read_source(spec, languages)}


PAIR = TranslationPair("good morning", "buenos días")


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (
            "sentence-transformers/parallel-sentences-talks",
            [
                {"english": "good\nmorning", "non_english": "buenos días"},
                {"english": "x", "non_english": None},
            ],
        ),
        ("Helsinki-NLP/opus-100", [{"translation": {"en": "good morning", "es": "buenos días"}}]),
    ],
)
def test_translations_in_either_direction(name, rows):
    publish(name, "en-es", train=rows, dev=rows)
    prefix = f"parallel/{name.replace('/', '_')}"
    assert read(f"hf:{name}:en-es", "en", "fr", "es") == {f"{prefix}.en-es": [(PAIR, None)]}
    turned = TranslationPair(PAIR.target, PAIR.source)
    assert read(f"hf:{name}:en-es", "es", "en") == {f"{prefix}.es-en": [(turned, None)]}
    with pytest.raises(UserError, match=r"en, fr.* but is in en, es; choose a config"):
        read(f"hf:{name}:en-es", "en", "fr")


def test_inference_without_the_pairs_that_have_no_label():
    rows = [{"premise": p, "hypothesis": "h", "label": n} for p, n in (("p", 2), ("q", -1), ("r", 0))]
    publish("stanfordnlp/snli", "plain_text", train=rows, validation=rows[:1], test=rows)
    first, second = ((InferencePair(*fields), None) for fields in (("p", "h", 2), ("r", "h", 0)))
    assert read("hf:stanfordnlp/snli:plain_text", "en", "es") == {
        "nli/stanfordnlp_snli.en.train": [first, second],
        "nli/stanfordnlp_snli.en.dev": [first],
    }
    versions = [read_source("hf:stanfordnlp/snli:plain_text", ["en", "es"])[0].version() for _ in range(2)]
    publish("facebook/xnli", "es", train=rows)
    assert versions[0] == versions[1] != read_source("hf:facebook/xnli:es", ["es", "en"])[0].version()
    with pytest.raises(UserError, match="is in es"):  # most tasks learn inference in the source language
        read("hf:facebook/xnli:es", "en", "es")
    (spanish,) = read_source("hf:facebook/xnli:es", ["en", "es"], target_inference=True)
    assert (spanish.title, list(spanish)) == ("nli/facebook_xnli.es.train", [first, second])


def test_scored_pairs_and_answers():
    # Scores are percents of their range.
    rows = [{"sentence1": "a", "sentence2": "b", "score": score} for score in (0.2, 1.0, None, math.nan, 0.4)]
    publish("sentence-transformers/stsb", "default", train=rows, test=rows)
    (found,) = read("hf:sentence-transformers/stsb", "en", "es").values()
    assert [record for record, _ in found] == [SimilarityPair("a", "b", n) for n in (0, 100, 25)]
    publish("sentence-transformers/gooaq", "default", train=[{"question": "Who?", "answer": "Ada."}])
    found = read("hf:sentence-transformers/gooaq", "en", "es")
    answer = (QuestionAnswer("Who?", "Ada.", "Ada."), None)
    assert found == {"questions/sentence-transformers_gooaq.en": [answer]}


def test_other_columns_are_named_by_the_source():
    rows = [{"pre": "p", "hypothesis": "h", "gold": "neutral", "mt": "x"}, {"pre": "q", "hypothesis": "h"}]
    publish("mine/nli", "de", train=rows)
    source = "hf:mine/nli:de premise=pre label=gold"
    assert read(source, "de", "en") == {"nli/mine_nli.de.train": [(InferencePair("p", "h", 1), None)]}
    # The config names no languages: they are those of the model.
    pairs = [(TranslationPair("p", "x"), None)]
    publish("mine/pairs", "default", train=rows)
    source = "hf:mine/pairs source=pre target=mt"
    assert read(source, "de", "en") == {"parallel/mine_pairs.de-en": pairs}
    with pytest.raises(UserError, match="must be in languages of the model"):
        read(source, "de", "en", "fr")
    # Names of classes decide, whatever their numbers.
    features = datasets.Features({name: datasets.Value("string") for name in ("premise", "hypothesis")})
    features["label"] = datasets.ClassLabel(names=["contradiction", "neutral", "entailment", "other"])
    table = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [0, 3, 2]}
    dataset = datasets.Dataset.from_dict(table, features)
    corpus = HubCorpus(name="x", kind="nli", languages="en", dataset=dataset, columns=(*table,))
    assert [record.label for record, _ in corpus] == [2, 0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("hf:snli", "got 'hf:snli'"),
        ("hf:mine/reviews", r"but has stars, text; .* name its columns"),
        ("hf:mine/reviews title", r"got 'hf:mine/reviews title'"),
        ("hf:mine/reviews title=stars source=text", r"but has stars, text; .* name its columns"),
        ("hf:mine/reviews:other", "with a config that it has.*'other'"),
        ("hf:sentence-transformers/gooaq", "uses 0 of 1 rows, but must have usable"),
    ],
)
def test_what_is_no_known_collection_says_what_it_has(spec, message):
    for name in ("mine/reviews", "sentence-transformers/stsb"):
        publish(name, "default", train=[{"stars": 5, "text": "good"}])
    publish("sentence-transformers/gooaq", "default", train=[{"question": "", "answer": "x"}])
    with pytest.raises(UserError, match=message):
        read(spec, "en", "es")

import sys
from unittest.mock import Mock

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from xling_tf.config import DataConfig
from xling_tf.corpora.records import NLI_LABELS, InferencePair, SentenceTriplet, TranslationPair
from xling_tf.corpora.tfds import BUILDERS, read_sources, read_tfds
from xling_tf.errors import UserError

NLI = {
    "premise": ["p", "q", " r\n", ""],
    "hypothesis": ["h", "i", "j", "k"],
    "label": [2, -1, 0, 1],
}


def read(columns, spec, source="en", targets=("es",)):
    """The corpora of a dataset whose every split has these rows."""

    def as_dataset(self, split, **kwargs):
        # What the builder says of its features must hold for the rows.
        assert set(columns) <= set(self.info.features)
        assert split == "train" or split.startswith("validation")
        return tf.data.Dataset.from_tensor_slices(columns)

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        corpora = read_sources(DataConfig(source=source, targets=targets, sources=(spec,)))
        return [(corpus, list(corpus)) for corpus in corpora]


def test_inference_without_the_pairs_that_have_no_label():
    expected = [(InferencePair("p", "h", 2), None), (InferencePair("r", "j", 0), None)]
    for name, splits in (
        ("snli", ["train", "dev"]),
        ("multi_nli", ["train", "dev_matched", "dev_mismatched"]),
    ):
        corpora = read(NLI, f"tfds:{name}")
        assert [corpus.title for corpus, _ in corpora] == [f"nli/{name}.en.{split}" for split in splits]
        assert [records for _, records in corpora] == [expected] * len(splits)


def test_translations_in_either_direction():
    columns = {"en": ["good\nmorning", " "], "es": ["buenos días", "nada"]}
    pair = TranslationPair("good morning", "buenos días")
    for source, targets, languages, record in (
        ("en", ("fr", "es"), "en-es", pair),
        ("es", ("en",), "es-en", TranslationPair(pair.target, pair.source)),
    ):
        ((corpus, records),) = read(columns, "tfds:para_crawl/enes", source, targets)
        assert (corpus.title, corpus.split) == (f"parallel/para_crawl_enes.{languages}", "")
        assert corpus.version() == "para_crawl/enes/1.2.0"
        assert records == [(record, None)]


def test_the_articles_of_a_wikipedia():
    text = "\n_START_ARTICLE_\nAda\n_START_PARAGRAPH_\nEscribió. Murió."
    columns = {"wikidata_id": ["Q1", "Q2"], "text": [text, text + " Fin."], "version_id": ["1", "2"]}
    ((corpus, records),) = read(columns, "tfds:wiki40b/es")
    assert (corpus.name, corpus.kind, corpus.languages) == ("wiki40b_es", "documents", "es")
    triplets = [triplet for triplet, _ in records]
    first = SentenceTriplet("Ada", "Escribió.", "Murió.")
    assert triplets == [first, first, SentenceTriplet("Escribió.", "Murió.", "Fin.")]
    # Each article is a document of its own.
    groups = [group for _, group in records]
    assert groups[0] != groups[1] == groups[2]


def test_a_damaged_dataset_is_told_where_it_lies():
    def rows():
        yield {"en": "word", "es": "palabra"}
        raise OSError("a shard ends too early")

    signature = {"en": tf.TensorSpec([], tf.string), "es": tf.TensorSpec([], tf.string)}

    def as_dataset(self, **kwargs):
        return tf.data.Dataset.from_generator(rows, output_signature=signature)

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        (corpus,) = read_tfds("tfds:para_crawl/enes", source="en", targets=["es"])
        message = r"(?s)para_crawl/enes/.* cannot be read to its end .*ends too early.*; delete that folder"
        with pytest.raises(UserError, match=message):
            list(corpus)


def test_datasets_and_labels_are_those_of_tfds():
    assert set(BUILDERS) <= set(tfds.list_builders(with_community_datasets=False))
    for name in ("snli", "multi_nli"):
        assert tuple(tfds.builder(name).info.features["label"].names) == NLI_LABELS


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tfds:mnist", "multi_nli, opus, para_crawl, snli, .*got 'tfds:mnist'"),
        ("snli", "got 'snli'"),
        ("tfds:para_crawl/enxx", "^tfds:para_crawl/enxx must name .*enxx not found"),
        ("tfds:para_crawl/enfr", "en, es.* is in en, fr; take it out"),
        ("tfds:snli", r"^snli/1\.1\.0 .* records for nli/snli\.en\.train"),
    ],
)
def test_a_dataset_that_is_unknown_in_other_languages_or_empty(spec, message):
    with pytest.raises(UserError, match=message):
        read({"premise": ["p"], "hypothesis": ["h"], "label": [-1]}, spec)


def test_a_dataset_that_cannot_be_had(monkeypatch):
    for error in (OSError("no route to host"), AssertionError("by hand\nto /a")):
        download = Mock(side_effect=error)
        monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", download)
        message = r"^tfds:snli must be prepared in .*snli.*(host|hand); .* TFDS_DATA_DIR$"
        with pytest.raises(UserError, match=message):
            read_tfds("tfds:snli", source="en", targets=["es"])
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(UserError, match=r"pip install 'xling_tf\[tfds\]'"):
        read_tfds("tfds:snli", source="en", targets=["es"])

"""Each runtime of docs/runtimes.md gives the SavedModel's vectors, or says why it cannot."""

import re

import pytest
from programs import ROOT
from testing import KINDS, SENTENCES, add_noise, tiny_config, tiny_model
from tricky_texts import sample_sentences

from evaluation.benchmarks.every_runtime import RUNTIMES, AbsentError, Trial, largest
from xling_tf.client.texts import is_blank
from xling_tf.config import BertConfig, ModelInfo, WordPieceConfig
from xling_tf.encoders.base import encoder_settings
from xling_tf.errors import UserError
from xling_tf.model import Model
from xling_tf.tokenizers.wordpiece import WordPieceTokenizer

NOT_RUN = ["MediaPipe"]
# The average of words knows all words of these: exports ignore those that it does not know.
# Blank texts are zeros in clients.
TEXTS = [text for text in (*SENTENCES, *sample_sentences()[:40]) if not is_blank(text)]
STATIC = (
    "encoder.kind=static",
    "encoder.embedding_dim=12",
    "encoder.hidden_dim=16",
    "tokenizer.num_oov_buckets=1",
    "tokenizer.ngram_sizes=",
    "tokenizer.max_tokens=256",
)
# What runs averages of words alone, and what runs BERTs alone.
AVERAGES = {"JavaScript: Node, browsers", "Java", "model2vec, StaticEmbedding"}
BERTS = {"KerasHub"}
CASES = [
    *((name, "pieces") for name in RUNTIMES if name not in AVERAGES | BERTS),
    *((name, "words") for name in RUNTIMES if name not in BERTS),
    *((name, "bert") for name in BERTS),
]
# 8 bits of the weights of pieces and 4 of words, and an approximation of the activation.
LARGEST = {"Python without TensorFlow": 0.1, "KerasHub": 1e-3}


def make_bert() -> Model:
    """A BERT without dense layers, of letters."""
    letters = sorted({letter for text in SENTENCES for letter in text if letter.isascii()})
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = dict.fromkeys([*marks, *letters, *(f"##{letter}" for letter in letters)])
    tokenizer = WordPieceTokenizer(pieces, WordPieceConfig(max_tokens=64))
    sizes = {"embedding_dim": 8, "intermediate_dim": 16, "num_layers": 2, "num_heads": 2}
    config = BertConfig(**sizes, max_positions=64, pooling="mean")
    model = Model(tokenizer, encoder_settings(config, tokenizer), ModelInfo())
    add_noise(model.weights.values())
    return model


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """A CNN of marked pieces, as the published one is, an average of words, and a BERT."""
    words = tiny_model(tiny_config(*STATIC), {"en": TEXTS})
    words.heads.clear()
    # Transformers.js cuts the mark at the end of long texts (docs/interop.md, note 6).
    pieces = tiny_model(tiny_config(*KINDS["cnn"], "tokenizer.max_tokens=256"), {"en": TEXTS})
    add_noise(pieces.weights.values())
    folders = {}
    for kind, model in (("pieces", pieces), ("words", words), ("bert", make_bert())):
        folders[kind] = tmp_path_factory.mktemp(kind) / "model"
        model.export(folders[kind], {})
    texts = {"bert": [text for text in SENTENCES if text.isascii()]}  # KerasHub keeps accents
    return {
        kind: Trial(folder, {"": texts.get(kind, TEXTS)}, tmp_path_factory.mktemp(kind))
        for kind, folder in folders.items()
    }


@pytest.mark.slow
# keras-hub leaves a file open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_vectors_are_those_of_the_saved_model(name, kind, trials):
    try:
        found = RUNTIMES[name](trials[kind])
    except AbsentError as absent:
        pytest.skip(str(absent))
    print(f"{name}, {kind}: {found}")
    assert largest(found) <= LARGEST.get(name, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(AVERAGES - {"Java"} | BERTS))
def test_what_a_runtime_cannot_run_is_refused(name, trials):
    try:
        with pytest.raises(UserError):
            RUNTIMES[name](trials["pieces"])
    except AbsentError as absent:
        pytest.skip(str(absent))


def test_the_page_names_the_runtimes_that_are_run():
    page = (ROOT / "docs" / "runtimes.md").read_text("utf-8")
    table = page.partition("| runtime | command")[2].partition("\n\n")[0]
    names = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)
    assert {*names} == {*RUNTIMES, *NOT_RUN}

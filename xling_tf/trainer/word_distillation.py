"""An average of words from any encoder, in a minute."""

import time
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from absl import logging
from numpy.typing import NDArray

from xling_tf import __version__
from xling_tf.config import ModelInfo, SimilarityConfig, StaticConfig, WordsConfig
from xling_tf.encoders.base import encoder_settings
from xling_tf.errors import UserError
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.evaluators.encoding import Embedder, encode_checked
from xling_tf.importers.base import read_base_model
from xling_tf.model import Model
from xling_tf.program import progress
from xling_tf.savedmodel.card import model_card
from xling_tf.savedmodel.module import require_replaceable
from xling_tf.savedmodel.saved_models import find_model, licence_files, read_front_matter
from xling_tf.sentence_encoder import SentenceEncoder, load
from xling_tf.tokenizers.treebank import EMPTY_TOKEN
from xling_tf.tokenizers.words import WordTokenizer, common_words
from xling_tf.trainer.teacher import assign_words
from xling_tf.trainer.training import train

_SECONDS = 60.0
_WORDS = WordsConfig(lowercase=True, common_words=100_000, num_oov_buckets=1, ngram_sizes=())
_CHUNK = 512
# The a of Arora et al. 2017, sec. 3, with their value: without training, frequent words need more
# weight than in teacher.py
# (docs/research/experiments.md, "What does a minute of `xling-tf distill` give").
_SIF = 1e-3
# Numbers of a word; the vectors of sentences are as wide as the model's.
_EMBEDDING_DIM = 320


def distill(
    model: str | PathLike[str],
    languages: str | Sequence[str],
    output: str | PathLike[str],
    *,
    minutes: float = 0,
    data: str | PathLike[str] | None = None,
) -> SentenceEncoder | None:
    """Makes an average of words from an encoder.

    For a minute, the encoder encodes the most frequent words of the languages, each alone, as many
    as it can. Their vectors are centred and reduced to their principal components, and frequent
    words get less weight (Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence
    Embeddings", sec. 3). Unknown words do not count.

    With `minutes`, the average is trained on translations instead, as `train` does with the preset
    "static" and the encoder as its teacher. Its words start from the vectors of the words alone and
    of sentences that contain them, which takes longer than a minute.

    Args:
        model: What `evaluate` takes: a model of any kind that `load` opens, or "rest:URL" or
            "python:module:function".
        languages: Codes, such as "es,de" or ["es", "de"].
        output: Folder of the exported model; an earlier export there is replaced.
        minutes: Minutes of training; 0 for none.
        data: Folder of translations to train on; None for the default corpora.

    Returns:
        The exported model, loaded; None if a signal stopped the training.

    Raises:
        UserError: The model or the folders cannot be used, no language has a list of words, or
            `minutes` asks for training with one language.

    Examples:
        >>> encoder = distill("exported/e5", ["es", "de"], "exported/words")  # doctest: +SKIP
        >>> encoder.encode(["Hola", "Hallo"]).shape  # doctest: +SKIP
        (2, 384)
    """
    codes = [*filter(None, languages.split(","))] if isinstance(languages, str) else [*languages]
    path = Path(output)
    require_replaceable(path)
    if minutes:
        return _trained(str(model), codes, path, minutes, data)
    if data is not None:
        raise UserError(
            "expected `minutes` of training beside `data`, got 0; give some, or leave `data` out"
        )
    words = common_words(codes, [EMPTY_TOKEN], _WORDS)
    if not words:
        raise UserError(
            "expected languages whose frequent words wordfreq lists, got "
            f"{', '.join(codes) or 'none'}; give `minutes` and `data` to learn words from texts"
        )
    teacher = open_embedder(str(model))
    vectors = _encode_words(teacher, words)
    student = _average_of_words(teacher, codes, words[: len(vectors)], vectors)
    _export(student, str(model), path)
    return load(path)


def _trained(
    model: str, codes: list[str], output: Path, minutes: float, data: str | PathLike[str] | None
) -> SentenceEncoder | None:
    if len(codes) < 2:
        raise UserError(
            f"`minutes` trains on translations, which need two languages, got {', '.join(codes)}; "
            "name another one, or give minutes=0"
        )
    source = "en" if "en" in codes else codes[0]
    return train(
        "static",
        source=source,
        target=[code for code in codes if code != source],
        minutes=minutes,
        teacher=model,
        data=data,
        # The default is a folder for these languages, which another teacher may have used.
        run_dir=Path("runs", output.resolve().name),
        output=output,
    )


def _encode_words(teacher: Embedder, words: Sequence[str]) -> NDArray[np.floating]:
    """Returns the vectors of the first words, as many as there is time for."""
    begin, parts, count = time.monotonic(), list[NDArray[np.floating]](), 0
    with progress(f"{teacher.name} encodes {len(words)} words, for a minute at most") as report:
        while count < len(words) and (not parts or time.monotonic() < begin + _SECONDS):
            parts.append(encode_checked(teacher, [*words[count : count + _CHUNK]]))
            count += len(parts[-1])
            report(f"{count} words")
    logging.info("the %d most frequent of %d words were encoded", count, len(words))
    return np.concatenate(parts)


def _average_of_words(
    teacher: Embedder, codes: list[str], words: Sequence[str], vectors: NDArray[np.floating]
) -> Model:
    """Makes the model; the empty word, of texts without words, is zero."""
    width = vectors.shape[1]
    config = StaticConfig(embedding_dim=min(_EMBEDDING_DIM, width), hidden_dim=width)
    tokenizer = WordTokenizer([*words, EMPTY_TOKEN], _WORDS)
    info = ModelInfo(
        description=f"words of {teacher.name}",
        languages=tuple(codes),
        similarity=SimilarityConfig(normalize=True),
    )
    model = Model(tokenizer, encoder_settings(config, tokenizer), info)
    assign_words(model.encoder.static_part, vectors, sif=_SIF)
    return model


def _export(student: Model, teacher: str, output: Path) -> None:
    """Exports the model with a card and the teacher's licences."""
    is_folder = not teacher.startswith(("rest:", "python:"))
    folder = find_model(teacher) if is_folder else Path()
    module = student.module()
    card = model_card(
        output.name,
        f"Made by xling_tf {__version__} from the {student.info.description}, without training.",
        student.config(),
        module.signatures,
        licence=" ".join(read_front_matter(folder, "license")) if is_folder else "",
        base_model=read_base_model(teacher) if is_folder else "",
    )
    licences = licence_files(folder) if is_folder else []
    student.export(
        output, {"README.md": card, **{file.name: file.read_bytes() for file in licences}}, module
    )

"""Fine-tuning on pairs of texts, in one call."""

import glob
import hashlib
import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.config import (
    ENCODERS,
    DataConfig,
    ExperimentConfig,
    InitialConfig,
    OptimizerConfig,
    SimilarityConfig,
    TaskConfig,
    TrainingConfig,
    TranslationRankingConfig,
)
from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.readers import percentages
from xling_tf.corpora.records import Corpus, Row, SimilarityPair, TranslationPair
from xling_tf.errors import UserError
from xling_tf.files import locked
from xling_tf.importers.base import encoder_kind
from xling_tf.model import read_config
from xling_tf.savedmodel.saved_models import find_model, is_foreign
from xling_tf.sentence_encoder import SentenceEncoder, load
from xling_tf.settings import Settings, apply_overrides, to_dict
from xling_tf.trainer.context import Run
from xling_tf.trainer.experiment import run_experiment

# A tenth of the pairs is held out, and training needs several pairs to compare.
_MIN_PAIRS = 8
_PAIRS_PER_BATCH = 128
# 2019, sec. 2.2. All examples have as many columns as the longest row, so that one row with a
# hundred wrong texts would make every step fifty times as long.
_MAX_WRONG = 5
_SIMILARITY = SimilarityConfig(normalize=True, scale=20.0, margin=0.1, bidirectional=True)


def fine_tune(
    model: str | Path,
    pairs: Any,
    *,
    output: str | Path,
    steps: int = 300,
    anchor_weight: float = 1.0,
    languages: tuple[str, str] = ("source", "target"),
    settings: Settings = (),
    run_dir: str | Path | None = None,
) -> SentenceEncoder | None:
    """Trains a model on pairs of texts, so that the vectors of a pair are near each other, and
    exports it.

    Pairs can be translations, questions with answers, or queries with documents, in one or two
    languages. The model learns to rank the second text of a pair over those of the other pairs
    (Chidambaram et al. 2019, sec. 2.2) and over texts that are known to be wrong. If pairs have
    scores, the model learns cosines that correlate with them. A tenth of the pairs is held out for
    evaluation: their texts are not trained on, except for second texts that many pairs share, such
    as answers, or one of two texts with a score. The exported model keeps all signatures. Its
    probabilities of a match are fitted on the built-in sample; `xling_tf.calibrate` fits them on
    your own pairs. The same call continues a training that was stopped.

    Args:
        model: An exported model, in any form that `xling_tf.load` takes, a model folder, or a run
            folder.
        pairs: At least 8 different pairs; hundreds are enough for a domain, thousands for a task.
            The rows of a list, an iterator, a table or its file are (text, text) or (text, right,
            wrong). In tables (pandas, Arrow, `datasets`) and dictionaries, columns have names:
            "anchor", "positive", "negative", "negative_2", ...; or "sentence1", "sentence2" and
            "score" or "label"; or languages, also in "translation". Row numbers are left out.
            At most 5 wrong texts of a row are used at a time. The highest score means alike, as
            does a class such as "duplicate" rather than "not_duplicate".
        output: Folder of the exported model, which may be `model` itself.
        steps: Number of training steps, each on at most 128 pairs.
        anchor_weight: Weight in the loss of 1 - cosine to the vectors of `model`, so that an index
            of them stays usable; 0 turns it off.
        languages: Codes such as ("en", "es") if each side is in one language; texts in another
            language are then reported.
        settings: Further settings, as in docs/settings.md, such as
            {"optimizer.learning_rate": 1e-4, "optimizer.embedding_learning_rate": 0}.
        run_dir: Folder of checkpoints and logs; None for a hidden one beside `output`, different
            for each different call, which is deleted after the export.

    Returns:
        The exported model, loaded; its `scores` are those of the held-out pairs, by suite and
        metric. None if a signal stopped the training.

    Raises:
        UserError: The model or the pairs cannot be used, or `run_dir` belongs to another training.

    Examples:
        >>> encoder = fine_tune(
        ...     "exported/use-multilingual",
        ...     [("How do I reset it?", "¿Cómo lo reinicio?"), ...],
        ...     output="exported/mine",
        ... )  # doctest: +SKIP
        >>> encoder.encode("How do I reset it?").shape  # doctest: +SKIP
        (512,)
    """
    if not isinstance(model, str | Path):
        raise UserError(
            f"expected the folder of a model as the first argument, got {type(model).__name__}; "
            "call fine_tune(folder, pairs, output=...)"
        )
    if isinstance(languages, str) or len(languages) != 2 or languages[0] == languages[1]:
        raise UserError(
            '`languages` expects two different codes, such as ("en", "es"), got '
            f"{languages!r}; leave it out if all texts are in one language"
        )
    output = Path(output)
    corpus = PairCorpus.from_pairs(pairs, languages)
    config = ExperimentConfig(
        description="fine-tuned on pairs of texts that belong together",
        tokenizer=None,
        encoder=None,
        similarity=_SIMILARITY,
        optimizer=_optimizer(find_model(model)),
        data=DataConfig(source=languages[0], targets=(languages[1],)),
        initial=InitialConfig(model=str(model), anchor_weight=anchor_weight),
        tasks=_task(corpus),
        training=TrainingConfig(steps=steps),
    )
    config = apply_overrides(config, settings)
    call = hashlib.blake2b(
        f"{to_dict(config)} {corpus.version()}".encode(), digest_size=8
    ).hexdigest()
    state = output.parent / f".{output.name}.{call}.run" if run_dir is None else Path(run_dir)
    run = Run(name=output.name, config=config, corpora=[corpus], run_dir=state, output=output)
    results = run_experiment(run)
    if results is None:
        return None
    if run_dir is None:  # the state of other calls that were stopped is of no use either
        for state in output.parent.glob(
            f".{glob.escape(output.name)}.{'[0-9a-f]' * len(call)}.run"
        ):
            with suppress(UserError), locked(state):
                shutil.rmtree(state)
    encoder = load(output)
    encoder.scores = results["scores"]
    return encoder


def _optimizer(folder: Path) -> OptimizerConfig:
    """Returns the optimizer for the kind of encoder of the model in a folder."""
    kind = encoder_kind(folder) if is_foreign(folder) else read_config(folder)["encoder"]["kind"]
    rate = ENCODERS.config_type(kind).fine_tuning_rate
    return OptimizerConfig(
        name="adam", learning_rate=rate, embedding_learning_rate=rate, warmup=0.1, decay="linear"
    )


def _task(corpus: "PairCorpus") -> dict[str, TaskConfig]:
    """Returns the task that learns from the kind of pairs in a corpus."""
    batch = min(_PAIRS_PER_BATCH, len(corpus.pairs))
    if corpus.record_type == "similarity":
        return {"graded_similarity": TaskConfig(examples_per_batch=batch)}
    negatives = max(
        len(pair.negatives) for pair in corpus.pairs if isinstance(pair, TranslationPair)
    )
    ranking = TranslationRankingConfig(examples_per_batch=batch, hard_negatives=negatives)
    return {"translation_ranking": ranking}


@dataclass(frozen=True, kw_only=True)
class PairCorpus(Corpus):
    """A corpus in memory: pairs with scores, or pairs that are trained like translations."""

    pairs: tuple[TranslationPair, ...] | tuple[SimilarityPair, ...]

    @classmethod
    def from_pairs(cls, pairs: Any, languages: tuple[str, str]) -> "PairCorpus":
        """Makes a corpus of the distinct pairs in any form that `read_pairs` takes."""
        distinct = tuple(dict.fromkeys(read_pairs(pairs, languages)))
        if len(distinct) < _MIN_PAIRS:
            raise UserError(
                f"expected at least {_MIN_PAIRS} different pairs, got {len(distinct)}: training "
                "compares each with the others; add more"
            )
        scores = [pair.score for pair in distinct if pair.score is not None]
        if not scores:
            ranked = tuple(TranslationPair(*pair[:2], _drawn(pair.wrong)) for pair in distinct)
            return cls(
                name="pairs", record_type="parallel", languages="-".join(languages), pairs=ranked
            )
        if min(scores) == max(scores):
            raise UserError(f"expected different scores, but all are {scores[0]:g}")
        high, low = (scores.index(end(scores)) for end in (max, min))
        logging.info(
            "pairs with scores: %g = alike, as %r and %r; %g = different, as %r and %r",
            scores[high],
            *distinct[high][:2],
            scores[low],
            *distinct[low][:2],
        )
        scored = [
            SimilarityPair(*row[:2], n)
            for row, n in zip(distinct, percentages(scores), strict=True)
        ]
        return cls(
            name="pairs", record_type="similarity", languages=languages[0], pairs=tuple(scored)
        )

    def version(self) -> str:
        """Returns a hash of the pairs."""
        return hashlib.blake2b(repr(self.pairs).encode(), digest_size=8).hexdigest()

    def __iter__(self) -> Iterator[Row]:
        return ((pair, None) for pair in self.pairs)


def _drawn(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Returns at most `_MAX_WRONG` of the different texts, the same ones in every process."""
    distinct = [*dict.fromkeys(texts)]
    return tuple(random.Random(repr(distinct)).sample(distinct, min(_MAX_WRONG, len(distinct))))

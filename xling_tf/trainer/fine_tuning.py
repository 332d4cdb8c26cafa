"""Fine-tuning on pairs of texts, in one call."""

import glob
import hashlib
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

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
from xling_tf.corpora.store import CorpusStore
from xling_tf.errors import UserError
from xling_tf.files import (
    CHECKPOINTS,
    file_digest,
    folder_bytes,
    locked,
    newest_first,
    read_json_dict,
)
from xling_tf.processes import start_tensorflow
from xling_tf.program import progress, visible_log
from xling_tf.savedmodel.saved_models import find_model, is_foreign, read_info
from xling_tf.sentence_encoder import SentenceEncoder, load
from xling_tf.settings import Settings, apply_overrides, to_dict
from xling_tf.trainer.training import run_and_draw

# Imported late: they import TensorFlow, which takes seconds, and mistakes are reported before.
if TYPE_CHECKING:
    from xling_tf.model import Model
    from xling_tf.trainer.held_out import Validation

_DIGEST_BYTES = 8
_STEPS = 300  # if neither steps nor minutes are given
_SIDES = ("source", "target")  # in place of languages
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
    steps: int | None = None,
    minutes: float | None = None,
    anchor_weight: float = 1.0,
    languages: tuple[str, str] = _SIDES,
    settings: Settings = (),
    run_dir: str | Path | None = None,
    check: bool = False,
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
    your own pairs.

    Before the training, the log shows what was understood of the pairs, and how the model scores on
    the held-out ones; warnings say what seems wrong. The model is scored ten times while it trains,
    and the best of the ten is exported; three scores in a row that are worse end the training. The
    same call continues a training that was stopped or, with more steps or minutes, one that has
    ended.

    Args:
        model: An exported model, in any form that `xling_tf.load` takes, a model folder, or a run
            folder.
        pairs: At least 8 different pairs; hundreds are enough for a domain, thousands for a task.
            The rows of a list, an iterator, a table or its file (CSV, TSV, Excel, JSON lines,
            Parquet) are (text, text) or (text, right, wrong). In tables (pandas, Arrow, `datasets`)
            and dictionaries, columns have names: "anchor", "positive", "negative", "negative_2",
            ...; or "question" and "answer", in about 30 languages; or "sentence1", "sentence2" and
            "score" or "label"; or languages, also in "translation". Other columns are left out.
            At most 5 wrong texts of a row are used. The highest score means alike, as does a class
            such as "duplicate" rather than "not_duplicate".
        output: Folder of the exported model, which may be `model` itself.
        steps: Maximum number of training steps, each on at most 128 pairs; None for 300, or for no
            limit if `minutes` is given.
        minutes: Maximum minutes of training; None for no limit.
        anchor_weight: Weight in the loss of 1 - cosine to the vectors of `model`, so that an index
            of them stays usable; 0 turns it off.
        languages: Codes such as ("en", "es"), if each side is in one language; a warning then
            reports texts in other languages.
        settings: Further settings, as in docs/settings.md, such as
            {"optimizer.learning_rate": 1e-4, "optimizer.embedding_learning_rate": 0}.
        run_dir: Folder of checkpoints and logs; None for a hidden one beside `output`, different
            for each start, pairs and settings.
        check: True only shows what was understood of the pairs and scores the model, without
            training.

    Returns:
        The exported model, loaded; its `scores` are those of the held-out pairs, by suite and
        metric. None if a signal stopped the training, or after a check.

    Raises:
        UserError: The model or the pairs cannot be used, or `run_dir` is that of another training.

    Examples:
        >>> encoder = fine_tune(
        ...     "exported/use-multilingual", "faq.xlsx", output="exported/mine", minutes=5
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
            '`languages` must be two different codes, such as ("en", "es"), got '
            f"{languages!r}; leave it out if all texts are in one language"
        )
    with visible_log():
        return _fine_tune(
            model,
            PairCorpus.from_pairs(pairs, languages),
            Path(output),
            limits=TrainingConfig(
                steps=_STEPS if steps is None and minutes is None else steps or 0,
                minutes=minutes or 0,
            ),
            anchor_weight=anchor_weight,
            settings=settings,
            run_dir=run_dir,
            check=check,
        )


def _fine_tune(
    model: str | Path,
    corpus: "PairCorpus",
    output: Path,
    *,
    limits: TrainingConfig,
    anchor_weight: float,
    settings: Settings,
    run_dir: str | Path | None,
    check: bool,
) -> SentenceEncoder | None:
    start, sides = find_model(model), corpus.sides
    start_tensorflow()
    from xling_tf.trainer.context import Run

    config = ExperimentConfig(
        description="fine-tuned on pairs of texts that belong together",
        tokenizer=None,
        encoder=None,
        similarity=_SIMILARITY,
        optimizer=_optimizer(start),
        data=DataConfig(source=sides[0], targets=(sides[1],)),
        initial=InitialConfig(model=str(model), anchor_weight=anchor_weight),
        tasks=_task(corpus),
        training=limits,
    )
    config = apply_overrides(config, settings)

    run = Run(
        name=output.name,
        config=config,
        corpora=[corpus],
        run_dir=Path(run_dir or _state_folder(output, start, config, corpus)),
        output=output,
        inspect=partial(_inspect, read_info(start).get("languages", ())),
        examples=[pair[:2] for pair in (corpus.pairs[0], corpus.pairs[len(corpus.pairs) // 2])],
    )
    if check:
        with TemporaryDirectory() as folder:
            state, model_folder = Path(folder, "run"), Path(folder, output.name)
            run_and_draw(replace(run, run_dir=state, output=model_folder, is_check=True))
        return None
    if not run_and_draw(run):
        return None
    if run_dir is None:
        _remove_finished(output, run.run_dir)
    return load(output)


def _inspect(languages: Sequence[str], model: "Model", store: CorpusStore) -> "Validation | None":
    """Shows what was understood of the pairs, and scores the model that training starts from.

    Args:
        languages: Those that this model listed before; now it lists those of the pairs as well.
        model: The model.
        store: The pairs.

    Returns:
        What scores the model while it trains; None if too few pairs are held out.
    """
    from xling_tf.trainer.held_out import Validation, held_out_of
    from xling_tf.trainer.pair_report import log_pairs

    (corpus,) = store.corpora
    log_pairs(corpus, model.tokenizer, languages)
    pairs = held_out_of(corpus)
    if pairs is None:
        logging.warning("too few pairs are held out to score the model; give more pairs")
        return None
    with progress("scoring the start"):
        before = pairs.measure(lambda texts: model(texts).numpy())
    logging.info("%s: %s before training", pairs.title, pairs.described(before))
    if warning := pairs.warning(before):
        logging.warning("%s", warning)
    return Validation(pairs, before)


def _state_folder(
    output: Path, start: Path, config: ExperimentConfig, corpus: "PairCorpus"
) -> Path:
    """Returns the folder of a training's state, which a larger budget does not change."""
    request = to_dict(replace(config, training=replace(config.training, steps=0, minutes=0.0)))
    # A model that is fine-tuned in its place is another start each time.
    files = sorted(path for path in start.rglob("*") if path.is_file())
    digests = [file_digest(path) for path in files]
    key = f"{request} {corpus.version()} {digests}"
    digest = hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return output.parent / f".{output.name}.{digest}.run"


def _remove_finished(output: Path, run_dir: Path) -> None:
    """Keeps stopped trainings, and what more steps need of the one that has ended."""
    for checkpoint in newest_first(run_dir / CHECKPOINTS)[1:]:
        shutil.rmtree(checkpoint)
    pattern = f".{glob.escape(output.name)}.{'[0-9a-f]' * 2 * _DIGEST_BYTES}.run"
    for other in output.parent.glob(pattern):
        if other != run_dir and _has_ended(other):
            with suppress(UserError), locked(other):
                shutil.rmtree(other)
    logging.info(
        "%s keeps the state (%.0f MB) for more steps or minutes; delete it if you need no more",
        run_dir,
        folder_bytes(run_dir) / 1e6,
    )


def _has_ended(run_dir: Path) -> bool:
    """False for a training that was stopped, also if it had ended with fewer steps before."""
    newest = next(iter(newest_first(run_dir / CHECKPOINTS)), None)
    steps = read_json_dict(run_dir / "results.json").get("steps")
    return newest is not None and isinstance(steps, int) and newest.name == f"step-{steps:09d}"


def _optimizer(folder: Path) -> OptimizerConfig:
    """Returns the optimizer for the kind of encoder of the model in a folder."""
    from xling_tf.importers.base import encoder_kind
    from xling_tf.model import read_config, require_trainable

    require_trainable(folder)
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
    sides: tuple[str, str]  # the languages of the first and the second texts

    @classmethod
    def from_pairs(cls, pairs: Any, languages: tuple[str, str]) -> "PairCorpus":
        """Makes a corpus of the distinct pairs in any form that `read_pairs` takes."""
        distinct = tuple(dict.fromkeys(read_pairs(pairs, languages)))
        if len(distinct) < _MIN_PAIRS:
            raise UserError(
                f"expected at least {_MIN_PAIRS} different pairs, got {len(distinct)}; add more, "
                "because training compares each with the others"
            )
        scores = [pair.score for pair in distinct if pair.score is not None]
        if not scores:
            ranked = tuple(TranslationPair(*pair[:2], _drawn(pair.wrong)) for pair in distinct)
            return cls(
                name="pairs",
                record_type="parallel",
                languages="-".join(languages),
                pairs=ranked,
                sides=languages,
            )
        if min(scores) == max(scores):
            raise UserError(
                f"expected different scores, but all are {scores[0]:g}; add pairs with other "
                "scores, or leave the column out"
            )
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
            name="pairs",
            record_type="similarity",
            languages=languages[0],
            pairs=tuple(scored),
            sides=languages,
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

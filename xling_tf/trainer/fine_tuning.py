"""Fine-tuning of a model on texts that belong together, or on scores of how alike they are, in one call."""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xling_tf.config import (
    DataConfig,
    ExperimentConfig,
    OptimizerConfig,
    SimilarityConfig,
    TaskConfig,
    TasksConfig,
)
from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.records import Corpus, Row, SimilarityPair, TranslationPair
from xling_tf.errors import UserError
from xling_tf.trainer.experiment import Run, run_experiment
from xling_tf.trainer.warm_start import apply_start, find_start

# A tenth is held out, and a pair is learnt by telling it from others.
_FEWEST_PAIRS = 8
_PAIRS_PER_BATCH = 128
_OFF = TaskConfig(weight=0)
_TUNING = ExperimentConfig(
    description="fine-tuned on pairs of texts that belong together",
    tasks=TasksConfig(
        response_prediction=_OFF,
        quick_thought=_OFF,
        inference=_OFF,
        similarity=SimilarityConfig(normalize=True, scale=20.0, margin=0.1, bidirectional=True),
    ),
    optimizer=OptimizerConfig(
        name="adam", learning_rate=2e-4, embedding_learning_rate=2e-4, warmup=0.1, decay="linear"
    ),
)


def fine_tune(
    model: str | Path,
    pairs: Any,
    *,
    output: str | Path,
    steps: int = 300,
    keep_weight: float = 1.0,
    languages: tuple[str, str] = ("source", "target"),
    settings: Sequence[str] = (),
    run_dir: str | Path | None = None,
) -> dict[str, Any] | None:
    """Trains a model further, so that the two texts of a pair get vectors near each other, and exports it.

    Pairs are translations, questions and their answers, or queries and documents, in one language or in
    two: each text is to be told from those of the other pairs (Chidambaram et al. 2019, sec. 2.2) and from
    texts that are known to be wrong. Of pairs with scores, the cosines learn to correlate with these. A
    tenth is held out for evaluation. The export has all signatures of the model. The same call continues a
    training that was stopped.

    Args:
        model: An exported model, as `xling_tf.load` takes it, or the folder of a run.
        pairs: At least 8 different ones; hundreds teach a domain, and thousands a task. All rows of a list,
            an iterator or a table (pandas, Arrow, `datasets`) are (text, text), (text, right, wrong, ...)
            or (text, text, score); a score may be a label of 0 or 1, or a number written as text. In a
            table, or if rows are dicts, the names of columns decide: "anchor", "positive", "negative"; or
            "sentence1", "sentence2", "score".
        output: Folder of the exported model.
        steps: Of training, with 128 pairs each.
        keep_weight: How much the vectors are to stay near those of `model` (1 - cosine in the loss), with
            which an index may have been built; 0: not at all.
        languages: Codes, as ("en", "es"), if the texts of each side are in one: others are warned of.
        settings: Further ones, as training/main.py has them after --set:
            "optimizer.learning_rate=1e-4", "optimizer.embedding_learning_rate=0".
        run_dir: Checkpoints and logs; None: runs/ and the name of `output`.

    Returns:
        The content of the run's results.json, with the scores; None if a signal has stopped it.

    Raises:
        UserError: The model or the pairs cannot be used (a column may hold classes or identifiers), or
            `run_dir` is of another training.

    Example:
        >>> fine_tune(
        ...     "exported/use-multilingual",
        ...     [("How do I reset it?", "¿Cómo lo reinicio?"), ...],
        ...     output="exported/mine",
        ... )  # doctest: +SKIP
    """
    if not isinstance(model, str | Path):
        raise UserError(
            "the folder of a model is expected first, and then the pairs, got "
            f"{type(model).__name__} as the model; call fine_tune(folder, pairs, output=...)"
        )
    output = Path(output)
    run_dir = Path("runs") / output.name if run_dir is None else Path(run_dir)
    corpus = PairCorpus.of(pairs, languages)
    start = find_start(str(model), run_dir).config
    learnt = TaskConfig(examples_per_batch=min(_PAIRS_PER_BATCH, len(corpus.pairs)))
    is_scored = corpus.kind == "similarity"
    tasks = dataclasses.replace(
        _TUNING.tasks,
        translation_ranking=_OFF if is_scored else learnt,
        graded_similarity=learnt if is_scored else _OFF,
        hard_negatives=corpus.num_negatives,
        tower_dims=start.tasks.tower_dims,
    )
    preset = dataclasses.replace(
        _TUNING,
        data=DataConfig(source=languages[0], targets=(languages[1],)),
        text=start.text,
        encoder=start.encoder,
        tasks=tasks,
    )
    asked = [f"initial.model={model}", f"initial.keep_weight={keep_weight}", f"training.steps={steps}"]
    config = apply_start(preset, [*asked, *settings], run_dir)
    return run_experiment(
        Run(name=output.name, config=config, corpora=[corpus], run_dir=run_dir, output=output)
    )


@dataclass(frozen=True, kw_only=True)
class PairCorpus(Corpus):
    """Pairs in memory, each of which is a translation or stands for one, or has a score."""

    pairs: tuple[TranslationPair, ...] | tuple[SimilarityPair, ...]

    @property
    def num_negatives(self) -> int:
        """Wrong texts of the pair that has most."""
        return max(len(pair.negatives) if isinstance(pair, TranslationPair) else 0 for pair in self.pairs)

    @classmethod
    def of(cls, pairs: Any, languages: tuple[str, str]) -> "PairCorpus":
        """Makes a corpus of what `read_pairs` reads, each pair once.

        Raises:
            UserError: They are too few, or are no pairs.
        """
        distinct = tuple(dict.fromkeys(read_pairs(pairs)))
        if len(distinct) < _FEWEST_PAIRS:
            raise UserError(
                f"at least {_FEWEST_PAIRS} different pairs are expected, got {len(distinct)}: each is "
                "learnt by telling it from others; give more"
            )
        scores = [pair.score for pair in distinct if pair.score is not None]
        if not scores:
            ranked = tuple(TranslationPair(pair.first, pair.second, pair.wrong) for pair in distinct)
            return cls(name="pairs", kind="parallel", languages="-".join(languages), pairs=ranked)
        low, high = min(scores), max(scores)
        if low == high:
            raise UserError(f"scores that differ are expected, but all are {low:g}")
        percents = [round(100 * (score - low) / (high - low)) for score in scores]
        scored = (SimilarityPair(*row[:2], percent) for row, percent in zip(distinct, percents, strict=True))
        return cls(name="pairs", kind="similarity", languages=languages[0], pairs=tuple(scored))

    def version(self) -> str:
        """Tells the pairs from others."""
        return hashlib.blake2b(repr(self.pairs).encode(), digest_size=8).hexdigest()

    def __iter__(self) -> Iterator[Row]:
        """Yields the pairs, each on its own."""
        return ((pair, None) for pair in self.pairs)

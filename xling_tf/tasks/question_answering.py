"""Finding the answer to a question by its text and the paragraph that it is from."""

from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from xling_tf.config import ExperimentConfig, QuestionAnsweringConfig
from xling_tf.encoders.base import TokenEncoder, average_words
from xling_tf.layers.pooling import unit_entries, unit_length
from xling_tf.layers.towers import Tower
from xling_tf.losses import score_divergence
from xling_tf.tasks.base import Batch, gather_candidates, native_languages
from xling_tf.tasks.ranking import RankingTask
from xling_tf.text.preprocessor import TokenFeatures, WordFeatures

# A temperature of 0.01, as the E5 models are trained with (Wang et al. 2022, "Text Embeddings by
# Weakly-Supervised Contrastive Pre-training"); 50 and 100 were tried, docs/results.md has both.
_TEACHER_SCALE = 100.0


class QuestionAnswering(RankingTask):
    """Finds the answer to a question among those of the batch (Yang et al. 2019, sec. 3.1).

    Question and answer pass through the shared encoder. A deep averaging network of its own (Cer et al.
    2018, sec. 3.2) encodes the answer's context: it sees the average of the context's word vectors, which
    the shared encoder embeds (footnote 4: "a bag-of-words context feature ... encoded using a separate
    DAN encoder"). The question's tower and the one over answer and context, joined, give what is
    compared. A teacher, where there is one, says how near each answer of the batch is to the question.

    Args:
        question_tower: Over the encoding of the question.
        context_encoder: The layers of the averaging network; None: without contexts.
        answer_tower: Over the answer's encoding, followed by the context's.
    """

    kind: ClassVar[str] = "questions"
    # The answers that are wrong then are from the same documents: of others, the topic alone would tell.
    by_length: ClassVar[bool] = False
    config: QuestionAnsweringConfig

    def __init__(
        self,
        *,
        question_tower: Tower,
        context_encoder: Tower | None,
        answer_tower: Tower,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.question_tower = question_tower
        self.context_encoder = context_encoder
        self.answer_tower = answer_tower
        self.num_contexts = 0 if context_encoder is None else 1
        self.heads = (question_tower, answer_tower, *([context_encoder] if context_encoder else []))
        self.columns = ("question", "answer", *["context"] * self.num_contexts)

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each language, with the same towers for all."""
        dims, residual = config.tasks.tower_dims, config.tasks.residual_towers
        question_tower, answer_tower = (
            Tower(dims, residual, name=name) for name in ("question_tower", "answer_tower")
        )
        context_encoder = Tower(dims, name="context_encoder")  # over words' vectors, which may be shorter
        return cls.mirrored(
            config,
            "question_answering",
            native_languages(config),
            question_tower=question_tower,
            context_encoder=context_encoder if config.tasks.question_answering.with_context else None,
            answer_tower=answer_tower,
        )

    def build_heads(self, encoder: TokenEncoder) -> None:
        """Creates the towers' variables."""
        word = WordFeatures(*[np.zeros(1, np.int32)] * 3)
        average = tf.zeros_like(encoder.embed_words(word), tf.float32)
        encoding = np.zeros((1, encoder.hidden_dim), np.float32)
        self.question_tower(encoding)
        self._respond(encoding, [average] * self.num_contexts)

    def encode(self, encoder: TokenEncoder, features: TokenFeatures) -> list[tf.Tensor]:
        """Encodes questions and answers, and averages the words of their contexts."""
        words = encoder.embed_words(features.words)
        count = tf.size(features.lengths) // len(self.columns)
        lengths = features.lengths[: 2 * count]
        # Contexts are longer: what is encoded is padded to the longest question or answer.
        tokens = features.tokens[: 2 * count, : tf.maximum(1, tf.reduce_max(lengths))]
        sentences = features._replace(tokens=tokens, lengths=lengths)
        encodings = tf.split(self.encode_sentences(encoder, words, sentences), 2)
        if not self.num_contexts:
            return encodings
        contexts = tf.RaggedTensor.from_tensor(features.tokens[2 * count :], features.lengths[2 * count :])
        averages = average_words(words, contexts)
        return [*encodings, unit_entries(averages) if self.similarity.normalize else averages]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Ranks answers for questions."""
        question, answer, *contexts = columns
        question_text, answer_text = tf.unstack(batch.fingerprints[:2], num=2)
        questions, responses = self.question_tower(question), self._respond(answer, contexts)
        losses, hits = self.rank(questions, responses, question_text, answer_text)
        if self.config.teacher and self.config.teacher_weight:
            losses += self.config.teacher_weight * self._divergence(questions, responses, batch.vectors)
        return losses, hits

    def _divergence(self, questions: tf.Tensor, responses: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        """How far the shares of a batch's answers are from the teacher's, for each question: `[batch]`."""
        taught_questions, taught_answers = (unit_length(part) for part in tf.split(vectors, 2, axis=1))
        candidates, _ = gather_candidates(unit_length(responses))
        taught_candidates, _ = gather_candidates(taught_answers)
        return score_divergence(
            unit_length(questions),
            candidates,
            taught_questions,
            taught_candidates,
            scale=self.similarity.scale,
            teacher_scale=_TEACHER_SCALE,
        )

    def _respond(self, answer: tf.Tensor, contexts: list[tf.Tensor]) -> tf.Tensor:
        """Encodes answers with their contexts, where there are any: `[batch, tower dim]`."""
        if self.context_encoder is None:
            return self.answer_tower(answer)
        (averages,) = contexts
        return self.answer_tower(tf.concat([answer, self.context_encoder(averages)], axis=1))

"""Question answering: ranking answers by their text and the paragraph around them."""

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from xling_tf.config import DataConfig, ExperimentConfig, QuestionAnsweringConfig
from xling_tf.corpora.store import StoredRecords
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.pooling import unit_length
from xling_tf.layers.towers import Tower
from xling_tf.tasks.base import Batch, BatchOrder, Heads, scale_for_heads
from xling_tf.tasks.ranking import RankingTask, make_tower
from xling_tf.tasks.signatures import (
    TRAINING,
    ExportedLayers,
    SentenceSignature,
    Signature,
    SignatureDescription,
    one_for_each,
    texts,
)
from xling_tf.tokenizers.base import TokenFeatures


class AnswerSignature(Signature):
    """Encodes answers together with their contexts (Yang et al. 2019, sec. 3.1)."""

    @tf.function(input_signature=[*texts("inputs", "context"), TRAINING], autograph=False)
    def __call__(
        self, inputs: tf.Tensor, context: tf.Tensor = "", training: bool = False
    ) -> tf.Tensor:
        """Encodes answers.

        Args:
            inputs: Answers, in a tensor of any shape, which is flattened.
            context: The context of each answer, or a single string for all of them. For an empty
                context, the answer itself is the context, as the page of the published module
                recommends.
            training: Has no effect; part of the Reusable SavedModel contract.

        Returns:
            `[answers, dim]` float32 of unit length.
        """
        answers = tf.reshape(inputs, [-1])
        message = "expected as many contexts as answers, or a single string"
        contexts = one_for_each(context, answers, message)
        contexts = tf.where(tf.equal(tf.strings.strip(contexts), ""), answers, contexts)
        averages = self.head("context_encoder")(
            self.scaled_for_heads(self.encoder.average(contexts))
        )
        vectors = tf.concat([self.scaled_for_heads(self.encode(answers)), averages], axis=1)
        return unit_length(self.head("answer_tower")(vectors))


class QuestionAnswering(RankingTask):
    """Ranks the answer to a question over the others of the batch (Yang et al. 2019, sec. 3.1).

    The shared encoder encodes questions and answers. A separate deep averaging network (Cer et al.
    2018, sec. 3.2) encodes the context of an answer from the average of its word vectors (footnote
    4: "a bag-of-words context feature ... encoded using a separate DAN encoder"). A tower over the
    question, and a tower over answer and context, make the vectors that are compared; without
    towers, these are the encoder's own.
    """

    record_type: ClassVar[str] = "questions"
    # Wrong answers are then from the same documents; the topic alone does not give the right one
    # away.
    batch_order: ClassVar[BatchOrder] = "corpus"
    config: QuestionAnsweringConfig

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.num_contexts = int("context_encoder" in self.heads)
        # Until wrong answers are mined, the right one stands in their place.
        num_mined = self.config.wrong_answers if self.miners else 0
        self.columns = (
            "question",
            "answer",
            *["answer"] * num_mined,
            *["context"] * self.num_contexts,
        )
        self.roles = ("query", "document", *["document"] * num_mined, *[""] * self.num_contexts)

    def select(self, records: StoredRecords) -> StoredRecords:
        """See `Task.select`: all, with the questions on a paragraph side by side."""
        *_, contexts = [records.indices, *records.text_hashes]
        _, firsts, paragraphs = np.unique(contexts, return_index=True, return_inverse=True)
        return records[np.argsort(firsts[paragraphs], kind="stable")]

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        """See `Task.make_heads`: towers for questions and answers, and the network for contexts."""
        hidden_dim, heads, settings = encoder.hidden_dim, {}, config.task("question_answering")
        if not settings.with_towers:
            return {}
        if settings.with_context:
            words = encoder.embed_words(encoder.example_words())
            average = encoder.average(words, tf.ragged.constant([[0]]))
            layers = Tower((*config.heads.tower_dims, hidden_dim), name="context_encoder")
            layers.build((None, average.shape[-1]))
            heads["context_encoder"] = layers
        return {
            "question_tower": make_tower("question_tower", config, encoder),
            "answer_tower": make_tower("answer_tower", config, encoder, hidden_dim * len(heads)),
            **heads,
        }

    @classmethod
    def signatures(cls, layers: ExportedLayers) -> list[Signature]:
        """See `Task.signatures`."""
        heads = dict(layers.heads)
        towers = {"question_tower": heads.pop("question_tower")} if heads else {}
        card = "vectors of questions, near the answers that `response_encoder` encodes"
        example = (
            'encoder.question_encoder(["Where is it?"])      # near the answer of the next line'
        )
        question = SignatureDescription("question_encoder", ("input",), card, example, "query")
        questions = SentenceSignature(layers._replace(heads=towers), question)
        card, example = "vectors of answers", 'encoder.response_encoder(["It is in Rome."])'
        answer = SignatureDescription("response_encoder", ("input",), card, example, "document")
        if "context_encoder" not in heads:
            return [questions, SentenceSignature(layers._replace(heads=heads), answer)]
        answer = answer._replace(
            inputs=("input", "context"),
            card=(
                "vectors of answers and the paragraphs around them; an empty `context` means the "
                "answer"
            ),
            example='encoder.response_encoder(["It is in Rome."], ["The paragraph around it."])',
        )
        return [questions, AnswerSignature(layers._replace(heads=heads), answer)]

    def encode(
        self, encoder: TokenEncoder, features: TokenFeatures, training: bool = False
    ) -> list[tf.Tensor]:
        """See `Task.encode`: encodes questions and answers, and averages the words of contexts."""
        words = encoder.embed_words(features.words, training)
        num_sentences = len(self.columns) - self.num_contexts
        count = tf.size(features.lengths) // len(self.columns) * num_sentences
        lengths = features.lengths[:count]
        # Contexts are longer: questions and answers are cut to the length of the longest of them.
        tokens = features.tokens[:count, : tf.maximum(1, tf.reduce_max(lengths))]
        sentences = features._replace(tokens=tokens, lengths=lengths)
        encodings = tf.split(
            self.encode_sentences(encoder, words, sentences, training), num_sentences
        )
        if not self.num_contexts:
            return encodings
        contexts = tf.RaggedTensor.from_tensor(features.tokens[count:], features.lengths[count:])
        averages = encoder.average(words, contexts, training)
        return [*encodings, scale_for_heads(self.similarity)(averages)]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """See `Task.score`: ranks answers, also mined wrong ones, for questions."""
        questions, *answers = columns
        if self.num_contexts:
            answer, context = answers
            answers = [tf.concat([answer, self.heads["context_encoder"](context)], axis=1)]
        if self.config.with_towers:
            questions = self.heads["question_tower"](questions)
            answers = [self.heads["answer_tower"](answer) for answer in answers]
        return self.rank(questions, answers[0], batch.fingerprints, answers[1:])

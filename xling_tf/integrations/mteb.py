"""A model as mteb's benchmarks ask for it (Muennighoff et al. 2023, "MTEB")."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xling_tf.evaluators.systems import open_system
from xling_tf.inputs import as_texts
from xling_tf.sentence_encoder import SentenceEncoder


class MtebEncoder:
    """A model by mteb's EncoderProtocol; queries and documents of retrieval are questions and answers to it.

    mteb loads torch, which dies where TensorFlow is loaded too (2.15 and 2.21: both have LLVM): so a server
    holds the model, and TensorFlow is not loaded here.

    Args:
        model_name: `rest:URL` of a served model, or what else `open_system` takes.
        revision: Part of its name in the results.
        device: Changes nothing; mteb gives it.

    Example:
        >>> import mteb  # doctest: +SKIP
        >>> model = MtebEncoder("rest:http://127.0.0.1:8501/v1/models/en-es")  # doctest: +SKIP
        >>> mteb.evaluate(model, mteb.get_tasks(["STS17"], languages=["eng", "spa"]))  # doctest: +SKIP
    """

    def __init__(self, model_name: str, revision: str | None = None, *, device: str | None = None) -> None:
        del device
        self._system = open_system(model_name)
        self._revision = revision

    @property
    def mteb_model_meta(self) -> Any:
        """What mteb writes into its results."""
        from mteb.models.model_meta import ModelMeta

        revision = self._revision or self._system.checksum
        told = {"name": f"xling_tf/{self._system.name}", "revision": revision, "framework": ["TensorFlow"]}
        return ModelMeta.create_empty(told)

    def encode(
        self,
        inputs: Iterable[Mapping[str, Sequence[str]]],
        *,
        prompt_type: str | None = None,
        **task: Any,
    ) -> np.ndarray:
        """Encodes batches, each with its texts in "text", to `[texts, dim]`; `task` describes mteb's task."""
        del task
        texts = [text for batch in inputs for text in as_texts(batch["text"], "text")]
        if prompt_type == "query":
            return self._system.encode_questions(texts)
        if prompt_type == "document":
            return self._system.encode_responses(texts, texts)
        return self._system(texts)

    similarity = staticmethod(SentenceEncoder.similarity)
    similarity_pairwise = staticmethod(SentenceEncoder.similarity_pairwise)

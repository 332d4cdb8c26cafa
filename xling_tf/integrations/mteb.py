"""An adapter for mteb's benchmarks (Muennighoff et al. 2023, "MTEB")."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from xling_tf.client.neighbours import cosine_similarity, pairwise_similarity
from xling_tf.client.texts import as_texts
from xling_tf.evaluators.embedders import open_embedder


class MtebEncoder:
    """Implements mteb's EncoderProtocol: queries are encoded as questions, documents as answers.

    mteb imports torch, which crashes in a process with TensorFlow (2.15 and 2.21; both contain
    LLVM). So the model should run in a server; TensorFlow is imported only if an exported model is
    opened here.

    Args:
        model: `rest:URL` of a served model, or any other model that `open_embedder` opens.

    Examples:
        >>> import mteb  # doctest: +SKIP
        >>> url = "rest:http://127.0.0.1:8501/v1/models/en-es"  # doctest: +SKIP
        >>> model = MtebEncoder(url)  # doctest: +SKIP
        >>> tasks = mteb.get_tasks(["STS17"], languages=["eng", "spa"])  # doctest: +SKIP
        >>> mteb.evaluate(model, tasks)  # doctest: +SKIP
    """

    def __init__(self, model: str) -> None:
        self._embedder = open_embedder(model)

    @property
    def mteb_model_meta(self) -> Any:
        """The description of the model in mteb's results, a `ModelMeta`."""
        from mteb.models.model_meta import ModelMeta, ScoringFunction

        facts = {
            "name": f"xling_tf/{self._embedder.name}",
            "revision": self._embedder.checksum,
            "framework": ["TensorFlow"],
            "embed_dim": self._embedder(["one"]).shape[1],
            "similarity_fn_name": ScoringFunction.COSINE,
        }
        return ModelMeta.create_empty(facts)

    def encode(
        self,
        inputs: Iterable[Mapping[str, Sequence[str]]],
        *,
        prompt_type: str | None = None,
        **task: Any,
    ) -> np.ndarray:
        """Encodes batches' "text" as queries, documents or sentences: `[texts, dim]`."""
        texts = [text for batch in inputs for text in as_texts(batch["text"], "text")]
        if prompt_type == "query":
            return self._embedder.encode_questions(texts)
        if prompt_type == "document":
            return self._embedder.encode_responses(texts, texts)
        return self._embedder(texts)

    similarity = staticmethod(cosine_similarity)
    similarity_pairwise = staticmethod(pairwise_similarity)

"""An adapter for mteb's benchmarks (Muennighoff et al. 2023, "MTEB")."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, get_args

import numpy as np

from xling_tf.evaluators.embedders import open_embedder
from xling_tf.files import read_json
from xling_tf.inputs import as_texts
from xling_tf.savedmodel.saved_models import find_model, model_name, read_front_matter, require_saved_model
from xling_tf.sentence_encoder import SentenceEncoder


class MtebEncoder:
    """A model that implements mteb's EncoderProtocol; queries are encoded as questions, documents as answers.

    mteb imports torch, which crashes in a process with TensorFlow (2.15 and 2.21; both contain LLVM). So the
    model should run in a server; TensorFlow is imported only if an exported model is opened here.

    Args:
        model: `rest:URL` of a served model, or any other model that `open_embedder` opens.
        revision: Revision in the results; None: the checksum of the model.
        folder: The exported model that the server has, whose files describe it in the results.
        device: No effect; mteb passes it.

    Example:
        >>> import mteb  # doctest: +SKIP
        >>> url = "rest:http://127.0.0.1:8501/v1/models/en-es"  # doctest: +SKIP
        >>> model = MtebEncoder(url, folder="exported/en-es")  # doctest: +SKIP
        >>> mteb.evaluate(model, mteb.get_tasks(["STS17"], languages=["eng", "spa"]))  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str,
        revision: str | None = None,
        *,
        folder: str | PathLike[str] | None = None,
        device: str | None = None,
    ) -> None:
        del device
        self._embedder = open_embedder(model)
        self._revision = revision
        self._folder = folder

    @property
    def mteb_model_meta(self) -> Any:
        """The description of the model in mteb's results, a `ModelMeta`."""
        from mteb.models.model_meta import ModelMeta, ScoringFunction
        from mteb.types import Licenses

        facts: dict[str, Any] = {
            "name": f"xling_tf/{self._embedder.name}",
            "revision": self._revision or self._embedder.checksum,
            "framework": ["TensorFlow"],
            "embed_dim": self._embedder(["one"]).shape[1],
            "similarity_fn_name": ScoringFunction.COSINE,
        }
        if self._folder is not None:
            folder = find_model(self._folder)
            require_saved_model(folder)
            # Models of others have no such file.
            path = folder / "config.json"
            config = read_json(path) if path.is_file() else {}
            info, tokenizer = (config.get(part, {}) for part in ("info", "tokenizer"))
            licence, base = (
                [*read_front_matter(folder, name), None][0] for name in ("license", "base_model")
            )
            facts |= {
                "name": f"xling_tf/{model_name(self._folder)}",
                "languages": _mteb_languages(info.get("languages", ())) or None,
                "n_parameters": config.get("num_parameters"),
                "n_embedding_parameters": config.get("num_embedding_parameters"),
                "max_tokens": tokenizer.get("max_tokens"),
                "license": licence if licence in get_args(Licenses) else None,
                "open_weights": True,
                "use_instructions": bool(info.get("prompts")),
                "adapted_from": base,
            }
        return ModelMeta.create_empty(facts)

    def encode(
        self, inputs: Iterable[Mapping[str, Sequence[str]]], *, prompt_type: str | None = None, **task: Any
    ) -> np.ndarray:
        """Encodes batches with their texts in "text" as queries, documents or sentences: `[texts, dim]`."""
        del task
        texts = [text for batch in inputs for text in as_texts(batch["text"], "text")]
        if prompt_type == "query":
            return self._embedder.encode_questions(texts)
        if prompt_type == "document":
            return self._embedder.encode_responses(texts, texts)
        return self._embedder(texts)

    similarity = staticmethod(SentenceEncoder.similarity)
    similarity_pairwise = staticmethod(SentenceEncoder.similarity_pairwise)


def _mteb_languages(codes: Iterable[str]) -> list[str]:
    """Returns mteb's names, such as "eng-Latn", of those languages that it knows."""
    # Private: mteb has no public function from codes such as "en".
    from mteb.languages.iso_mappings import _hf_langs_to_iso_lang_scripts

    return _hf_langs_to_iso_lang_scripts(list(codes)) or []

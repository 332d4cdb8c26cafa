"""An adapter for mteb's benchmarks (Muennighoff et al. 2023, "MTEB"), and its tasks on local data."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.errors import UserError
from xling_tf.evaluators import data, reqa, sts
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.files import read_json
from xling_tf.inputs import as_texts
from xling_tf.savedmodel.saved_models import model_name, read_front_matter, require_saved_model, resolve
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
            folder = resolve(self._folder)
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


class _Subset(NamedTuple):
    """A data set of a task; `load` makes what mteb's task of its kind expects."""

    languages: Sequence[str]
    files: Sequence[Path]
    load: Callable[[], Any]


def local_tasks(folder: str | PathLike[str]) -> list[Any]:
    """Makes mteb tasks from a folder of evaluation data, to evaluate any of mteb's models on it.

    Scores are mteb's: Spearman's correlation of cosines; F1 of the nearest neighbours, from the first
    language to the second; nDCG at 10 of answers among sentences, which are encoded without their paragraphs.

    Args:
        folder: As `--data` of evaluation/main.py: `sts/`, `bitext/` and `reqa/`.

    Returns:
        Up to three instances of mteb's `AbsTaskSTS`, `AbsTaskBitextMining` and `AbsTaskRetrieval`, with a
        subset for each data set.

    Raises:
        UserError: The folder has none of the data.

    Example:
        >>> mteb.evaluate(mteb.get_model(name), local_tasks("data/prepared/eval"))  # doctest: +SKIP
    """
    from mteb.abstasks import AbsTaskBitextMining, AbsTaskRetrieval, AbsTaskSTS

    root = Path(folder)
    pairs = {
        dataset.name: _Subset(_languages(dataset.name), dataset.files, partial(_scored, dataset))
        for dataset in sts.SUITE.find(root, 0)
    }
    bitexts = {
        texts.name: _Subset(texts.languages, texts.files, partial(_translations, texts))
        for texts in data.find_bitexts(root)
    }
    questions = {
        f"{name}.{language}": _Subset([language], [*tables.values()], partial(_questions, tables))
        for name, languages in data.find_tables(root / "reqa").items()
        for language, tables in languages.items()
        if {"questions", "sentences"} <= tables.keys()
    }
    tasks = (
        (AbsTaskSTS, "STS", "cosine_spearman", pairs),
        (AbsTaskBitextMining, "BitextMining", "f1", bitexts),
        (AbsTaskRetrieval, "Retrieval", "ndcg_at_10", questions),
    )
    if not (local := [_task(*task) for task in tasks if task[-1]]):
        raise UserError(f"{folder} must have evaluation data: {sts.SUITE.layout}, {data.BITEXT_LAYOUT}")
    return local


def _task(base: Any, kind: str, score: str, subsets: Mapping[str, _Subset]) -> Any:
    from mteb.abstasks.task_metadata import TaskMetadata

    # mteb repeats a task whose revision differs from that of an earlier result.
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted({path for subset in subsets.values() for path in subset.files}):
        digest.update(path.read_bytes())

    class LocalTask(base):
        metadata = TaskMetadata(
            name=f"Local{kind}",
            description="Data sets of a local folder.",
            dataset={"path": "local", "revision": digest.hexdigest()},
            type=kind,
            main_score=score,
            eval_langs={name: _mteb_languages(subset.languages) for name, subset in subsets.items()},
        )

        def load_data(self, **options: Any) -> None:
            del options
            self.dataset = {name: {"test": subsets[name].load()} for name in self.hf_subsets}
            self.data_loaded = True

    return LocalTask()


def _scored(dataset: data.Dataset) -> Any:
    evaluator: Any = dataset.load()
    first, second = zip(*evaluator.pairs, strict=True)
    return _rows(sentence1=first, sentence2=second, score=evaluator.gold)


def _translations(texts: data.ParallelTexts) -> Any:
    first, second = zip(*data.without_shared_sentences(texts.read()), strict=True)
    return _rows(sentence1=first, sentence2=second)


def _questions(tables: Mapping[str, Path]) -> dict[str, Any]:
    """Candidates are the distinct sentences; all that answer a question are right."""
    questions, sentences = reqa.read_tables(tables)
    ids = {text: f"s{number}" for number, text in enumerate(dict.fromkeys(text for text, _ in sentences))}
    answers: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for _, question, answer in questions:
        answers[question][ids[answer]] = 1
    numbers = [f"q{number}" for number in range(len(answers))]
    return {
        "corpus": _rows(id=ids.values(), text=ids, title=[""] * len(ids)),
        "queries": _rows(id=numbers, text=answers),
        "relevant_docs": dict(zip(numbers, answers.values(), strict=True)),
        "top_ranked": None,
    }


def _rows(**columns: Iterable[Any]) -> Any:
    from datasets import Dataset

    return Dataset.from_dict({name: list(column) for name, column in columns.items()})


def _languages(name: str) -> list[str]:
    """Returns the languages in the name of a data set, such as "stsb.en-es.dev"."""
    match = re.search(rf"\.({LANGUAGE})(?:-({LANGUAGE}))?(?=\.|$)", name)
    return [language for language in match.groups() if language] if match else []


def _mteb_languages(codes: Iterable[str]) -> list[str]:
    """Returns mteb's names, such as "eng-Latn", of those languages that it knows."""
    # Private: mteb has no public function from codes such as "en".
    from mteb.languages.iso_mappings import _hf_langs_to_iso_lang_scripts

    return _hf_langs_to_iso_lang_scripts(list(codes)) or []

"""Retrieval question answering: is the sentence that answers a question found among all sentences?"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.squad import SQUAD_FILES
from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import Encode, System, as_system, encode_checked
from xling_tf.evaluators.ranking.lexical import bm25, bm25_protocol
from xling_tf.evaluators.ranking.metrics import (
    Ranks,
    inner_products,
    mean_reciprocal_rank,
    precision_at_1,
    relevant_ranks,
    unit_vectors,
)
from xling_tf.evaluators.ranking.reqa_files import ReqaData, Source, find_sources
from xling_tf.evaluators.ranking.reqa_pool import NEIGHBOURS, Pool

Vectors = NDArray[np.float64]

_TRIED = 8  # sentences, with and without their contexts


class _Encoders(NamedTuple):
    name: str
    questions: Callable[[list[str]], Vectors]
    candidates: Callable[[Pool], Vectors]


class _Search(NamedTuple):
    """Questions in one language to candidates in the same or another one."""

    prefix: str  # of the names of its scores
    asked: str
    searched: str
    queries: NDArray[np.int64]  # [num_queries], rows of the questions in the language asked
    sentences: list[NDArray[np.int64]]  # of each the right sentences
    paragraphs: list[NDArray[np.int64]]  # of each the right paragraphs; none where none is known


class RetrievalQuestionAnswering:
    """Precision at 1 and mean reciprocal rank of the sentence and the paragraph with the answer.

    Candidates are all sentences of all paragraphs; a paragraph is found by its best sentence (Yang
    et al. 2019, sec. 5.3, Table 6 and its footnote 17). As in the ReQA evaluation suite used there, a
    question asked of several paragraphs is one query, and every candidate with the text of one of
    its answers is right. A tie counts against the system.

    A system with encoders of its own for questions and responses is measured with those, by dot
    product, each sentence in its paragraph. Where no paragraph is known, its neighbours stand for it;
    where the system heeds it, the same is measured without. Every system is measured with sentence
    vectors of both sides, by cosine. BM25 is the baseline, of paragraphs as in Table 6 and of sentences.

    Given in several languages, the candidates of each are searched with the questions of each other
    one (sec. 5.4 and Table 7), without BM25.

    Args:
        data: Questions and sentences by language; the same question has the same key in all.
        name: What results call this evaluator.

    Raises:
        UserError: There is no question, or the languages share none; bm25s is not installed.

    Example:
        >>> from xling_tf.evaluators.ranking.reqa_files import Question, Sentence
        >>> sentences = [Sentence("I am 20.", "I am 20. Hi."), Sentence("Hi.", "I am 20. Hi.")]
        >>> question = Question("q0", "What is your age?", frozenset(["I am 20."]))
        >>> evaluator = RetrievalQuestionAnswering({"en": ReqaData([question], sentences)}, name="me")
        >>> vectors = {"I am 20.": [1, 0], "What is your age?": [2, 1], "Hi.": [0, 1]}
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> scores["sentence_encoder/sentence/precision_at_1"]
        1.0
    """

    def __init__(self, data: Mapping[str, ReqaData], *, name: str) -> None:
        self.name = name
        self._pools = {language: Pool(part.sentences) for language, part in data.items()}
        self._questions = {
            language: sorted({question.text for question in part.questions})
            for language, part in data.items()
        }
        ways = list(permutations(data, 2)) or [(only, only) for only in data]
        self._searches = [_search(way, data, self._questions, self._pools) for way in ways]
        if not all(len(search.queries) for search in self._searches):
            counts = ", ".join(f"{lang} has {len(part.questions)}" for lang, part in data.items())
            raise UserError(
                f"{name} must have questions with an answer, in every language with the same ids, but "
                f"{counts} and two languages share none; correct the data"
            )
        protocol: dict[str, Any] = {
            "qa_encoders": "dot product; each sentence in its paragraph, where none is known between its "
            f"{NEIGHBOURS} neighbours on either side in the order of the data",
            "qa_encoders_without_context": "dot product; each sentence is its own context",
            "sentence_encoder": "cosine; sentences without context",
            "paragraphs": "by their best sentence",
            "ties": "against the system",
            "sentence_splitter": f"sentencex {version('sentencex')}, where the data does not tell",
            "num_questions": sum(len(part.questions) for part in data.values()),
            "num_sentences": sum(len(part.sentences) for part in data.values()),
        }
        self._baseline: dict[str, float] = {}
        if len(data) == 1:
            protocol["bm25"] = {**bm25_protocol(), "paragraphs": "as whole documents"}
            self._baseline = self._lexical_scores(self._searches[0])
        self.protocol: Mapping[str, Any] = protocol

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Searches with every question.

        Args:
            encode: The system.

        Returns:
            "<encoders>/<unit>/precision_at_1" and "<encoders>/<unit>/mean_reciprocal_rank";
            encoders are "qa_encoders", where the system has them, "qa_encoders_without_context",
            where these heed the context, "sentence_encoder" and "bm25", units are "sentence" and,
            where the data has them, "paragraph". "num_queries", "num_candidates" and, where the data
            has them, "num_paragraphs". Of several languages all for each direction, as "<query
            language>-<candidate language>/num_queries".

        Raises:
            UserError: The system gave something else than a finite vector for each text.
        """
        scores: dict[str, float] = {}
        for encoders in _encoders(as_system(encode), next(iter(self._pools.values()))):
            questions = {lang: encoders.questions(texts) for lang, texts in self._questions.items()}
            candidates = {lang: encoders.candidates(pool) for lang, pool in self._pools.items()}
            for search in self._searches:
                queries = questions[search.asked][search.queries]
                scores |= self._scores(encoders.name, search, queries, candidates[search.searched])
        scores |= self._baseline
        for search in self._searches:
            pool = self._pools[search.searched]
            scores[f"{search.prefix}num_queries"] = float(len(search.queries))
            scores[f"{search.prefix}num_candidates"] = float(len(pool.texts))
            if search.paragraphs:
                scores[f"{search.prefix}num_paragraphs"] = float(len(pool.paragraphs))
        return scores

    def _scores(
        self, name: str, search: _Search, queries: Vectors, candidates: Vectors
    ) -> dict[str, float]:
        ranks = relevant_ranks(inner_products(queries, candidates), search.sentences)
        scores = _measures(f"{search.prefix}{name}/sentence", ranks)
        if search.paragraphs:
            best = self._pools[search.searched].best_of_paragraphs
            ranks = relevant_ranks(
                map(best, inner_products(queries, candidates)), search.paragraphs
            )
            scores |= _measures(f"{search.prefix}{name}/paragraph", ranks)
        return scores

    def _lexical_scores(self, search: _Search) -> dict[str, float]:
        questions, pool = self._questions[search.asked], self._pools[search.searched]
        texts = [questions[row] for row in search.queries]
        ranks = relevant_ranks(bm25(texts, pool.texts), search.sentences)
        scores = _measures("bm25/sentence", ranks)
        if search.paragraphs:
            ranks = relevant_ranks(bm25(texts, pool.paragraphs), search.paragraphs)
            scores |= _measures("bm25/paragraph", ranks)
        return scores


def _search(
    way: tuple[str, str],
    data: Mapping[str, ReqaData],
    texts: Mapping[str, list[str]],
    pools: Mapping[str, Pool],
) -> _Search:
    asked, searched = way
    pool = pools[searched]
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for question in data[searched].questions:
        answers[question.key] |= question.answers
    by_text: defaultdict[str, set[str]] = defaultdict(set)
    for question in data[asked].questions:
        by_text[question.text] |= answers[question.key]
    queries = [row for row, text in enumerate(texts[asked]) if by_text[text]]
    sentences = [pool.rows_of(by_text[texts[asked][row]]) for row in queries]
    # Without a context in the data, no paragraph is known.
    known = [] if "" in pool.paragraphs else sentences
    return _Search(
        prefix="" if asked == searched else f"{asked}-{searched}/",
        asked=asked,
        searched=searched,
        queries=np.array(queries, np.int64),
        sentences=sentences,
        paragraphs=[pool.paragraphs_of(rows) for rows in known],
    )


def _encoders(system: System, pool: Pool) -> Iterator[_Encoders]:
    """How a system is measured; a few of a pool's sentences tell whether it heeds their contexts."""
    if system.questions is not None or system.responses is not None:
        yield _Encoders(
            "qa_encoders",
            lambda texts: encode_checked(system.encode_questions, texts),
            lambda pool: encode_checked(
                lambda texts: system.encode_responses(texts, pool.contexts), pool.texts
            ),
        )
        few, contexts = pool.texts[:_TRIED], pool.contexts[:_TRIED]
        with_context, without = (system.encode_responses(few, c) for c in (contexts, few))
        if not np.allclose(with_context, without, atol=1e-5):
            yield _Encoders(
                "qa_encoders_without_context",
                lambda texts: encode_checked(system.encode_questions, texts),
                lambda pool: encode_checked(
                    lambda texts: system.encode_responses(texts, texts), pool.texts
                ),
            )
    yield _Encoders(
        "sentence_encoder",
        lambda texts: unit_vectors(encode_checked(system, texts)),
        lambda pool: unit_vectors(encode_checked(system, pool.texts)),
    )


def _measures(name: str, ranks: Sequence[Ranks]) -> dict[str, float]:
    return {
        f"{name}/precision_at_1": precision_at_1(ranks),
        f"{name}/mean_reciprocal_rank": mean_reciprocal_rank(ranks),
    }


def find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    """Looks for question answering data; nothing is drawn, so that the seed makes no difference."""
    sources = find_sources(folder / "reqa")
    for name, languages in sources.items():
        for language, source in languages.items():
            yield _dataset(f"{name}.{language}", {language: source})
        if len(languages) > 1:
            yield _dataset(f"cross-lingual.{name}", languages)
    for file, name in SQUAD_FILES.items():
        if name not in sources:
            yield Missing(name=f"{name}.en", expected=f"reqa/{file}, SQuAD v1.1 as published")
    if all(len(languages) < 2 for languages in sources.values()):
        yield Missing(
            name="cross-lingual.xquad",
            expected="reqa/xquad.<language>.json in two languages or more, as published",
        )


def _dataset(name: str, sources: Mapping[str, Source]) -> Dataset:
    def load() -> RetrievalQuestionAnswering:
        data = {language: source.read() for language, source in sources.items()}
        return RetrievalQuestionAnswering(data, name=name)

    files = tuple(file for source in sources.values() for file in source.files)
    return Dataset(name=name, files=files, load=load)


SUITE = Suite(
    name="reqa",
    title="Answers to a question among all sentences and paragraphs",
    source="Yang et al. 2019, sec. 5.3 and 5.4, Tables 6 and 7",
    find=find,
)

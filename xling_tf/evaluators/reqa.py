"""Retrieval question answering: is the sentence that answers a question found among all sentences?"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import islice, permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.line_files import normal_form
from xling_tf.corpora.sentences import surroundings
from xling_tf.errors import UserError, library
from xling_tf.evaluators import data
from xling_tf.evaluators.data import Dataset, Missing
from xling_tf.evaluators.encoding import Encode, System, as_system, encode_checked, encode_units
from xling_tf.evaluators.semantic_retrieval import inner_products, relevant_ranks

# Yang et al. 2019, sec. 5.3: "default parameters" of an implementation that has these, as Lucene.
_BM25 = {"method": "lucene", "k1": 1.2, "b": 0.75}
# Scripts without spaces between words: Thai, kana, Chinese characters.
_ALONE = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Marks of Indic scripts are parts of words, but not letters to `re`; the danda is a full stop.
_MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"
_TOKEN = re.compile(rf"[{_ALONE}]|(?:[^\W{_ALONE}]|[{_MARKS}])+")
_NEIGHBOURS = 2  # sentences on either side that stand for the paragraph where none is known
_TRIED = 8  # sentences, with and without their contexts
_MISSING = Missing(
    name="squad_dev.en",
    expected="reqa/<name>.<language>.{questions,sentences,paragraphs}.tsv (data/convert.py --format squad)",
)
Vectors = NDArray[np.float64]


class ReqaData(NamedTuple):
    """A data set in one language.

    Attributes:
        questions: Key, question and the text of a sentence that answers it, a row for each answer.
        sentences: The candidates, each with its paragraph; "" where that is not known.
    """

    questions: Sequence[tuple[str, str, str]]
    sentences: Sequence[tuple[str, str]]


class _Unit(NamedTuple):
    """Sentences or paragraphs: the first sentence of each, and which of them each sentence is in."""

    texts: list[str]
    firsts: NDArray[np.int64]
    places: NDArray[np.int64]


# The scores of a unit's texts, `[queries, texts]`, for a few queries at a time.
_Score = Callable[[_Unit], Iterator[NDArray[np.floating]]]


class _Pool:
    """The different questions and candidates in one language."""

    def __init__(self, part: ReqaData) -> None:
        self.part = part
        self.questions = sorted({question for _, question, _ in part.questions})
        distinct = sorted(set(part.sentences), key=lambda sentence: sentence[::-1])
        self.texts = [text for text, _ in distinct]
        around = surroundings([text for text, _ in part.sentences], _NEIGHBOURS)
        self.contexts = [context or around[text] for text, context in distinct]
        self.rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, text in enumerate(self.texts):
            self.rows[text].append(row)
        every = np.arange(len(distinct))
        self.units = {"sentence": _Unit(self.texts, every, every)}
        paragraphs = np.array([context for _, context in distinct], object)
        if "" not in paragraphs:
            texts, firsts, places = np.unique(paragraphs, return_index=True, return_inverse=True)
            self.units["paragraph"] = _Unit(list(texts), firsts, places)


class RetrievalQuestionAnswering:
    """Precision at 1 and mean reciprocal rank of the sentence and the paragraph with the answer.

    Candidates are all sentences of all paragraphs; a paragraph is found by its best sentence (Yang
    et al. 2019, sec. 5.3, Table 6 and its footnote 17). A question asked of several paragraphs is one
    query, and every candidate with the text of one of its answers is right. A tie counts against the
    system.

    Encoders of questions and responses are measured by dot product, each sentence in its paragraph or
    else between its neighbours, and without context where they heed it; sentence vectors by cosine; and
    BM25. Of several languages each is searched with the questions of each other one, without BM25 (sec.
    5.4 and Table 7).

    Args:
        parts: The data by language; the same question has the same key in all.
        name: What results call this evaluator.

    Raises:
        UserError: There is no question, or the languages share none; bm25s is not installed.

    Example:
        >>> sentences = [("I am 20.", "I am 20. Hi."), ("Hi.", "I am 20. Hi.")]
        >>> data = ReqaData([("q0", "What is your age?", "I am 20.")], sentences)
        >>> vectors = {"I am 20.": [1, 0], "What is your age?": [2, 1], "Hi.": [0, 1]}
        >>> evaluator = RetrievalQuestionAnswering({"en": data}, name="me")
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> scores["sentence_encoder/sentence/precision_at_1"]
        1.0
    """

    def __init__(self, parts: Mapping[str, ReqaData], *, name: str) -> None:
        self.name = name
        self.pairs = [row[1:] for part in parts.values() for row in part.questions]
        self._pools = {language: _Pool(part) for language, part in parts.items()}
        ways = list(permutations(parts, 2)) or [(only, only) for only in parts]
        self._right = {way: self._answers(*way) for way in ways}
        if not all(self._right.values()):
            counts = ", ".join(f"{lang} has {len(part.questions)}" for lang, part in parts.items())
            raise UserError(
                f"{name} must have questions with an answer, in every language with the same ids, but "
                f"{counts} and two languages share none; correct the data"
            )
        protocol: dict[str, Any] = {
            "qa_encoders": "dot product; each sentence in its paragraph, where none is known between its "
            f"{_NEIGHBOURS} neighbours on either side in the order of the data",
            "qa_encoders_without_context": "dot product; each sentence is its own context",
            "sentence_encoder": "cosine; sentences without context",
            "paragraphs": "by their best sentence",
            "ties": "against the system",
            "num_questions": sum(len({row[0] for row in p.questions}) for p in parts.values()),
            "num_sentences": sum(len(part.sentences) for part in parts.values()),
        }
        self._lexical: _Score | None = None
        if len(parts) == 1:
            (right,), (pool,) = self._right.values(), self._pools.values()
            asked = [pool.questions[row] for row in right]
            self._lexical = lambda unit: bm25(asked, unit.texts)
            self._baseline = _measures("bm25", pool, right, self._lexical)
            protocol["bm25"] = {
                **_BM25,
                "tokens": "case-folded runs of letters and digits; Chinese, kana and Thai by character",
                "library": f"bm25s {version('bm25s')}",
                "paragraphs": "as whole documents",
            }
        self.protocol: Mapping[str, Any] = protocol

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "<encoders>/<unit>/precision_at_1" and "<encoders>/<unit>/mean_reciprocal_rank".

        Encoders are "qa_encoders" and "qa_encoders_without_context" (where the system has them and they
        heed it), "sentence_encoder", each of them "_and_bm25", and "bm25"; units are "sentence" and, where
        known, "paragraph". Also "num_queries", "num_candidates" and "num_paragraphs". Of several languages
        all for each direction, as "<query language>-<candidate language>/num_queries".
        """
        scores: dict[str, float] = {}
        prefixes = {way: "" if len(set(way)) == 1 else f"{'-'.join(way)}/" for way in self._right}
        for name, ask, answer in _encoders(as_system(encode), next(iter(self._pools.values()))):
            questions = {lang: ask(pool.questions) for lang, pool in self._pools.items()}
            candidates = {lang: answer(pool) for lang, pool in self._pools.items()}
            for (asked, searched), right in self._right.items():
                best = partial(_best, questions[asked][list(right)], candidates[searched])
                prefix = f"{prefixes[asked, searched]}{name}"
                scores |= _measures(prefix, self._pools[searched], right, best)
                if self._lexical:
                    both = partial(_fused, best, self._lexical)
                    scores |= _measures(f"{prefix}_and_bm25", self._pools[searched], right, both)
                    scores |= self._baseline
        for way, right in self._right.items():
            scores[f"{prefixes[way]}num_queries"] = float(len(right))
            for unit, of_unit in self._pools[way[1]].units.items():
                what = "num_candidates" if unit == "sentence" else "num_paragraphs"
                scores[f"{prefixes[way]}{what}"] = float(len(of_unit.texts))
        return scores

    def _answers(self, asked: str, searched: str) -> dict[int, NDArray[np.int64]]:
        """The right sentences of each question that has some, by their rows."""
        by_key: defaultdict[str, set[int]] = defaultdict(set)
        for key, _, answer in self._pools[searched].part.questions:
            by_key[key].update(self._pools[searched].rows[answer])
        by_text: defaultdict[str, set[int]] = defaultdict(set)
        for key, question, _ in self._pools[asked].part.questions:
            by_text[question] |= by_key[key]
        rows = enumerate(by_text[text] for text in self._pools[asked].questions)
        return {row: np.array(sorted(right)) for row, right in rows if right}


def _encoders(
    system: System, pool: _Pool
) -> Iterator[tuple[str, Callable[[list[str]], Any], Callable[[_Pool], Any]]]:
    """How a system is measured; a few of a pool's sentences tell whether it heeds their contexts."""

    def responses(pool: _Pool, *, in_context: bool) -> NDArray[np.float64]:
        contexts = pool.contexts if in_context else pool.texts
        return encode_checked(lambda texts: system.encode_responses(texts, contexts), pool.texts)

    if system.questions is not None or system.responses is not None:
        ask = partial(encode_checked, system.encode_questions)
        yield "qa_encoders", ask, partial(responses, in_context=True)
        few = pool.texts[:_TRIED]
        in_context = system.encode_responses(few, pool.contexts[:_TRIED])
        if not np.allclose(in_context, system.encode_responses(few, few), atol=1e-5):
            yield "qa_encoders_without_context", ask, partial(responses, in_context=False)
    sentences = partial(encode_units, system)
    yield "sentence_encoder", sentences, lambda pool: sentences(pool.texts)


def _best(queries: Vectors, candidates: Vectors, unit: _Unit) -> Iterator[Vectors]:
    """The scores of units by their best sentence, for a few queries at a time."""
    for chunk in inner_products(queries, candidates):
        yield np.maximum.reduceat(chunk, unit.firsts, axis=1)


def _fused(semantic: _Score, lexical: _Score, unit: _Unit) -> Iterator[NDArray[np.floating]]:
    lexical_rows = lexical(unit)
    for chunk in semantic(unit):
        yield fuse(chunk, np.concatenate([*islice(lexical_rows, len(chunk))]))


def _measures(
    name: str, pool: _Pool, right: Mapping[int, NDArray[np.int64]], score: _Score
) -> dict[str, float]:
    scores = {}
    for unit, of_unit in pool.units.items():
        relevant = [np.unique(of_unit.places[rows]) for rows in right.values()]
        best = np.array([ranks[0] for ranks in relevant_ranks(score(of_unit), relevant)])
        scores[f"{name}/{unit}/precision_at_1"] = float(np.mean(best == 1))
        scores[f"{name}/{unit}/mean_reciprocal_rank"] = float(np.mean(1 / best))
    return scores


def bm25(queries: Sequence[str], documents: Sequence[str]) -> Iterator[NDArray[np.float32]]:
    """Yields the scores of all documents for each query, `[1, documents]`: the lexical baseline."""
    index = library("bm25s", "bm25s", "evaluation").BM25(**_BM25)
    index.index([tokens_of(document) for document in documents], show_progress=False)
    for query in queries:
        yield index.get_scores_from_ids(index.get_tokens_ids(tokens_of(query)))[np.newaxis]


def fuse(semantic: NDArray[np.floating], lexical: NDArray[np.floating]) -> NDArray[np.floating]:
    """Adds two scores `[queries, documents]`, each from 0 to 1 over a query's documents.

    The first counts twice as much: the convex combination of Bruch et al. 2023 ("An Analysis of Fusion
    Functions for Hybrid Retrieval"), with the share that finds most in PIAF and CMRC 2018 of 1/2, 2/3, 4/5.

    Example:
        >>> fuse(np.array([[0.0, 0.5, 1.0]]), np.array([[9.0, 3.0, 0.0]])).round(2)
        array([[0.33, 0.44, 0.67]])
    """
    parts = []
    for scores in (semantic, lexical):
        lowest, highest = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
        # Of a question without a word that is in the documents all are 0.
        parts.append((scores - lowest) / np.where(highest > lowest, highest - lowest, 1))
    return (2 * parts[0] + parts[1]) / 3


def tokens_of(text: str) -> list[str]:
    """Tokenises a text: runs of letters and digits, without case; Chinese, kana and Thai by character."""
    return _TOKEN.findall(normal_form(text).casefold())


def read_tables(tables: Mapping[str, Path]) -> ReqaData:
    """Reads the tables "questions", "sentences" and, where sentences have one, "paragraphs".

    Their columns are question_id (optional), question, answer_sentence_id; sentence_id, sentence,
    paragraph_id (optional); paragraph_id, context.
    """
    key = "question_id" if "question_id" in data.header_of(tables["questions"]) else "question"
    questions = data.read_table(tables["questions"], (key, "question", "answer_sentence_id"))
    columns, contexts = ["sentence_id", "sentence"], {"": ""}
    try:
        if "paragraph_id" in data.header_of(tables["sentences"]):
            columns.append("paragraph_id")
            rows = data.read_table(tables["paragraphs"], ("paragraph_id", "context"))
            contexts |= {row[0]: row[1] for row in rows}
        rows = data.read_table(tables["sentences"], columns)
        sentences = {row[0]: (row[1], contexts["".join(row[2:])]) for row in rows}
        answered = [(key, text, sentences[answer][0]) for key, text, answer in questions]
        return ReqaData(answered, list(sentences.values()))
    except KeyError as error:
        raise UserError(
            f"{tables['questions']} must have tables of sentences and paragraphs beside it in which are "
            f"the ids that it names, but {str(error)[:80]} is not there; correct the data"
        ) from None


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    sets: dict[str, data.Tables] = {}
    for name, languages in data.find_tables(folder / "reqa").items():
        asked = {code: tables for code, tables in languages.items() if "questions" in tables}
        sets |= {f"{name}.{code}": {code: tables} for code, tables in asked.items()}
        if len(asked) > 1:
            sets[f"cross-lingual.{name}"] = asked
    for name, parts in sets.items():
        files = tuple(path for tables in parts.values() for path in tables.values())
        yield Dataset(name=name, files=files, load=partial(_load, name, parts))
    if not sets:
        yield _MISSING


def _load(name: str, parts: data.Tables) -> RetrievalQuestionAnswering:
    read = {language: read_tables(tables) for language, tables in parts.items()}
    return RetrievalQuestionAnswering(read, name=name)


SUITE = data.Suite(
    name="reqa",
    title="Answers to a question among all sentences and paragraphs",
    source="Yang et al. 2019, sec. 5.3 and 5.4, Tables 6 and 7",
    find=_find,
)

"""Retrieval question answering: finds the sentence that answers a question among all sentences."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_tf.client.texts import is_blank
from xling_tf.corpora.line_files import UNSPACED
from xling_tf.corpora.sentences import surroundings
from xling_tf.errors import UserError, as_user_error, library
from xling_tf.evaluators import data
from xling_tf.evaluators.encoding import (
    Array,
    Embedder,
    Encode,
    as_embedder,
    encode_checked,
    encode_units,
)
from xling_tf.evaluators.ranking import directions, inner_products, relevant_ranks

# Marks of Indic scripts are parts of words, but no letters for `re`; the danda is a full stop.
_MARKS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"
_TOKEN = re.compile(rf"[{UNSPACED}]|(?:[^\W{UNSPACED}]|[{_MARKS}])+")
LAYOUT = (
    "reqa/<name>.<language>.{questions,sentences,paragraphs}.tsv "
    "(xling-tf prepare evaluation squad)"
)
_NEIGHBOURS = 2  # sentences on either side, which are the context if no paragraph is known


class ReqaData(NamedTuple):
    """A data set in one language."""

    questions: Sequence[tuple[str, str, str]]  # key, question, text of a sentence that answers it
    # The candidates, each with its paragraph; "" if that is not known.
    sentences: Sequence[tuple[str, str]]


class Unit(NamedTuple):
    """Sentences or paragraphs to find: texts, the first sentence of each, each sentence's unit."""

    texts: list[str]
    firsts: Array
    places: Array


_Score = Callable[[Unit], Iterable[Array]]  # yields each query's scores of a unit's texts


class _Pool:
    """The distinct questions and candidates in one language."""

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
        self.units = {"sentence": Unit(self.texts, every, every)}
        paragraphs = np.array([context for _, context in distinct], object)
        if "" not in paragraphs:
            texts, firsts, places = np.unique(paragraphs, return_index=True, return_inverse=True)
            self.units["paragraph"] = Unit(list(texts), firsts, places)


class RetrievalQuestionAnswering:
    """Precision at 1 and mean reciprocal rank of the sentence and the paragraph with the answer.

    Candidates are all sentences of all paragraphs; a paragraph has the score of its best sentence
    (Yang et al. 2019, sec. 5.3, Table 6 and its footnote 17). The same question about several
    paragraphs is one query, and every candidate with the text of one of its answers is right. Ties
    count as errors.

    Encoders of questions and responses are scored by dot product, with each sentence's paragraph,
    or else its neighbours, as its context; sentence vectors by cosine; and BM25. With several
    languages, each is searched with the questions of each other language, which have the same keys,
    without BM25 (sec. 5.4 and Table 7).
    """

    def __init__(self, parts: Mapping[str, ReqaData], *, name: str) -> None:
        self.name = name
        self.pairs = [row[1:] for part in parts.values() for row in part.questions]
        self._pools = {language: _Pool(part) for language, part in parts.items()}
        self._right = {direction: self._answers(*direction) for direction in directions(parts)}
        if not all(self._right.values()):
            counts = {language: len(part.questions) for language, part in parts.items()}
            raise UserError(f"{name} must have questions with answers and the same ids: {counts}")
        self._has_bm25 = len(parts) == 1
        self.protocol: Mapping[str, Any] = {"bm25s": version("bm25s") if self._has_bm25 else None}

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "<encoders>/<unit>/precision_at_1" and "<encoders>/<unit>/mean_reciprocal_rank".

        Encoders are "qa_encoders" (if the embedder has them), "sentence_encoder", both also with
        "_and_bm25", "bm25" and "bm25_of_paper" (see `bm25`); units are "sentence" and, if known,
        "paragraph". With several languages, all for each direction: "<query language>-<candidate
        language>/...".
        """
        scores: dict[str, float] = {}
        encoded = {code: _encoded(as_embedder(encode), pool) for code, pool in self._pools.items()}
        for (source, target), prefix in directions(self._pools).items():
            pool, right = self._pools[target], self._right[source, target]
            texts = [self._pools[source].questions[row] for row in right]
            systems: dict[str, _Score] = {}
            for name, (_, candidates) in encoded[target].items():
                systems[name] = partial(_best, encoded[source][name][0][list(right)], candidates)
                if self._has_bm25:
                    systems[f"{name}_and_bm25"] = partial(
                        _fused, systems[name], partial(bm25, texts)
                    )
            if self._has_bm25:
                systems["bm25"] = partial(bm25, texts)
                systems["bm25_of_paper"] = partial(bm25, texts, negative_weights=True)
            for kind, unit in pool.units.items():
                relevant = [np.unique(unit.places[rows]) for rows in right.values()]
                for name, score in systems.items():
                    best = np.array([ranks[0] for ranks in relevant_ranks(score(unit), relevant)])
                    scores[f"{prefix}{name}/{kind}/precision_at_1"] = float(np.mean(best == 1))
                    scores[f"{prefix}{name}/{kind}/mean_reciprocal_rank"] = float(np.mean(1 / best))
                scores[f"{prefix}num_{kind}s"] = float(len(unit.texts))
            scores[f"{prefix}num_queries"] = float(len(right))
        return scores

    def _answers(self, source: str, target: str) -> dict[int, Array]:
        """The rows of the right sentences of each question that has some."""
        by_key: defaultdict[str, set[int]] = defaultdict(set)
        for key, _, answer in self._pools[target].part.questions:
            by_key[key].update(self._pools[target].rows[answer])
        by_text: defaultdict[str, set[int]] = defaultdict(set)
        for key, question, _ in self._pools[source].part.questions:
            by_text[question] |= by_key[key]
        rows = enumerate(by_text[text] for text in self._pools[source].questions)
        return {row: np.array(sorted(right)) for row, right in rows if right}


def _encoded(embedder: Embedder, pool: _Pool) -> dict[str, tuple[Array, Array]]:
    """The vectors of a pool's questions and candidates, by the name of their encoders."""
    vectors = {}
    if embedder.questions or embedder.responses:
        questions = encode_checked(embedder.encode_questions, pool.questions)
        answers = encode_checked(embedder.encode_responses, pool.texts, pool.contexts)
        vectors["qa_encoders"] = questions, answers
    vectors["sentence_encoder"] = (
        encode_units(embedder, pool.questions),
        encode_units(embedder, pool.texts),
    )
    return vectors


def _best(queries: Array, candidates: Array, unit: Unit) -> Iterator[Array]:
    """Yields the scores of each unit's best sentence."""
    return (np.maximum.reduceat(row, unit.firsts) for row in inner_products(queries, candidates))


def _fused(semantic: _Score, lexical: _Score, unit: Unit) -> Iterator[Array]:
    """Yields the sums of two scores of a query's documents, each scaled to 0 to 1 over these.

    The first counts twice as much: the convex combination of Bruch et al. 2023 ("An Analysis of
    Fusion Functions for Hybrid Retrieval"); of the shares 1/2, 2/3 and 4/5, 2/3 finds most in PIAF
    and CMRC 2018.
    """
    for pair in zip(semantic(unit), lexical(unit), strict=True):
        # The scores are all 0 if a question shares no word with the documents.
        first, second = ((scores - scores.min()) / (np.ptp(scores) or 1) for scores in pair)
        yield (2 * first + second) / 3


def bm25(queries: Sequence[str], unit: Unit, *, negative_weights: bool = False) -> Iterator[Array]:
    """Yields the scores of a unit's texts for each query: the lexical baseline.

    With `negative_weights`, words of more than half of the texts count against a text, as in the
    implementation of Yang et al. 2019, footnote 16: log((N - n + .5) / (n + .5)), without Lucene's
    "1 +".
    """
    # Lucene's defaults, and those of the implementation that Yang et al. 2019, footnote 16, name.
    index = library("bm25s", "bm25s", "evaluation").BM25(method="lucene", k1=1.2, b=0.75)
    index.index([tokens_of(text) for text in unit.texts], show_progress=False)
    if negative_weights:
        counts = np.diff(index.scores["indptr"])
        odds = (len(unit.texts) - counts + 0.5) / (counts + 0.5)
        ratios = (np.log(odds) / np.log1p(odds)).astype(np.float32)
        index.scores["data"] = index.scores["data"] * np.repeat(ratios, counts)
    for query in queries:
        yield index.get_scores_from_ids(index.get_tokens_ids(tokens_of(query)))


def tokens_of(text: str) -> list[str]:
    """Tokenises: case-folded runs of letters and digits; Chinese, kana and Thai by character."""
    return _TOKEN.findall(unicodedata.normalize("NFC", text).casefold())


def read_tables(tables: Mapping[str, Path]) -> ReqaData:
    """Reads the tables "questions", "sentences" and, if sentences name one, "paragraphs".

    Their columns are question_id (optional), question, answer_sentence_id; sentence_id, sentence,
    paragraph_id (optional); paragraph_id, context.
    """
    columns = ("question", "answer_sentence_id", "question_id")
    questions = data.read_table(tables["questions"], columns, optional=1)
    rows = data.read_table(
        tables["sentences"], ("sentence_id", "sentence", "paragraph_id"), optional=1
    )
    names = {kind: data.stem_of(path) for kind, path in tables.items()}
    blank = {key for key, sentence, _ in rows if is_blank(sentence)}  # which answer no question
    (questions,) = data.without_blanks(names["questions"], questions, texts=slice(1))
    (rows,) = data.without_blanks(names["sentences"], rows, texts=slice(1, 2))
    questions = [row for row in questions if row[1] not in blank]
    beside = "which must be in the sentences or paragraphs beside it"
    with as_user_error(f"{tables['questions']} names {{error}}, {beside}", KeyError):
        contexts = {"": ""}
        if any(paragraph for *_, paragraph in rows):
            paragraphs = data.read_table(tables["paragraphs"], ("paragraph_id", "context"))
            contexts |= {row[0]: row[1] for row in paragraphs}
        sentences = {key: (text, contexts[paragraph]) for key, text, paragraph in rows}
        answered = [(key or text, text, sentences[answer][0]) for text, answer, key in questions]
        return ReqaData(answered, list(sentences.values()))


def _find(folder: Path, seed: int) -> Iterator[data.Dataset]:
    sets: dict[str, data.Tables] = {}
    for name, languages in data.find_tables(folder / "reqa").items():
        with_questions = {c: tables for c, tables in languages.items() if "questions" in tables}
        sets |= {f"{name}.{code}": {code: tables} for code, tables in with_questions.items()}
        if len(with_questions) > 1:
            sets[f"cross-lingual.{name}"] = with_questions

    def load(name: str) -> RetrievalQuestionAnswering:
        parts = {code: read_tables(tables) for code, tables in sets[name].items()}
        return RetrievalQuestionAnswering(parts, name=name)

    for name, parts in sets.items():
        files = tuple(path for tables in parts.values() for path in tables.values())
        yield data.Dataset(name=name, files=files, load=partial(load, name))


SUITE = data.Suite(
    name="reqa",
    title="Answers to a question among all sentences and paragraphs",
    source="Yang et al. 2019, sec. 5.3 and 5.4, Tables 6 and 7",
    layout=LAYOUT,
    find=_find,
)

"""Retrieval question answering: is the sentence that answers a question found among all sentences?"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import permutations
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.question_contexts import surroundings
from xling_tf.errors import UserError
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
_KINDS = ("paragraphs", "sentences", "questions")
_EXPECTED = dict.fromkeys(
    ("squad_dev.en", "squad_train.en", "cross-lingual.xquad"),
    "reqa/<name>.<language>.{questions,sentences,paragraphs}.tsv (data/convert.py --format squad), for "
    "cross-lingual ones in two languages or more",
)


class Sentence(NamedTuple):
    """A candidate: a sentence and the paragraph it stands in; "" where that is not known."""

    text: str
    context: str


class Question(NamedTuple):
    """A question and the text of a sentence that answers it; one with several answers comes again."""

    key: str
    text: str
    answer: str


class ReqaData(NamedTuple):
    """A data set in one language; where paragraphs are not known, sentences are in order."""

    questions: Sequence[Question]
    sentences: Sequence[Sentence]


class _Pool:
    """The different questions and candidates in one language, the latter by paragraph."""

    def __init__(self, part: ReqaData) -> None:
        self.answers = part.questions
        self.questions = sorted({question.text for question in part.questions})
        distinct = sorted(set(part.sentences), key=lambda sentence: sentence[::-1])
        self.texts = [sentence.text for sentence in distinct]
        around = surroundings([sentence.text for sentence in part.sentences], _NEIGHBOURS)
        self.contexts = [sentence.context or around[sentence.text] for sentence in distinct]
        self.paragraphs = list(dict.fromkeys(sentence.context for sentence in distinct))
        self.has_paragraphs = "" not in self.paragraphs
        place_of = {context: place for place, context in enumerate(self.paragraphs)}
        self.places = np.array([place_of[sentence.context] for sentence in distinct])
        self.rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, text in enumerate(self.texts):
            self.rows[text].append(row)


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
        parts: The data by language; the same question has the same key in all.
        name: What results call this evaluator.

    Raises:
        UserError: There is no question, or the languages share none; bm25s is not installed.

    Example:
        >>> sentences = [Sentence("I am 20.", "I am 20. Hi."), Sentence("Hi.", "I am 20. Hi.")]
        >>> data = ReqaData([Question("q0", "What is your age?", "I am 20.")], sentences)
        >>> vectors = {"I am 20.": [1, 0], "What is your age?": [2, 1], "Hi.": [0, 1]}
        >>> evaluator = RetrievalQuestionAnswering({"en": data}, name="me")
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> scores["sentence_encoder/sentence/precision_at_1"]
        1.0
    """

    def __init__(self, parts: Mapping[str, ReqaData], *, name: str) -> None:
        self.name = name
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
            "num_questions": sum(len({q.key for q in part.questions}) for part in parts.values()),
            "num_sentences": sum(len(part.sentences) for part in parts.values()),
        }
        self._baseline: dict[str, float] = {}
        if len(parts) == 1:
            (right,), (pool,) = self._right.values(), self._pools.values()
            texts = [pool.questions[row] for row in right]
            chunks = bm25(texts, pool.texts), bm25(texts, pool.paragraphs)
            self._baseline = _measures("bm25", pool, right.values(), *chunks)
            protocol["bm25"] = {
                **_BM25,
                "tokens": "case-folded runs of letters and digits; Chinese, kana and Thai by character",
                "library": f"bm25s {version('bm25s')}",
                "paragraphs": "as whole documents",
            }
        self.protocol: Mapping[str, Any] = protocol

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "<encoders>/<unit>/precision_at_1" and "<encoders>/<unit>/mean_reciprocal_rank".

        Encoders are "qa_encoders", where the system has them, "qa_encoders_without_context", where these
        heed the context, "sentence_encoder" and "bm25"; units are "sentence" and, where the data has
        them, "paragraph". Also "num_queries", "num_candidates" and "num_paragraphs". Of several languages
        all for each direction, as "<query language>-<candidate language>/num_queries".

        Raises:
            UserError: The system gave something else than a finite vector for each text.
        """
        scores: dict[str, float] = {}
        prefixes = {way: "" if len(set(way)) == 1 else f"{'-'.join(way)}/" for way in self._right}
        for name, ask, answer in _encoders(as_system(encode), next(iter(self._pools.values()))):
            questions = {lang: ask(pool.questions) for lang, pool in self._pools.items()}
            candidates = {lang: answer(pool) for lang, pool in self._pools.items()}
            for (asked, searched), right in self._right.items():
                pool, vectors = self._pools[searched], questions[asked][list(right)]
                starts = np.unique(pool.places, return_index=True)[1]
                sentences, again = (
                    inner_products(vectors, candidates[searched])
                    for _ in ("sentences", "paragraphs")
                )
                paragraphs = (np.maximum.reduceat(chunk, starts, axis=1) for chunk in again)
                prefix = f"{prefixes[asked, searched]}{name}"
                scores |= _measures(prefix, pool, right.values(), sentences, paragraphs)
        scores |= self._baseline
        for way, right in self._right.items():
            prefix, pool = prefixes[way], self._pools[way[1]]
            scores[f"{prefix}num_queries"] = float(len(right))
            scores[f"{prefix}num_candidates"] = float(len(pool.texts))
            if pool.has_paragraphs:
                scores[f"{prefix}num_paragraphs"] = float(len(pool.paragraphs))
        return scores

    def _answers(self, asked: str, searched: str) -> dict[int, NDArray[np.int64]]:
        """The right sentences of each question that has some, by their rows."""
        by_key: defaultdict[str, set[int]] = defaultdict(set)
        for question in self._pools[searched].answers:
            by_key[question.key].update(self._pools[searched].rows[question.answer])
        by_text: defaultdict[str, set[int]] = defaultdict(set)
        for question in self._pools[asked].answers:
            by_text[question.text] |= by_key[question.key]
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


def _measures(
    name: str,
    pool: _Pool,
    right: Collection[NDArray[np.int64]],
    sentences: Iterable[NDArray[np.floating]],
    paragraphs: Iterable[NDArray[np.floating]],
) -> dict[str, float]:
    """Measures queries by their right sentences and by chunks of the scores of all candidates."""
    units = {"sentence": (sentences, list(right))}
    if pool.has_paragraphs:
        units["paragraph"] = (paragraphs, [np.unique(pool.places[rows]) for rows in right])
    scores = {}
    for unit, (chunks, relevant) in units.items():
        best = np.array([ranks[0] for ranks in relevant_ranks(chunks, relevant)])
        scores[f"{name}/{unit}/precision_at_1"] = float(np.mean(best == 1))
        scores[f"{name}/{unit}/mean_reciprocal_rank"] = float(np.mean(1 / best))
    return scores


def bm25(queries: Iterable[str], documents: Iterable[str]) -> Iterator[NDArray[np.float32]]:
    """Yields the scores of all documents for each query, `[1, documents]`: the lexical baseline.

    Example:
        >>> next(bm25(["a fox"], ["the dog", "the fox"])).argmax(axis=1)
        array([1])
    """
    index = _bm25s().BM25(**_BM25)
    index.index([tokens_of(document) for document in documents], show_progress=False)
    for query in queries:
        yield index.get_scores_from_ids(index.get_tokens_ids(tokens_of(query)))[np.newaxis]


def tokens_of(text: str) -> list[str]:
    """Tokenises a text: runs of letters and digits, without case; Chinese, kana and Thai by character.

    Example:
        >>> tokens_of("BM25 ranks 北京!")
        ['bm25', 'ranks', '北', '京']
    """
    return _TOKEN.findall(text.casefold())


def _bm25s() -> ModuleType:
    try:
        import bm25s
    except ImportError as error:
        raise UserError(
            "the baseline of question answering is computed by bm25s, but it is not installed; "
            "install the extra with: pip install 'xling_tf[evaluation]'"
        ) from error
    return bm25s


def read_tables(folder: Path, stem: str) -> ReqaData:
    """Reads the tables of a data set: `<stem>.questions.tsv`, `<stem>.sentences.tsv`, plain or .gz.

    The first has the columns `question`, `answer_sentence_id` and perhaps `question_id`, the second
    `sentence_id`, `sentence` and perhaps `paragraph_id`, by which `<stem>.paragraphs.tsv` has the
    `context`.

    Raises:
        UserError: A table or column is missing, or an id is not there.
    """
    tables = data.tables_in(folder)
    paragraphs, sentences, questions = (
        tables.get(f"{stem}.{kind}", folder / f"{stem}.{kind}.tsv") for kind in _KINDS
    )
    columns, contexts = ["sentence_id", "sentence"], {"": ""}
    if "paragraph_id" in data.header_of(sentences):
        columns.append("paragraph_id")
        of_paragraphs = data.read_table(paragraphs, ("paragraph_id", "context"))
        contexts |= {row[0]: row[1] for row in of_paragraphs}
    key = "question_id" if "question_id" in data.header_of(questions) else "question"
    rows = data.read_table(questions, (key, "question", "answer_sentence_id"))
    try:
        by_id = {
            row[0]: Sentence(row[1], contexts["".join(row[2:])])
            for row in data.read_table(sentences, columns)
        }
        asked = [Question(key, text, by_id[answer].text) for key, text, answer in rows]
    except KeyError as error:
        raise UserError(
            f"{questions} and the tables beside it must have ids that are in the others, but "
            f"{str(error)[:80]} is not there; correct the data"
        ) from None
    return ReqaData(asked, list(by_id.values()))


def _find(folder: Path, seed: int) -> Iterable[Dataset | Missing]:
    del seed  # nothing is drawn
    folder, found = folder / "reqa", []
    tables = data.tables_in(folder)
    languages: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for table in tables:
        if match := re.fullmatch(r"(([^.]+)\.([a-z-]+))\.questions", table):
            languages[match[2]][match[3]] = match[1]

    def load(name: str, stems: Mapping[str, str]) -> RetrievalQuestionAnswering:
        parts = {language: read_tables(folder, stem) for language, stem in stems.items()}
        return RetrievalQuestionAnswering(parts, name=name)

    for name, stems in languages.items():
        sets = {stem: {language: stem} for language, stem in stems.items()}
        if len(stems) > 1:
            sets[f"cross-lingual.{name}"] = stems
        for of_set, stems_of_set in sets.items():
            names = [f"{stem}.{kind}" for stem in stems_of_set.values() for kind in _KINDS]
            files = tuple(tables[table] for table in names if table in tables)
            found.append(
                Dataset(name=of_set, files=files, load=partial(load, of_set, stems_of_set))
            )
    return [*found, *data.missing(_EXPECTED, found)]


SUITE = data.Suite(
    name="reqa",
    title="Answers to a question among all sentences and paragraphs",
    source="Yang et al. 2019, sec. 5.3 and 5.4, Tables 6 and 7",
    find=_find,
)

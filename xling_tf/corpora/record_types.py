"""The table of record types. A new type is one row: folder, store, split and messages use it."""

from xling_tf.config import Registry
from xling_tf.corpora import questions, readers, records
from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.corpora.records import FileLayout, RecordType

_ONE = rf"(?P<name>[^.].*)\.(?P<source>{LANGUAGE})"
_PAIR = rf"{_ONE}-(?P<target>{LANGUAGE})"
_SPLIT = r"(?P<split>train|dev(?:_(?:mis)?matched)?|test)"
_SNLI = rf"(?P<name>(?:snli|multinli)_1\.0)_{_SPLIT}"
_SNLI_FOLDERS = (".", "nli", "snli_1.0", "multinli_1.0")
# Conversations whose name says that they are questions and answers from documents.
_QUESTION_SENTENCE = _ONE.replace(".*)", ".*_question_sentence)")
_QUESTION_PASSAGE = _ONE.replace(".*)", ".*_question_passage)")

_TYPES = (
    RecordType(
        name="parallel",
        description="translations",
        record=records.TranslationPair,
        layouts=(FileLayout(("parallel",), _PAIR, readers.read_parallel),),
        template="NAME.{source}-{target}.tsv",
        split_by="source",
        hidden=("source", "target"),
        is_bilingual=True,
    ),
    RecordType(
        name="documents",
        description="documents",
        record=records.SentenceTriplet,
        layouts=(FileLayout(("documents",), _ONE, readers.read_documents, "txt"),),
        template="NAME.{source}.txt",
        split_by=None,
    ),
    RecordType(
        name="conversations",
        description="conversations",
        record=records.ResponsePair,
        layouts=(FileLayout(("conversations",), _ONE, readers.read_conversations),),
        split_by="message",
        # A reply is the next message of a dialogue. If messages were hidden as well, a fifth of
        # the conversations would leave training.
        hidden=("response",),
    ),
    RecordType(
        name="nli",
        description="NLI data",
        record=records.InferencePair,
        layouts=(
            FileLayout(("nli",), rf"{_ONE}\.{_SPLIT}", readers.read_nli),
            FileLayout(_SNLI_FOLDERS, _SNLI, readers.read_snli, "jsonl"),
        ),
        template="NAME.{source}.train.tsv",
        split_by="premise",
    ),
    RecordType(
        name="questions",
        description="questions with answers",
        record=records.QuestionAnswer,
        layouts=(
            FileLayout(("questions",), _ONE, questions.read_questions),
            FileLayout(("questions",), _ONE, questions.read_squad, "json"),
            # The other published file, dev-v1.1.json, is for evaluation.
            FileLayout((".", "questions"), r"(?P<name>train-v1\.1)", questions.read_squad, "json"),
            FileLayout(("conversations",), _QUESTION_SENTENCE, questions.read_question_sentences),
            FileLayout(("conversations",), _QUESTION_PASSAGE, questions.read_questions),
        ),
        # All questions to a paragraph are in the same part.
        split_by="context",
        hidden=("answer",),
        num_contexts=1,
    ),
    RecordType(
        name="similarity",
        description="scored pairs",
        record=records.SimilarityPair,
        layouts=(
            FileLayout(("similarity",), _ONE, readers.read_similarity),
            # The training parts of evaluation sets.
            FileLayout(("eval/sts",), rf"{_ONE}\.train", readers.read_similarity),
            FileLayout(("eval/senteval",), r"(?P<name>SICK)\.train", readers.read_similarity),
        ),
        split_by="first",
        hidden=("first", "second"),
        is_symmetric=True,
    ),
)
RECORD_TYPES = Registry("record", "a corpus's type", {kind.name: kind for kind in _TYPES})

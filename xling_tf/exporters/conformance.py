"""conformance.json: what an average of words makes of 500 texts, for clients in any language."""

import json
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.texts import encodable
from xling_tf.client.word_averages import WordAverages
from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.files import replacing

_TEXTS = 500
_SHOWN = 16  # numbers of a vector
_DIGITS = 7  # after the point
_QUERIES, _HITS = 20, 5
# Hits are in the file if their scores are further apart than float32 is exact.
_MIN_GAP = 1e-5
_ABOUT = (
    "Each text has its words; their rows in vocabulary.txt, -1 for a word that is not there; and "
    "every step-th number of its unit vector, from the first. Texts without a visible character "
    "have zeros. ngrams are the rows of the n-grams of words outside the vocabulary. Searches have "
    "the numbers of texts whose vectors have the largest dot products with that of the text query, "
    "and these products. Numbers of vectors and products may differ by tolerance."
)
# What rules look at, and what splits or joins words.
_VISIBLE = """don't DON'T he's IT'Sſ 'ſ l'eau 'quoted' ’tis пʼять ʼ `` " «no» U.S. x.y 1,234
    1,2,3 10:30 ٣,٤ ½ ... .... … -- - _ . ' , : hola HOLA ΣΑΣ İI ß é नमस्ते สวัสดี שלום مرحبا
    ａｂ 我爱北京 カー ひらがなー ー ｶﾞﾊﾟｰ 二〇一〇年 C语言3月 我a爱 ประเทศไทย2566 น้ำ เเ ะกะ
    ค.ศ. ฯลฯ ๑๒ ພາສາລາວ ວຽກ ភាសាខ្មែរ មិត្តភក្តិ ကောင်းပါ တက္ကသိုလ် 한국어 𠮷 😀 👍🏽 👩‍👩‍👧
    🇪🇸 <empty> <s> </s> <unk> ▁ ▁▁a"""
ODD_TEXTS = [
    *_VISIBLE.split(),
    "e\u0301",
    *"\0\x7f\x85\u00a0\u200b\u200d\u202e\u3000\ufeff",  # each is a text
    "\u0301\u0323e\u0323\u0301",
    "\u1112\u1161\u11ab",
    "\u304b\u3099",
    "葛\U000e0100城",
    "\u17d2\u1780\u1039",
    "x\u0e48\u0301",
    "\u212b",
    "o\u031b\u0301" * 200,
    *"\ufffd\uffff\ue000\U0010ffff\ud800",
    "x" * 600,
    "猫" * 300,
    *"\n\t ",
]


def write_conformance(folder: Path) -> None:
    """Writes `conformance.json` to the folder of an average of words: texts with their results."""
    model = WordAverages(folder)
    texts = _texts([*model.rows])
    words = model.split(texts)
    vectors = SentenceEncoder(model).encode(texts).astype(np.float64)
    step = max(1, vectors.shape[1] // _SHOWN)
    unknown = dict.fromkeys(word for some in words for word in some if word not in model.rows)
    has_ngrams = model.settings["text"]["ngrams"] is not None
    content: dict[str, Any] = {
        "about": _ABOUT,
        "tolerance": 1e-6,
        "dim": vectors.shape[1],
        "step": step,
        "texts": [
            {
                "text": text,
                "words": some,
                "rows": [model.rows.get(word, -1) for word in some],
                "vector": [round(number, _DIGITS) for number in vector[::step].tolist()],
            }
            for text, some, vector in zip(texts, words, vectors, strict=True)
        ],
        "ngrams": {word: model.ngram_rows([word])[0].tolist() for word in unknown if has_ngrams},
        "searches": [*islice(_searches(vectors), 1 + _QUERIES)],
    }
    # A line for each text; escaped, because editors and archives change some characters.
    lines = json.dumps(content).replace('{"text"', '\n{"text"').replace('{"query"', '\n{"query"')
    with replacing(folder / "conformance.json") as path:
        path.write_text(lines + "\n", encoding="ascii")


def _texts(vocabulary: Sequence[str]) -> list[str]:
    """Returns different texts: odd ones, sentences, and words of the vocabulary or none."""
    odd = [text for text in ODD_TEXTS if encodable(text) == text]  # some readers refuse others
    texts = [*odd, " ".join(odd), "".join(odd), "é " * 2_000, "a" * 5_000, "Don’t", "", " \t "]
    draw = random.Random(0)
    files = sorted((SAMPLE_FOLDER / "parallel").iterdir())
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    sentences = [*dict.fromkeys(text for line in lines for text in line.split("\t")[:2])]
    texts += draw.sample(sentences, 100)
    # Words of all the model's languages; spelt backwards, most are in no vocabulary.
    while len(texts) < 2 * _TEXTS:
        some = draw.choices(vocabulary, k=draw.randint(1, 12))
        texts.append(
            draw.choice([" ", " ", ", ", "-", ""]).join(some) + draw.choice(["", ".", "?"])
        )
        texts.append("".join(reversed(texts[-1])) if len(texts) % 4 else texts[-1].upper())
    return [*dict.fromkeys(texts)][:_TEXTS]


def _searches(vectors: np.ndarray) -> Iterator[dict[str, Any]]:
    """Yields queries with their best texts, in an order that rounding does not change."""
    is_blank = np.all(vectors == 0, axis=1)
    yield {"query": int(np.argmax(is_blank)), "hits": []}
    for query in range(len(vectors) - 1, -1, -1):  # odd texts are the last that are asked for
        scores = np.where(is_blank, -2, vectors @ vectors[query])
        best = np.argsort(-scores, kind="stable")[: _HITS + 1]
        if is_blank[query] or np.diff(-scores[best]).min() < _MIN_GAP:
            continue
        hits = [[int(row), round(float(scores[row]), _DIGITS)] for row in best[:_HITS]]
        yield {"query": query, "hits": hits}

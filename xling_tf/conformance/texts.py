"""What models are checked with: sentences, hostile strings, many texts of mixed length."""

from collections.abc import Sequence

import numpy as np

SENTENCES = (
    "Where is the station?",
    "¿Dónde está la estación?",
    "The river is wide and slow here.",
    "Der Fluss ist hier breit und langsam.",
    "Il pleut depuis ce matin.",
    "我们明天去公园。",
    "今日は図書館で本を読みます。",
    "I lost my keys, again, and my patience with them.",
)

# What servers get sooner or later; none may crash a model or give something that is no number.
HOSTILE: dict[str, str | bytes] = {
    "empty": "",
    "blanks": " \t\r\n\u00a0\u3000",
    "emoji": "👩‍👩‍👧‍👦🏽🇪🇸",
    "right to left": "مرحبا بالعالم שלום \u202eabc",
    "combining marks": "e" + "\u0301" * 500,
    "control characters": "a\x07b\x1b[0m\ufeff\uffff",
    "NUL": "a\0b\0",
    "invalid UTF-8": b"\xff\xfe hola \xc3",
    "a cut character": "señor".encode()[:3],
    "one long word": "x" * 100_000,
    "a megabyte": "the cat is sleeping. " * 49_933,
}

LONGEST = 300  # words
_VOCABULARY = """
a el the la der die das un une and y und et of de von in en dans im house casa maison Haus water
agua eau Wasser street calle rue Straße morning mañana matin Morgen children niños enfants Kinder
read leen lisent lesen bread pan pain Brot quickly rápidamente vite schnell mountain montaña
montagne Berg because porque parce weil 中文 火车 日本 新しい книга дорога مدينة kilometre's 1984 3.14
e-mail , . ; ! ? ( )
"""
_WORDS = _VOCABULARY.split()


def mixed_texts(count: int, seed: int = 0) -> list[str]:
    """Composes texts of 1 to `LONGEST` words in several languages, always the same ones.

    As many have 1 to 3 words as 10 to 30 or 100 to 300: 52 on average. A tenth of the words are
    numbers, most of which no vocabulary has.

    Args:
        count: How many.
        seed: Of the choice.

    Example:
        >>> texts = mixed_texts(3)
        >>> texts == mixed_texts(3), len(mixed_texts(500)[7].split()) <= LONGEST
        (True, True)
    """
    random = np.random.default_rng(seed)
    lengths = np.exp(random.uniform(0, np.log(LONGEST + 1), count)).astype(int)
    return [" ".join(_words(random, int(length))) for length in lengths]


def call_lists(count: int) -> list[list[str]]:
    """Composes lists of 1 to 8 sentences, no two alike: a list seen before might be remembered.

    Example:
        >>> [len(texts) for texts in call_lists(9)]
        [1, 2, 3, 4, 5, 6, 7, 8, 1]
    """
    return [
        [f"{SENTENCES[place]} {call}" for place in range(1 + call % len(SENTENCES))]
        for call in range(count)
    ]


def _words(random: np.random.Generator, length: int) -> Sequence[str]:
    numbers = random.integers(0, 10 * len(_WORDS), length)
    is_number = random.random(length) < 0.1
    return [
        str(number) if rare else _WORDS[number % len(_WORDS)]
        for number, rare in zip(numbers.tolist(), is_number.tolist(), strict=True)
    ]

"""Texts of several languages in equal numbers, in bounded memory."""

from collections.abc import Iterable, Mapping
from random import Random


def draw_balanced(
    texts_by_language: Mapping[str, Iterable[str]], count: int
) -> dict[str, list[str]]:
    """Draws the same number of texts of each language, the same ones every time.

    A language with fewer than its share gives all it has (Yang et al. 2019, sec. 3.2: "sampled from
    our training corpus and balanced across the 16 languages").

    Args:
        texts_by_language: Each language's texts, read once.
        count: Texts of all languages together, at most.

    Returns:
        To each language the texts that were drawn.

    Example:
        >>> draw_balanced({"en": ["a", "b", "c"], "es": ["d"]}, 4)
        {'en': ['c', 'b'], 'es': ['d']}
    """
    share = count // max(1, len(texts_by_language))
    return {language: _draw(texts, share) for language, texts in texts_by_language.items()}


def _draw(texts: Iterable[str], count: int) -> list[str]:
    """Draws from texts of any number (Vitter 1985, algorithm R)."""
    random, sample = Random(1), list[str]()
    for number, text in enumerate(texts):
        if number < count:
            sample.append(text)
        elif (place := random.randrange(number + 1)) < count:
            sample[place] = text
    return sample

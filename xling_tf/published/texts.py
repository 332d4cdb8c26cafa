"""Texts in the languages of the published model: messages of the programs on a Debian machine."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import polib

from xling_tf.corpora.package_text import plain_text
from xling_tf.errors import UserError
from xling_tf.published.weights import TARGETS

LOCALES = Path("/usr/share/locale")
# The folder of each language; English is what the messages of all are translated from.
_FOLDERS = {
    **{language: language for language in TARGETS},
    "pt": "pt_BR",  # most catalogues have this one
    "zh": "zh_CN",
}
# Names of countries and languages; formats, which are filled in, are no sentences either.
_NAMES = "iso_"
LONG = 5000
# In no language: what has no piece, nothing, and what looks like nothing.
SPECIAL = ("", " ", "😀😀", "🏳️‍🌈 👩‍💻")


def read_texts(locales: Path, count: int, seed: int) -> dict[str, list[str]]:
    """Draws texts from the catalogues of messages (gettext's .mo) that are installed.

    Args:
        locales: Folder with `<locale>/LC_MESSAGES/*.mo`, as `LOCALES`.
        count: Texts of each language; the last of them has `LONG` characters, and the one before that
            ends in emoji.
        seed: Of the draw.

    Returns:
        Texts by language.

    Raises:
        UserError: A language has fewer.
    """
    messages = {language: _messages(locales / folder) for language, folder in _FOLDERS.items()}
    english = {message for translations in messages.values() for message in translations}
    texts = {"en": sorted(english)} | {
        language: sorted(set(translations.values())) for language, translations in messages.items()
    }
    for language, found in texts.items():
        if len(found) < count or sum(map(len, found)) < 2 * LONG:
            raise UserError(
                f"at least {count} messages in {language!r} are expected below {locales}, but there are "
                f"{len(found)}; give a folder of Debian's catalogues (<locale>/LC_MESSAGES/*.mo)"
            )
    return {language: _draw(found, count, seed) for language, found in texts.items()}


def _messages(folder: Path) -> Mapping[str, str]:
    """English messages and their translations that read as text."""
    messages = {}
    for path in sorted((folder / "LC_MESSAGES").glob("*.mo")):
        if path.name.startswith(_NAMES):
            continue
        for entry in polib.mofile(str(path)):
            source, target = plain_text(entry.msgid), plain_text(entry.msgstr)
            if source and target and source != target and "%" not in source:
                messages[source] = target
    return messages


def _draw(texts: Sequence[str], count: int, seed: int) -> list[str]:
    drawn = random.Random(seed).sample(texts, len(texts))
    long = " ".join(drawn)[:LONG]
    return [*drawn[: count - 2], f"{drawn[count - 2]} 🎉🎉", long]

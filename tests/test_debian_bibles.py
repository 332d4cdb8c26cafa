"""SWORD modules, on a module of two verses in the format's true layout."""

import struct
import zlib

from pysword.books import BibleStructure

from xling_tf.corpora.debian.sword import extract_bibles, numbered_alike, read_bible
from xling_tf.corpora.records import TranslationPair


def _write_module(folder, language, verses):
    """A zText module whose one block is the New Testament; `verses` are Matthew 1:1, 1:2, ..."""
    modules = folder / "usr/share/sword/modules/texts/ztext/x"
    modules.mkdir(parents=True)
    places = BibleStructure("kjv").ref_to_indicies(books=["Matthew"], chapters=[1])["nt"]
    block, entries = b"", [(0, 0, 0)] * (places[-1] + 1)
    for place, verse in zip(places, verses, strict=False):
        entries[place] = (0, len(block), len(verse.encode()))
        block += verse.encode()
    packed = zlib.compress(block)
    (modules / "nt.bzv").write_bytes(b"".join(struct.pack("<IIH", *entry) for entry in entries))
    (modules / "nt.bzs").write_bytes(struct.pack("<III", 0, len(packed), len(block)))
    (modules / "nt.bzz").write_bytes(packed)
    settings = folder / "usr/share/sword/mods.d/x.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f"[x]\nDataPath=./modules/texts/ztext/x/\nModDrv=zText\nVersification=KJV\nLang={language}\n"
    )


def test_bible_modules(tmp_path):
    _write_module(
        tmp_path / "en",
        "en",
        ["The <w>book</w><note>a note</note>of the birth.", "<w>Abraham</w><w>begat</w> Isaac."],
    )
    _write_module(tmp_path / "es", "es", ["Libro de la generación.", "Abraham engendró á Isaac."])
    assert read_bible(tmp_path / "en", "es") == {}
    extraction = extract_bibles([tmp_path / "en", tmp_path / "es"], "en", "es")
    assert extraction.parallel == [
        TranslationPair("The book of the birth.", "Libro de la generación."),
        TranslationPair("Abraham begat Isaac.", "Abraham engendró á Isaac."),
    ]
    assert ["Libro de la generación.", "Abraham engendró á Isaac."] in extraction.documents["es"]


def test_chapters_that_count_from_elsewhere_are_told_by_length():
    ours = {number: "x" * length for number, length in enumerate((10, 40, 20, 80, 30, 9, 50), 1)}
    assert numbered_alike(ours, dict(ours))
    assert not numbered_alike(ours, {number + 1: text for number, text in ours.items()})
    assert numbered_alike({}, {})

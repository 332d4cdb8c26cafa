"""`xling-tf align`: documents of every format, languages, pairs of folders, outputs, the page."""

import gzip
import json
import logging
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from pyarrow import parquet

from xling_tf.bulk.aligned_files import align_files, align_row
from xling_tf.corpora.document_files import (
    language_of_name,
    name_of_text,
    read_document,
    stem_and_ending,
)
from xling_tf.corpora.readers import read_parallel
from xling_tf.errors import UserError

GERMAN = [
    "Der Zug nach Bern fährt heute etwas später ab.",
    "Wir haben gestern einen sehr guten Käse gekauft.",
    "Das kleine Haus am See, in dem wir als Kinder viele Sommer waren, gehört meiner alten Tante.",
    "Im Winter liegt hier oft mehr als ein Meter Schnee.",
    "Die Kinder spielen jeden Nachmittag hinter der Schule.",
    "Morgen wollen wir auf den höchsten Berg der Gegend steigen.",
]
FRENCH = [
    "Le train pour Berne part un peu plus tard aujourd'hui.",
    "Nous avons acheté hier un très bon fromage au marché.",
    "La petite maison au lac, où nous passions nos étés d'enfants, appartient à ma vieille tante.",
    "En hiver, il y a souvent ici plus d'un mètre de neige.",
    "Les enfants jouent chaque après-midi derrière l'école.",
    "Demain, nous voulons monter sur la plus haute montagne du pays.",
]


def model(texts):
    """Adds up the vectors of the sentences that a text has, the same in both languages."""
    vectors = np.random.default_rng(0).normal(size=(len(GERMAN), 32))
    sides = [GERMAN, FRENCH]
    return np.array(
        [
            sum((vectors[n] for side in sides for n, known in enumerate(side) if known in text))
            + 1e-3 * np.ones(32)
            for text in texts
        ]
    ).reshape(-1, 32)


def write(path, texts):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def two_files(tmp_path):
    """A text of six sentences; its translation lacks the third."""
    return (
        write(tmp_path / "alps.de.txt", GERMAN),
        write(tmp_path / "alps.fr.txt", [*FRENCH[:2], *FRENCH[3:]]),
    )


EXPECTED = [*zip(GERMAN[:2], FRENCH[:2], strict=True), *zip(GERMAN[3:], FRENCH[3:], strict=True)]


def test_names_have_a_language_and_an_ending(tmp_path):
    for name, expected in {
        "novel.de.txt": ("novel", "de", ".txt"),
        "novel.pt_BR.srt.gz": ("novel", "pt_BR", ".srt"),
        "dev.fr": ("dev", "fr", ""),
        "novel.srt": ("novel", None, ".srt"),
        "guide-es.md": ("guide", "es", ".md"),
        "filters-map.html": ("filters-map", None, ".html"),
    }.items():
        path = tmp_path / "some texts" / name
        assert (name_of_text(path), language_of_name(path)) == expected[:2]
        assert stem_and_ending(path)[1] == expected[2]
    for name in ("de/novel.txt", "de/log-in.txt", "fr/novel.de.txt"):
        assert language_of_name(Path(name)) == "de"
    # The name of the file comes before that of the folder, and not every short name is a language.
    for name, language in {
        "de.txt": "de",
        "fr/de.txt": "de",
        "tmp/pt_BR.srt": "pt_BR",
        "tmp/novel.txt": None,
        "src/log.txt": None,
        "doc/guide-es.md": "es",
    }.items():
        assert language_of_name(Path(name)) == language, name


def test_lines_are_sentences_and_paragraphs_are_split(tmp_path):
    lines = write(tmp_path / "a.en.txt", ["One. Two.", "Three."])
    assert read_document(lines).texts == ["One. Two.", "Three."]
    split = write(tmp_path / "b.en.txt", ["One is here. Two is", "there.", "", "Three is gone."])
    assert read_document(split).texts == ["One is here.", "Two is there.", "Three is gone."]
    packed = tmp_path / "c.en.txt.gz"
    packed.write_bytes(gzip.compress(lines.read_bytes()))
    assert read_document(packed).texts == ["One. Two.", "Three."]
    with pytest.raises(UserError, match="has none"):
        read_document(write(tmp_path / "empty.en.txt", ["", " "]))


def test_subtitles_keep_their_times(tmp_path):
    srt = (
        "1\n00:00:01,000 --> 00:00:02,500\n<i>Good</i>\nmorning.\n\n"
        "2\n00:00:03,000 --> 00:00:04,000\n{\\an8}Bye.\n"
    )
    vtt = (
        "WEBVTT\n\nNOTE no cue\n\n00:01.000 --> 00:02.500 align:start\n<v Ana>Good morning.\n\n"
        "00:03.000 --> 00:04.000\nBye.\n"
    )
    read = []
    for name, text in (("a.en.srt", srt), ("a.en.vtt", vtt)):
        (tmp_path / name).write_text(text)
        read.append(read_document(tmp_path / name))
    assert [document.texts for document in read] == [["Good morning.", "Bye."]] * 2
    assert read[0].times == [("00:00:01.000", "00:00:02.500"), ("00:00:03.000", "00:00:04.000")]
    assert read[1].times[0] == ("00:01.000", "00:02.500")


def test_pages_and_markdown_have_their_text_alone(tmp_path):
    page = """<html><head><title>no</title><style>p {}</style></head><body><h1>A head</h1>
    <p>It is <b>very</b>
    <acronym>late</acronym><!-- no -->. We go.</p><script>no()</script>
    <ul><li>An item<li>é</ul></body></html>"""
    (tmp_path / "a.en.html").write_text(page, encoding="utf-8")
    expected = ["A head", "It is very late.", "We go.", "An item", "é"]
    assert read_document(tmp_path / "a.en.html").texts == expected
    text = "# A head\n\nIt is **very**\nlate. We go.\n\n```\nno()\n```\n\n- An item\n- é\n"
    (tmp_path / "a.en.md").write_text(text, encoding="utf-8")
    assert read_document(tmp_path / "a.en.md").texts == expected


def test_encodings_that_files_name_or_that_are_assumed(tmp_path, caplog):
    texts = ["Été à Zürich.", "L'année a été belle."]
    for encoding, warnings in (("utf-16", 0), ("utf-8-sig", 0), ("latin-1", 1)):
        caplog.clear()
        (tmp_path / "a.fr.txt").write_bytes("\r\n".join(texts).encode(encoding))
        assert read_document(tmp_path / "a.fr.txt").texts == texts
        assert caplog.text.count("Windows-1252") == warnings
    page = '<html><meta charset="windows-1250"><p>Žluťoučký kůň.</p></html>'
    (tmp_path / "a.cs.html").write_bytes(page.encode("cp1250"))
    assert read_document(tmp_path / "a.cs.html").texts == ["Žluťoučký kůň."]
    (tmp_path / "a.fr.txt").write_bytes(b"\xff\0\x81")
    with pytest.raises(UserError, match="UTF-8"):
        read_document(tmp_path / "a.fr.txt")


def write_book(path, chapters, spine="cb"):
    container = '<container xmlns="urn:c"><rootfiles><rootfile full-path="a/b.opf"/></rootfiles>'
    items = "".join(f'<item id="{n}" href="text%20{n}.xhtml"/>' for n in chapters)
    refs = "".join(f'<itemref idref="{n}"/>' for n in spine)
    package = f'<package xmlns="urn:p"><manifest>{items}</manifest><spine>{refs}</spine></package>'
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("META-INF/container.xml", container + "</container>")
        book.writestr("a/b.opf", package)
        for name, body in chapters.items():
            head = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>'
            book.writestr(f"a/text {name}.xhtml", f"{head}<body>{body}</body></html>")
    return path


def test_books_are_read_in_the_order_of_their_spine(tmp_path):
    chapters = {"b": "<p>Then <i>it</i> ended.</p>", "c": "<h1>One</h1><p>It&#160;began. Well.</p>"}
    book = write_book(tmp_path / "a.en.epub", chapters)
    assert read_document(book).texts == ["One", "It began.", "Well.", "Then it ended."]
    with pytest.raises(UserError, match="cannot be read as EPUB"):
        read_document(write_book(tmp_path / "b.en.epub", chapters, spine="cd"))
    with pytest.raises(UserError, match="cannot be read as EPUB"):
        read_document(write(tmp_path / "c.en.epub", ["no archive"]))


def test_catalogues_have_their_translations_alone(tmp_path):
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    message = 'msgid "Open the file."\nmsgstr "Abre el archivo."\n\nmsgid "Quit."\nmsgstr ""\n'
    write(tmp_path / "a.es.po", [header + message])
    assert read_document(tmp_path / "a.es.po").texts == ["Abre el archivo."]
    write(tmp_path / "a.en.po", [header + message.replace("Abre el archivo.", "")])
    assert read_document(tmp_path / "a.en.po").texts == ["Open the file.", "Quit."]
    write(tmp_path / "b.en.po", ["no catalogue"])
    with pytest.raises(UserError, match="cannot be read as PO"):
        read_document(tmp_path / "b.en.po")


@pytest.mark.parametrize(
    "units",
    [
        '<trans-unit id="1"><source>Open <ph id="1">&lt;b&gt;</ph>it.</source>'
        "<target>Abre<g>lo.</g></target><alt-trans><target>no</target></alt-trans></trans-unit>",
        '<unit id="1"><segment><source>Open <ph id="1"/>it.</source><target>Abrelo.</target>'
        "</segment></unit>",
    ],
)
def test_xliff_has_its_translations_or_its_sources(tmp_path, units):
    text = f'<xliff xmlns="urn:oasis:names:tc:xliff"><file>{units}</file></xliff>'
    write(tmp_path / "a.es.xlf", [text])
    assert read_document(tmp_path / "a.es.xlf").texts == ["Abrelo."]
    untranslated = re.sub("<target>.*?</target>", "", text)
    write(tmp_path / "a.en.xliff", [untranslated])
    assert read_document(tmp_path / "a.en.xliff").texts == ["Open it."]
    write(tmp_path / "b.en.xlf", ["<xliff>"])
    with pytest.raises(UserError, match="cannot be read as XLIFF"):
        read_document(tmp_path / "b.en.xlf")


def test_pairs_as_a_table_are_read_as_a_corpus(two_files, tmp_path):
    counts = align_files(lambda: model, *two_files, tmp_path / "out.tsv.gz")
    assert counts == {"texts": 1, "groups": 5, "omitted sentences": 1}
    pairs = [record[:2] for record, _ in read_parallel(tmp_path / "out.tsv.gz")]
    assert pairs == EXPECTED


def test_rows_and_scores_as_json_lines_and_parquet(two_files, tmp_path):
    for name in ("out.jsonl", "out.parquet"):
        align_files(lambda: model, *two_files, tmp_path / name)
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert 0.5 < rows[2].pop("probability") <= 1
    assert rows[2] == {
        "source": GERMAN[2],
        "source_rows": [2],
        "target": "",
        "target_rows": [],
        "score": 0.0,
    }
    assert (rows[3]["source_rows"], rows[3]["target_rows"]) == ([3], [2])
    assert rows[3]["score"] > 0.99
    columns = parquet.read_table(tmp_path / "out.parquet").drop_columns("probability")
    assert columns.to_pylist() == [
        {name: value for name, value in row.items() if name != "probability"} for row in rows
    ]


def test_groups_that_may_be_wrong_are_left_out(two_files, tmp_path):
    arguments = lambda: model, *two_files
    everything = align_files(*arguments, tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    least = sorted(row["probability"] for row in rows if row["source"] and row["target"])[1]
    page = tmp_path / "page.html"
    counts = align_files(*arguments, tmp_path / "b.tsv", review=page, min_probability=least - 1e-4)
    assert counts["groups"] == everything["groups"] - 1
    assert len((tmp_path / "b.tsv").read_text("utf-8").splitlines()) == counts["groups"] + 1
    whole = page.read_text("utf-8").split("The whole text")[1]
    assert whole.count("<li") == len(rows)


def test_a_translation_memory_is_well_formed(two_files, tmp_path):
    text = two_files[0].read_text(encoding="utf-8").replace("gekauft.", "gekauft. & <Brot>\x0c!")
    two_files[0].write_text(text, encoding="utf-8")
    align_files(lambda: model, *two_files, tmp_path / "out.tmx")
    root = ElementTree.parse(tmp_path / "out.tmx").getroot()
    assert (root.tag, root.get("version")) == ("tmx", "1.4")
    assert root.find("header").get("srclang") == "de"
    lang = "{http://www.w3.org/XML/1998/namespace}lang"
    units = [
        {variant.get(lang): variant.find("seg").text for variant in unit.iter("tuv")}
        for unit in root.iter("tu")
    ]
    assert {"de": GERMAN[0], "fr": FRENCH[0]} in units
    assert any("gekauft. & <Brot> !" in unit["de"] for unit in units)


READ_TMX = """
import json, sys
from translate.storage.tmx import tmxfile
units = tmxfile(open(sys.argv[1], "rb"), sourcelanguage="de", targetlanguage="fr").units
print(json.dumps([[str(unit.source), str(unit.target)] for unit in units]))
"""


def test_a_translation_memory_is_read_by_another_program(two_files, tmp_path):
    align_files(lambda: model, *two_files, tmp_path / "out.tmx")
    # In a process of its own, for a program of this project is called translate.py.
    command = [sys.executable, "-c", READ_TMX, str(tmp_path / "out.tmx")]
    read = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "No module named 'translate" in read.stderr:
        pytest.skip("needs: pip install translate-toolkit")
    assert json.loads(read.stdout) == [[*pair] for pair in EXPECTED]


def test_the_page_shows_both_texts_and_loads_nothing(two_files, tmp_path):
    two_files[0].write_text(
        two_files[0].read_text(encoding="utf-8").replace("ab.", "ab. <script>"), encoding="utf-8"
    )
    align_files(lambda: model, *two_files, tmp_path / "out.tsv", review=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "ab. &lt;script&gt;" in page
    assert "<script" not in page
    assert "http" not in page
    assert page.count('class="omitted"') >= 1
    doubtful, whole = page.split("The whole text")
    assert page.count("id=") == whole.count("<li")
    translated = r"<li (?!class)[^>]*><a [^>]*>(\d+)%"
    least = [int(percent) for percent in re.findall(translated, doubtful)]
    assert least == sorted(n for n in map(int, re.findall(translated, whole)) if n < 90)


def test_folders_are_matched_by_name_and_continue(tmp_path, caplog):
    for name in ("one", "two"):
        write(tmp_path / "de" / f"{name}.txt", GERMAN)
        write(tmp_path / "fr" / f"{name}.fr.txt", FRENCH)
    write(tmp_path / "fr" / "three.txt", FRENCH)
    arguments = tmp_path / "de", tmp_path / "fr", tmp_path / "out" / "*.tsv"
    with caplog.at_level(logging.WARNING):
        assert align_files(lambda: model, *arguments)["texts"] == 2
    assert "three.txt is left out" in caplog.text
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["one.tsv", "two.tsv"]
    (tmp_path / "out" / "one.tsv").unlink()
    before = (tmp_path / "out" / "two.tsv").stat().st_mtime_ns
    assert align_files(lambda: model, *arguments)["texts"] == 1
    assert (tmp_path / "out" / "two.tsv").stat().st_mtime_ns == before
    # A page that is asked for later is written for the pairs that have none.
    pages = tmp_path / "pages" / "*.html"
    assert align_files(lambda: model, *arguments, review=pages)["texts"] == 2
    assert align_files(lambda: model, *arguments, review=pages)["texts"] == 0
    with pytest.raises(UserError, match=r"a \* in its name"):
        align_files(lambda: model, *arguments[:2], tmp_path / "out.tsv")
    write(tmp_path / "de" / "one.md", GERMAN)
    with pytest.raises(UserError, match="have the same name"):
        align_files(lambda: model, *arguments)


def test_files_of_folders_with_equal_names_belong_together(tmp_path):
    """As "log-in" and "log-on" do, which are not two languages."""
    for language, texts in (("de", GERMAN), ("fr", FRENCH)):
        for name in ("log-in.txt", "log-on.txt", f"end.{language}.txt"):
            write(tmp_path / language / name, texts)
    align_files(lambda: model, tmp_path / "de", tmp_path / "fr", tmp_path / "out" / "*.tsv")
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["end.tsv", "log-in.tsv", "log-on.tsv"]


def test_texts_of_folders_are_aligned_at_once_with_one_model(tmp_path, monkeypatch):
    """Each waits until two are being aligned, so one after the other would never end."""
    monkeypatch.setattr("xling_tf.bulk.aligned_files.available_cpus", lambda: 2)
    for name in ("one", "two"):
        write(tmp_path / "de" / f"{name}.txt", GERMAN)
        write(tmp_path / "fr" / f"{name}.txt", FRENCH)
    models, both = [], threading.Barrier(2, timeout=60)

    def load_model():
        models.append(None)
        calls = threading.local()

        def encode(texts):
            if not getattr(calls, "has_waited", False):
                calls.has_waited = True
                both.wait()
            return model(texts)

        return encode

    states = []
    folders = tmp_path / "de", tmp_path / "fr", tmp_path / "out" / "*.tsv"
    assert align_files(load_model, *folders, report=states.append)["groups"] == 2 * len(GERMAN)
    assert len(models) == 1
    assert states == ["0 of 2 texts", "1 of 2 texts", "2 of 2 texts"]


def test_rows_of_any_engine_are_aligned_by_one_function():
    row = {"id": 7, "german": GERMAN, "fr": "\n".join([*FRENCH[:2], "", *FRENCH[3:]]) + "\n"}
    groups = [*align_row(row, model, source_column="german", target_column="fr")]
    pairs = [(group["source"], group["target"]) for group in groups if group["target"]]
    assert pairs == EXPECTED
    assert {group["id"] for group in groups} == {7}
    assert (groups[3]["source_rows"], groups[3]["target_rows"]) == ([3], [2])
    # Arrays of strings, as Ray has them; a text without sentences.
    arrays = {"id": 7, "german": np.array(GERMAN, object), "fr": np.array(row["fr"].split("\n"))}
    assert [*align_row(arrays, model, source_column="german", target_column="fr")] == groups
    assert len([*align_row({"source": GERMAN, "target": ""}, model)]) == len(GERMAN)
    with pytest.raises(UserError, match="expected the column target, but there is only id"):
        next(align_row({"id": 7, "source": []}, model))


def test_pairs_of_documents_are_aligned_by_beam():
    texts = ["The train is late.\nIt rains today.", "Der Zug hat Verspätung.\nHeute regnet es."]
    rows = [{"id": n, "source": texts[0], "target": texts[1]} for n in range(3)]
    expected = [group for row in rows for group in align_row(row, "multilingual-mini")]
    assert [group["target_rows"] for group in expected[:2]] == [[0], [1]]
    with beam.Pipeline() as pipeline:
        groups = pipeline | beam.Create(rows) | beam.FlatMap(align_row, "multilingual-mini")
        assert_that(groups, equal_to(expected))


@pytest.mark.parametrize(
    ("names", "texts", "message"),
    [
        (("a.fr.txt", "a.de.txt"), (GERMAN, FRENCH), "seem to be swapped"),
        (("a.de.txt", "b.fr.txt"), (GERMAN, GERMAN[:5]), "b.fr.txt seems to be in de"),
        (("a.txt", "b.txt"), (GERMAN, GERMAN), "are the same text"),
        (("a.de.txt", "a.fr.txt"), (GERMAN[:3], FRENCH[3:]), "may not be translations"),
    ],
)
def test_texts_that_do_not_belong_together_are_told(tmp_path, caplog, names, texts, message):
    paths = [write(tmp_path / name, side) for name, side in zip(names, texts, strict=True)]
    with caplog.at_level(logging.WARNING):
        align_files(lambda: model, *paths, tmp_path / "out.tsv")
    assert message in caplog.text


def test_wrong_files_are_told(two_files, tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        align_files(lambda: model, two_files[0], tmp_path / "no.txt", tmp_path / "out.tsv")
    with pytest.raises(UserError, match=r"`review` must end in \.html"):
        align_files(lambda: model, *two_files, tmp_path / "o.tsv", review=tmp_path / "o.tsv")
    # Before the model is loaded: None cannot be called.
    with pytest.raises(UserError, match="another file"):
        align_files(None, *two_files, tmp_path / "o.tsv", review=two_files[0] / "o.html")
    with pytest.raises(UserError, match="two files or two folders"):
        align_files(lambda: model, two_files[0], tmp_path, tmp_path / "out.tsv")
    with pytest.raises(UserError, match="must end in"):
        align_files(lambda: model, *two_files, tmp_path / "out.xlsx")
    with zipfile.ZipFile(tmp_path / "a.fr.txt", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(UserError, match="unpack"):
        align_files(lambda: model, two_files[0], tmp_path / "a.fr.txt", tmp_path / "out.tsv")

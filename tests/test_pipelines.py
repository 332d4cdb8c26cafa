"""Raw files, whole and damaged, to sharded corpora, by Beam's local runner; the program's flags."""

import bz2
import gzip
import importlib.util
import io
import json
import zipfile
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import apache_beam as beam
import pytest
import tensorflow as tf
import zstandard
from hostile_bytes import FEW, damaged, odd_json
from hypothesis import given
from hypothesis import strategies as st
from pipelines.bitext import CleanPairs, corpus_name, moses_twin, sound_pair
from pipelines.common import find_files, prepare
from pipelines.nli import Inferences, find_splits, labelled_line
from pipelines.reddit import Comment, Conversations, comment_fault, kept_comments, parse_comment
from pipelines.wikipedia import Documents, articles
from programs import ROOT, run_python
from raw_files import HEADER, comment_line, pack, page_xml, shards, snli_line

from xling_tf.errors import UserError

_SPEC = importlib.util.spec_from_file_location("data_main", ROOT / "data/main.py")
PROGRAM = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(PROGRAM)


def run(corpora: Mapping[str, beam.PTransform], output: Path, num_shards: int = 2) -> Counter[str]:
    options = PROGRAM.beam_options([])
    return prepare(corpora, output=str(output), num_shards=num_shards, options=options, settings={"a": 1})


def written(output: Path) -> list[str]:
    return sorted("".join(shards(output).values()).splitlines())


def zipped(name: str, content: bytes) -> bytes:
    """An archive of one file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def bitext(paths: list[str], *, model: str = "", min_cosine: float = 0.5) -> CleanPairs:
    return CleanPairs(paths, "en", "es", model, min_cosine)


def comment(name: str, parent: str, body: str, author: str = "ann") -> bytes:
    return comment_line(id=name, parent_id=parent, body=body, author=author) + b"\n"


def test_dumps_of_comments_become_pairs(tmp_path: Path):
    first = comment("a", "t3_s", "How are you?") + comment("b", "t1_a", "Fine,\n\nthank you.")
    second = comment("c", "t1_a", "Not so well.") + comment("d", "t1_b", "Nice.", author="A_Bot")
    zst, bz = tmp_path / "RC_2016-01.zst", tmp_path / "RC_2016-02.bz2"
    zst.write_bytes(b"".join(map(zstandard.ZstdCompressor().compress, (first, second))))
    # A reply in a later month, one to a comment that is dropped, one said twice; a bad line.
    third = (
        comment("e", "t1_b", "You are welcome.\tBye")
        + comment("f", "t1_d", "Who asked?")
        + comment("g", "t1_a", "Not so well.")
        + b'{"id": "h", "parent_id\n\n'
    )
    bz.write_bytes(bz2.compress(third))
    output = tmp_path / "out"
    paths = find_files([f"{tmp_path}/RC_2016-*"])
    counts = run({"conversations/reddit.en.tsv.gz": Conversations(paths)}, output)
    assert sorted(shards(output)) == [f"reddit.en-0000{n}-of-00002.tsv.gz" for n in (0, 1)]
    assert written(output) == [
        "Fine, thank you.\tYou are welcome. Bye",
        "How are you?\tFine, thank you.",
        "How are you?\tNot so well.",
    ]
    # 7 comments and a bad line; of the 6 that are kept, all but a are replies.
    assert counts == {
        "comments": 8,
        "comments kept": 6,
        "comments dropped: author's name has bot": 1,
        "comments dropped: not JSON with id, parent_id, author, body": 1,
        "replies": 5,
        "replies dropped: said before to the same comment": 1,
        "replies dropped: the comment they answer is not kept": 1,
        "lines written": 3,
    }
    report = json.loads((output / "preparation.json").read_text(encoding="utf-8"))
    assert report["conversations/reddit.en.tsv.gz"] == {"a": 1, "counts": dict(counts)}
    assert [path.name for path in output.iterdir() if path.name.startswith(".")] == []


def test_text_is_one_line_of_nfc_without_entities():
    expected = {
        # "e" and a combining acute are one character in NFC.
        "&gt; Cafe\u0301\tau  lait\n\nR&amp;D\u200b": "> Café au lait R&D",
        # Nothing parts columns or lines, and half a surrogate pair can still be written.
        "a\tb\rc\x0bd\x1ee\x85f\u2028g\0h": "a b c d e f g h",
        "Fine \ud83d here": "Fine ? here",
    }
    assert {body: parse_comment(comment_line(body=body)).text for body in expected} == expected


def test_comments_that_are_dropped():
    start, letters = "begins with https, @ or /r/", "70% letters or fewer"
    expected = {
        "a" * 349: None,
        "a" * 350: "350 characters or more",
        "https://example.org is it": start,
        "See https://example.org": None,
        "@ann look": start,
        "/r/pics is over there": start,
        "[deleted]": "deleted or removed",
        "[removed]": "deleted or removed",
        "": "deleted or removed",
        # 7 letters of 10 characters are 70%; 8 of 11 are 73%.
        "abcdefg 123": letters,
        "abcdefgh 123": None,
        # Spaces do not count: 4 letters of 4.
        "a b c d": None,
        "это тоже буквы": None,
    }
    assert {text: comment_fault(Comment("t1_b", "t1_a", "ann", text)) for text in expected} == expected
    assert comment_fault(Comment("t1_b", "t1_a", "RoBoTfan", "Of letters.")) == "author's name has bot"
    assert comment_fault(Comment("t1_b", "t1_a", "bo_t", "Of letters.")) is None


PAGES = (
    page_xml("Ada wrote. She counted.\n== Life ==\nShe was born."),
    page_xml(f"One. {'far too long ' * 30}. Two. Three. Four.", title="Bo"),
    page_xml("x", title="C", extra='<redirect title="Ada" />'),
    page_xml("Talk.", title="Talk:Ada", namespace=1),
    page_xml("a < b", title="D"),
    page_xml("Short.", title="E"),
)
DUMP = "".join((HEADER, *(f"  {page}\n" for page in PAGES), "</mediawiki>\n")).encode()


def test_a_dump_of_wikipedia_becomes_documents(tmp_path: Path):
    # The same articles twice: of two with one title, one stays.
    for name in ("a.xml", "b.xml"):
        (tmp_path / name).write_bytes(DUMP)
    paths = find_files([f"{tmp_path}/*.xml"])
    counts = run({"documents/wikipedia.en.txt.gz": Documents(paths, "en")}, tmp_path / "out", 1)
    (text,) = shards(tmp_path / "out").values()
    # What is too long splits the second article; "Bo" and "One." before it are only two sentences.
    documents = {"Ada\nAda wrote.\nShe counted.\nLife\nShe was born.", "Two.\nThree.\nFour."}
    assert set(text.strip().split("\n\n")) == documents
    assert text.endswith("\n\n")
    del counts["lines written"]
    assert counts == {
        "pages": 12,
        "pages dropped: redirect": 2,
        "pages dropped: no article, by its namespace": 2,
        "pages dropped: not a page in MediaWiki's XML": 2,
        "articles": 6,
        "articles dropped: nothing left": 2,
        "articles dropped: title seen before": 2,
        "sentences dropped: too long": 2,
        "sentences dropped: fewer than three in a row": 8,
        "documents": 2,
        "sentences": 8,
    }


def test_a_dump_opens_no_other_file_and_its_entities_do_not_grow(tmp_path: Path):
    (tmp_path / "secret").write_text("a secret")
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    for entity in (
        f'<!ENTITY e11 SYSTEM "file://{tmp_path / "secret"}">',
        f'<!ENTITY e0 "ha">{entities}',
    ):
        path = tmp_path / "enwiki.xml"
        header = f"<!DOCTYPE mediawiki [{entity}]>{HEADER}".replace("eswiki", "&e11;")
        path.write_text(f"{header}{page_xml('One &e11;. Two. Three.')}</mediawiki>")
        assert "secret" not in str(list(articles(str(path), "en")))


def test_bitext_is_cleaned_and_repeats_go(tmp_path: Path):
    table, moses = tmp_path / "web.en-es.tsv", tmp_path / "web.en-es.en.gz"
    table.write_bytes(
        b"The cat sleeps.\tEl gato duerme.\r\n"
        b"THE CAT  sleeps.\tEl gato duerme.\n"
        b"one column\n"
        b"It is 10 past 9.\tSon las 12.\n"
        b"bad \xff bytes\tno UTF-8\n"
    )
    moses.write_bytes(gzip.compress(b"Good morning.\nA red house.\n"))
    twin = tmp_path / "web.en-es.es.gz"
    twin.write_bytes(gzip.compress("Buenos días.\nUna casa roja.\n".encode()))
    paths = find_files([f"{tmp_path}/web.*"])
    assert corpus_name(paths, "en-es") == "web"
    counts = run({"parallel/web.en-es.tsv.gz": bitext(paths)}, tmp_path / "out")
    assert [line.split("\t")[1] for line in written(tmp_path / "out")] == [
        "Una casa roja.",
        "Buenos días.",
        "El gato duerme.",
    ]
    assert counts == {
        "pairs": 7,
        "pairs dropped: duplicate": 1,
        "pairs dropped: not 2 columns": 1,
        "pairs dropped: numbers differ": 1,
        "pairs dropped: not UTF-8": 1,
        "lines written": 3,
    }


def test_pairs_below_the_lowest_cosine_are_dropped(tmp_path: Path):
    class FirstLetter(tf.Module):
        """Maps a text to (1, 0) if it begins with A, else to (0, 1)."""

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, texts: tf.Tensor) -> tf.Tensor:
            return tf.one_hot(tf.cast(tf.strings.substr(texts, 0, 1) != "A", tf.int32), 2)

    tf.saved_model.save(FirstLetter(), str(tmp_path / "model"))
    table = tmp_path / "x.tsv"
    table.write_text("A green tree.\tArbol verde alto.\nAn old house.\tUna casa vieja.\n")
    pairs = bitext([str(table)], model=str(tmp_path / "model"))
    counts = run({"parallel/x.en-es.tsv.gz": pairs}, tmp_path / "out")
    assert written(tmp_path / "out") == ["A green tree.\tArbol verde alto."]
    assert counts["pairs dropped: low cosine"] == 1


def test_nli_becomes_a_corpus_for_each_split(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "snli_1.0.zip", "w") as archive:
        archive.writestr("__MACOSX/snli_1.0/snli_1.0_train.jsonl", "junk")
        text = snli_line("neutral", "A man.", "He  sits.") + snli_line("-") + "{\n"
        archive.writestr("snli_1.0/snli_1.0_train.jsonl", text)
    (tmp_path / "multinli_1.0_dev_matched.jsonl").write_text(snli_line("entailment", "A\tdog.", "He  sits."))
    places = find_splits(find_files([f"{tmp_path}/*"]))
    counts = run({name: Inferences(place) for name, place in places.items()}, tmp_path / "out", 1)
    texts = shards(tmp_path / "out")
    assert texts == {
        "snli_1.0.en.train-00000-of-00001.tsv.gz": "neutral\tA man.\tHe sits.\n",
        "multinli_1.0.en.dev_matched-00000-of-00001.tsv.gz": "entailment\tA dog.\tHe sits.\n",
    }
    assert counts["pairs"] == 4
    assert counts["pairs dropped: no gold label"] == 1


def test_inputs_that_are_no_corpus_are_refused(tmp_path: Path):
    (tmp_path / "x.en").write_text("Good morning.\nA red house.\n")
    (tmp_path / "x.es").write_text("Buenos días.\n")
    with pytest.raises(UserError, match="1 Moses pairs dropped"):
        run({"parallel/x.en-es.tsv.gz": bitext([str(tmp_path / "x.en")])}, tmp_path / "out")
    assert moses_twin("a.en.tsv", "en", "es") is None
    with pytest.raises(UserError, match="matches none"):
        find_files([f"{tmp_path}/RC_*"])
    with pytest.raises(UserError, match="Beam"):
        PROGRAM.beam_options(["--no_such_flag"])
    train = tmp_path / "snli_1.0_train.jsonl"
    with pytest.raises(UserError, match="xnli"):
        find_splits(["xnli.jsonl"])
    with pytest.raises(UserError, match="name one of them"):
        find_splits([str(train), f"{train}.gz"])
    (tmp_path / "snli_1.0.zip").write_bytes(b"PK half")
    with pytest.raises(UserError, match="fetch it again"):
        find_splits([str(tmp_path / "snli_1.0.zip")])


def test_new_shards_replace_earlier_ones_and_nothing_kept_leaves_them(tmp_path: Path):
    table, output, name = tmp_path / "x.tsv", tmp_path / "out", "parallel/x.en-es.tsv.gz"
    table.write_text("Good morning.\tBuenos días.\n")
    for num_shards in (2, 1):
        run({name: bitext([str(table)])}, output, num_shards)
    before = shards(output)
    assert list(before) == ["x.en-es-00000-of-00001.tsv.gz"]
    table.write_text("nothing of use\n")
    with pytest.raises(UserError, match="not 2 columns"):
        run({name: bitext([str(table)])}, output, 2)
    assert shards(output) == before
    assert not list(output.glob(".*"))


@FEW
@given(data=st.data())
def test_no_line_stops_a_pipeline(data: st.DataObject):
    nli = snli_line("neutral").encode()
    for line in data.draw(st.one_of(damaged(comment_line()), odd_json(comment_line()))).split(b"\n"):
        assert all("\n" not in each.text for each in kept_comments(line))
    for line in data.draw(st.one_of(damaged(nli), odd_json(nli))).split(b"\n"):
        assert all(text.count("\t") == 2 for text in labelled_line(line))
    columns = data.draw(damaged(b"The cat sleeps.\tEl gato duerme.")).split(b"\t")
    assert len(list(sound_pair(columns, "en", "es"))) <= 1


@FEW
@given(data=st.data())
def test_of_a_dump_its_end_alone_must_be_there(data: st.DataObject, tmp_path: Path):
    path = tmp_path / "enwiki.xml"
    content = data.draw(damaged(DUMP))
    path.write_bytes(content)
    has_end = b"</mediawiki>" in content.rpartition(b"</page>")[2]
    with nullcontext() if has_end else pytest.raises(UserError, match=f"{path} must be a whole dump"):
        assert all(runs for _, runs in articles(str(path), "en"))


WORDS = [f"{first} {second}" for first in ("big", "small", "old") for second in ("cat", "dog", "fox", "hen")]
TABLE = "".join(f"There is a {word} today.\tHoy hay {word[::-1]} aquí.\n" for word in WORDS * 50).encode()
COMMENTS = b"".join(comment(f"{n}", f"t1_{n - 1}", f"There is a {w}.") for n, w in enumerate(WORDS * 50))
NLI = "".join(snli_line("neutral", f"There is a {word}.", f"It is {n}.") for n, word in enumerate(WORDS * 50))
ARTICLES = [page_xml(f"Of {n} one. Of {n} two. Of {n} three.", title=f"Article {n}") for n in range(80)]
STREAMS = [HEADER.encode(), *("".join(ARTICLES[n : n + 20]).encode() for n in (0, 20, 40, 60))]
MULTISTREAM = [*map(bz2.compress, STREAMS), bz2.compress(b"</mediawiki>")]
NLI_CORPUS = "nli/snli_1.0.en.train.tsv.gz"
# Of each input: its name, its bytes, and the corpus that is made of it.
INPUTS = {
    "x.en-es.tsv.gz": (gzip.compress(TABLE), "parallel/x.en-es.tsv.gz"),
    "x.en-es.en.xz": (pack(".xz", TABLE.replace(b"\t", b" ")), "parallel/x.en-es.tsv.gz"),
    "RC_2016-01.zst": (pack(".zst", COMMENTS), "conversations/reddit.en.tsv.gz"),
    "enwiki.xml.bz2": (b"".join(MULTISTREAM), "documents/wikipedia.en.txt.gz"),
    "snli_1.0_train.jsonl.gz": (gzip.compress(NLI.encode()), NLI_CORPUS),
    "snli_1.0.zip": (zipped("snli_1.0/snli_1.0_train.jsonl", NLI.encode()), NLI_CORPUS),
}


def corpora_of(path: Path, name: str) -> dict[str, beam.PTransform]:
    """What the program makes of an input."""
    paths = find_files([str(path)])
    if name.startswith("nli"):
        return {corpus: Inferences(place) for corpus, place in find_splits(paths).items()}
    kinds = {
        "parallel": bitext,
        "conversations": Conversations,
        "documents": partial(Documents, language="en"),
    }
    return {name: kinds[name.partition("/")[0]](paths)}


@pytest.mark.parametrize("name", INPUTS)
def test_a_cut_or_damaged_input_is_named_and_replaces_nothing(name: str, tmp_path: Path):
    content, corpus = INPUTS[name]
    path = tmp_path / name
    if ".en-es.en" in name:
        (tmp_path / "x.en-es.es.xz").write_bytes(pack(".xz", "Hay algo aquí hoy, así es.\n".encode() * 600))
    path.write_bytes(content)
    run(corpora_of(path, corpus), tmp_path / "out")
    before = shards(tmp_path / "out")
    assert sum(map(len, before.values())) > 100
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 0xFF
    wrong = [content[: len(content) * 6 // 10], bytes(flipped), b""]
    if "xml" in name:
        # Between two streams nothing but the dump's own end is missing; a stream that does not begin as one.
        wrong += [b"".join(MULTISTREAM[:3]), b"".join([*MULTISTREAM[:3], b"X" + MULTISTREAM[3][1:]])]
    for each in wrong:
        path.write_bytes(each)
        with pytest.raises(UserError, match=f"{path}.* must be a whole"):
            run(corpora_of(path, corpus), tmp_path / "out")
        assert shards(tmp_path / "out") == before
        assert not list((tmp_path / "out").glob(".*"))


def test_what_a_worker_of_another_process_raises_is_the_same_line(tmp_path: Path):
    def fail(line: str) -> str:
        raise RuntimeError(
            f"Traceback\n  xling_tf.errors.UserError: {line} is cut [while running 'Map(x)']\n\n"
        )

    with pytest.raises(UserError, match=r"^a\.gz is cut$"):
        run({"parallel/x.en-es.tsv.gz": beam.Create(["a.gz"]) | beam.Map(fail)}, tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_plain_and_packed_files_are_read_together_whatever_their_names(tmp_path: Path):
    contents = {"a.tsv": TABLE, "b.TSV.GZ": gzip.compress(TABLE), "c.tsv": pack(".zst", TABLE)}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    paths = find_files([f"{tmp_path}/*"])
    counts = run({"parallel/x.en-es.tsv.gz": bitext(paths)}, tmp_path / "out")
    assert counts["pairs"] == 1800
    (tmp_path / "d.tsv").write_bytes(zipped("x.tsv", TABLE))
    with pytest.raises(UserError, match=r"d\.tsv .*unpack it"):
        run({"parallel/x.en-es.tsv.gz": bitext([str(tmp_path / "d.tsv")])}, tmp_path / "out")
    (tmp_path / "e.tsv.gz").write_bytes(gzip.compress(b"a" * (1 << 21) + b"\n" + TABLE))
    counts = run({"parallel/x.en-es.tsv.gz": bitext([str(tmp_path / "e.tsv.gz")])}, tmp_path / "out")
    assert counts["lines dropped: longer than 1 MiB"] == 1


@pytest.mark.slow
def test_two_processes_write_the_same_lines(tmp_path: Path):
    for month in range(4):
        lines = [comment(f"{month}_{i}", f"t1_{(month + 1) % 4}_{i}", "Yes, it is.") for i in range(50)]
        (tmp_path / f"RC_2016-{month}").write_bytes(b"".join(lines))
    command = ["data/main.py", "reddit", "--input", f"{tmp_path}/RC_*", "--num_shards=3"]
    two = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    for name, flags in (("one", []), ("two", two)):
        result = run_python(ROOT, *command, f"--output={tmp_path / name}", *flags)
        assert result.status == 0, result.errors
        assert "lines written" in result.output
    assert written(tmp_path / "one") == written(tmp_path / "two")
    assert len(written(tmp_path / "one")) == 200
    cut = tmp_path / "RC_2016-4.zst"
    cut.write_bytes(pack(".zst", COMMENTS)[:-10])
    for name, flags in (("one", []), ("two", two)):
        result = run_python(ROOT, *command, f"--output={tmp_path / name}", *flags)
        assert result.status == 2
        assert result.errors.splitlines()[-1].startswith(f"error: {cut} must be a whole .zst file")
        assert len(written(tmp_path / name)) == 200
        assert not list((tmp_path / name).glob(".*"))

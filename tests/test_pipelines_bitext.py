import gzip
import json
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from xling_tf.corpora.readers import read_parallel
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError
from xling_tf.pipelines import scoring
from xling_tf.pipelines.bitext import clean_lines, extract, twin
from xling_tf.pipelines.command import run_command
from xling_tf.pipelines.common import Account, Keyed
from xling_tf.pipelines.registry import COMMANDS

GOOD = "The children are playing.\tLos niños están jugando."
OTHER = "Good morning!\t¡Buenos días!"


def extracted(path, source="en", target="es"):
    account = Account()
    records = list(extract(str(path), account, source=source, target=target))
    return [value for _, value in records], account


def write(path, content):
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_a_tsv_file_of_every_fault(tmp_path):
    lines = [GOOD, "only one column", "a\tb\tc", "Yes, it is\tyes, it is", "", f"  {OTHER}\r", GOOD]
    path = write(
        tmp_path / "x.en-es.tsv.gz", b"\xef\xbb\xbf" + "\n".join(lines).encode() + b"\n\xff\tx"
    )
    values, account = extracted(path)
    assert values == [tuple(GOOD.split("\t")), tuple(OTHER.split("\t")), tuple(GOOD.split("\t"))]
    # Eight lines: three are kept; one, three and no columns, and no UTF-8, make four.
    assert account.counts == {
        "pairs": 8,
        "pairs dropped: not 2 columns of UTF-8": 4,
        "pairs dropped: same on both sides": 1,
    }
    assert account.damaged == {}


def test_of_a_truncated_file_the_begin_is_used(tmp_path):
    numbers = (i * i * 7919 % 99_991 for i in range(9000))
    text = "".join(f"Line {n} here\tLínea {n} aquí\n" for n in numbers)
    path = tmp_path / "x.en-es.tsv.gz"
    path.write_bytes(gzip.compress(text.encode())[:-5000])
    values, account = extracted(path)
    assert len(values) > 1000
    assert values[0] == ("Line 0 here", "Línea 0 aquí")
    assert account.damaged == {str(path): f"truncated .gz after {account.counts['pairs']} pairs"}


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_moses_pair_is_read_line_by_line(tmp_path, ending):
    path = write(tmp_path / f"x.en-es.en{ending}", "Good morning!\n\nGoodbye, all!\n")
    write(tmp_path / f"x.en-es.es{ending}", "¡Buenos días!\nNada.\n¡Adiós a todos!")
    values, account = extracted(path)
    assert values == [("Good morning!", "¡Buenos días!"), ("Goodbye, all!", "¡Adiós a todos!")]
    assert account.counts == {"pairs": 3, "pairs dropped: empty": 1}


def test_of_a_moses_pair_of_two_lengths_nothing_is_used(tmp_path):
    path = write(tmp_path / "x.en", "Good morning!\nGoodbye!\n")
    write(tmp_path / "x.es", "¡Buenos días!\n")
    values, account = extracted(path)
    assert values == []
    assert account.damaged == {
        str(path): f"it has 2 lines, but {tmp_path / 'x.es'} has 1 after 0 pairs"
    }


def test_of_a_moses_pair_with_a_truncated_side_nothing_is_used(tmp_path):
    path = write(tmp_path / "x.en.gz", "Good morning!\n")
    other = tmp_path / "x.es.gz"
    other.write_bytes(gzip.compress("¡Buenos días!\n".encode())[:-9])
    values, account = extracted(path)
    assert values == []
    assert account.damaged == {str(path): f"{other} is truncated .gz after 0 pairs"}


def test_a_moses_pair_without_its_other_half(tmp_path):
    path = write(tmp_path / "x.en", "Good morning!\n")
    values, account = extracted(path)
    assert values == []
    assert "x.es is missing" in account.damaged[str(path)]


def test_only_source_sides_have_twins():
    assert twin("a.en/x.en-es.en.gz", "en", "es") == "a.en/x.en-es.es.gz"
    assert twin("x.en-es.es", "en", "es") is None
    assert twin("x.en-es.tsv.gz", "en", "es") is None


def directions(texts):
    """A model whose vectors point where the text's number of degrees says."""
    angles = np.radians([float(text.split()[-1]) for text in texts])
    return 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_pairs_below_the_lowest_cosine_are_dropped(monkeypatch):
    monkeypatch.setattr(scoring, "_loaded", lambda model: directions)
    monkeypatch.setattr(scoring, "_BATCH_PAIRS", 2)
    # Angles of 0, 30, 60, 90 and 20 degrees; cosines of 1, 0.87, 0.5, 0 and 0.94.
    angles = [(10, 10), (10, 40), (20, 80), (0, 90), (50, 70)]
    pairs = [TranslationPair(f"en {a}", f"es {b}") for a, b in angles]
    dropped = Counter()
    kept = list(scoring.well_scored(pairs, "model", 0.6, dropped))
    assert kept == [pairs[0], pairs[1], pairs[4]]
    assert dropped == {"low cosine": 2}


class Lengths(tf.Module):
    """A model whose vectors are (characters, 1)."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, texts):
        lengths = tf.cast(tf.strings.length(texts), tf.float32)
        return tf.stack([lengths, tf.ones_like(lengths)], axis=1)


def test_the_cosine_of_a_saved_model(tmp_path):
    tf.saved_model.save(Lengths(), str(tmp_path))
    pair = [TranslationPair("abc", "a")]
    # (3 * 1 + 1 * 1) / (sqrt(10) * sqrt(2)) = 0.8944
    for lowest, kept in ((0.894, pair), (0.895, [])):
        assert list(scoring.well_scored(pair, str(tmp_path), lowest, Counter())) == kept


def test_an_empty_text_has_no_direction_and_no_warning(monkeypatch):
    monkeypatch.setattr(scoring, "_loaded", lambda model: lambda texts: np.zeros((len(texts), 3)))
    assert list(scoring.well_scored([TranslationPair("a", "b")], "model", 0.1, Counter())) == []


def test_repeats_meet_and_are_counted():
    account = Account()
    records = [Keyed("", text.split("\t")) for text in (GOOD, OTHER, GOOD, GOOD.upper())]
    assert list(clean_lines(records, account, model=None, min_cosine=0.5)) == [GOOD, OTHER]
    assert account.counts == {"pairs dropped: duplicate": 1, "pairs dropped: near-duplicate": 1}


def run(tmp_path, *flags):
    command = ["bitext", "--source=en", "--target=es", f"--output={tmp_path / 'out'}", *flags]
    return run_command(COMMANDS, command)


def test_the_subcommand(tmp_path):
    write(tmp_path / "v1.2.en-es.tsv.gz", f"{GOOD}\n{OTHER}\n{GOOD}\nx\n")
    account = run(tmp_path, f"--input={tmp_path}/*.tsv.gz", "--num_shards=2")
    assert account.counts == {
        "pairs": 4,
        "pairs dropped: not 2 columns of UTF-8": 1,
        "pairs dropped: duplicate": 1,
        "lines written": 2,
    }
    files = sorted((tmp_path / "out" / "parallel").iterdir())
    names = [f"v1.2.en-es-0000{i}-of-00002.tsv.gz" for i in (0, 1)]
    assert [file.name for file in files] == names
    lines = [line for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert sorted(lines) == sorted([GOOD.encode(), OTHER.encode()])
    report = json.loads((tmp_path / "out" / "preparation.json").read_text(encoding="utf-8"))
    assert report["parallel/v1.2.en-es"]["counts"]["lines written"] == 2


def test_both_sides_of_a_moses_pair_may_match_the_input(tmp_path):
    write(tmp_path / "x.en-es.en", "Good morning!\n")
    write(tmp_path / "x.en-es.es", "¡Buenos días!\n")
    account = run(tmp_path, f"--input={tmp_path}/x.*", "--num_shards=1")
    assert account.counts == {"pairs": 1, "lines written": 1}
    path = tmp_path / "out" / "parallel" / "x.en-es-00000-of-00001.tsv.gz"
    assert list(read_parallel(path)) == [(TranslationPair("Good morning!", "¡Buenos días!"), None)]


def test_mistakes_in_the_flags(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.en-es.tsv", GOOD)
    pattern = f"--input={tmp_path}/*.tsv"
    with pytest.raises(UserError, match=r"a name is expected .* made of a, b.*--name"):
        run(tmp_path, pattern)
    with pytest.raises(UserError, match=r"--min_cosine needs a model .* --model"):
        run(tmp_path, pattern, "--min_cosine=0.5")
    with pytest.raises(UserError, match=r"nowhere.saved_model.pb is missing"):
        run(tmp_path, pattern, "--name=x", f"--model={tmp_path}/nowhere")

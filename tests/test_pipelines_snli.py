import gzip
import io
import json
import zipfile

import pytest

from xling_tf.corpora.readers import read_nli
from xling_tf.corpora.records import InferencePair
from xling_tf.errors import UserError
from xling_tf.pipelines.command import run_command
from xling_tf.pipelines.common import Account
from xling_tf.pipelines.registry import COMMANDS
from xling_tf.pipelines.snli import extract, lines


def row(label, premise="A man sleeps.", hypothesis="He dreams."):
    """A line with all fields that MultiNLI has."""
    return json.dumps(
        {
            "annotator_labels": [label],
            "genre": "fiction",
            "gold_label": label,
            "pairID": "1n",
            "promptID": "1",
            "sentence1": premise,
            "sentence1_binary_parse": "( A man )",
            "sentence1_parse": "(ROOT (NP (DT A)))",
            "sentence2": hypothesis,
            "sentence2_binary_parse": "( He )",
            "sentence2_parse": "(ROOT (NP (PRP He)))",
        }
    )


def archive(path, contents):
    """An archive as published: the files in a folder, and what macOS adds."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("multinli_1.0/README.txt", "MultiNLI")
        for name, content in contents.items():
            file.writestr(f"multinli_1.0/{name}", content)
            file.writestr(f"__MACOSX/multinli_1.0/{name}", b"\0")
            file.writestr(f"__MACOSX/multinli_1.0/._{name}", b"\0")
            file.writestr(f"multinli_1.0/{name.replace('.jsonl', '.txt')}", "gold_label\t")
    return path


def extracted(path, corpus):
    account = Account()
    return [value for _, value in extract(str(path), account, corpus=corpus)], account


def test_labels_are_kept_and_the_others_counted(tmp_path):
    path = tmp_path / "snli_1.0_dev.jsonl.gz"
    content = [
        row("neutral"),
        row("-"),
        row("-"),
        "{",
        row("entailment", " a\tb\u2028c "),
        row("x"),
    ]
    content += [row("neutral", "")]
    path.write_bytes(gzip.compress("\n".join(content).encode() + b"\n\xff\n\n"))
    values, account = extracted(path, "snli_1.0_dev")
    assert values == [
        ("neutral", "A man sleeps.", "He dreams."),
        ("entailment", "a b c", "He dreams."),
    ]
    assert account.counts == {
        "pairs": 8,
        "pairs dropped: no gold label": 2,
        "pairs dropped: not JSON with gold_label, sentence1, sentence2": 1,
        "pairs dropped: unknown label": 1,
        "pairs dropped: empty sentence": 1,
        "pairs dropped: not UTF-8": 1,
    }


def test_lines_have_the_layout_of_the_data_folder():
    account = Account()
    records = [("", ["neutral", "p", "h"]), ("", ["neutral", "q", "h"])]
    assert list(lines(records, account)) == ["neutral\tp\th", "neutral\tq\th"]
    assert account.counts == {"neutral": 2}


def test_of_a_truncated_file_the_begin_is_used(tmp_path):
    path = tmp_path / "multinli_1.0_train.jsonl.gz"
    content = "\n".join(row("neutral", f"{i * i * 7919 % 99991}") for i in range(5000))
    path.write_bytes(gzip.compress(content.encode())[:-2000])
    values, account = extracted(path, "multinli_1.0_train")
    assert len(values) > 1000
    (fault,) = account.damaged.values()
    assert fault.startswith("truncated .gz after")
    assert fault.endswith("pairs of multinli_1.0_train")


def test_a_damaged_member_of_an_archive_is_named(tmp_path):
    path = archive(tmp_path / "m.zip", {"multinli_1.0_train.jsonl": row("neutral") + "\n"})
    data = bytearray(path.read_bytes())
    # The member's bytes follow its name in the local header, the second entry of the archive.
    position = data.index(b"multinli_1.0/multinli_1.0_train.jsonl") + 37
    data[position + 20 : position + 30] = bytes(10)
    path.write_bytes(data)
    values, account = extracted(path, "multinli_1.0_train")
    assert values == []
    assert list(account.damaged) == [str(path)]


def run(tmp_path, *inputs):
    flags = [f"--output={tmp_path / 'out'}", "--num_shards=1", "--input", *map(str, inputs)]
    return run_command(COMMANDS, ["snli", *flags])


def test_the_subcommand_on_an_archive_and_a_file(tmp_path):
    contents = {
        "multinli_1.0_dev_matched.jsonl": row("entailment") + "\n" + row("-") + "\n",
        "multinli_1.0_dev_mismatched.jsonl": row("contradiction") + "\n",
    }
    path = tmp_path / "snli_1.0_test.jsonl"
    path.write_text(row("neutral"), encoding="utf-8")
    account = run(tmp_path, archive(tmp_path / "multinli_1.0.zip", contents), path)
    assert account.counts == {
        "multinli_1.0_dev_matched: pairs": 2,
        "multinli_1.0_dev_matched: pairs dropped: no gold label": 1,
        "multinli_1.0_dev_matched: entailment": 1,
        "multinli_1.0_dev_matched: lines written": 1,
        "multinli_1.0_dev_mismatched: pairs": 1,
        "multinli_1.0_dev_mismatched: contradiction": 1,
        "multinli_1.0_dev_mismatched: lines written": 1,
        "snli_1.0_test: pairs": 1,
        "snli_1.0_test: neutral": 1,
        "snli_1.0_test: lines written": 1,
    }
    files = sorted((tmp_path / "out" / "nli").iterdir())
    assert [file.name for file in files] == [
        "multinli_1.0.en.dev_matched-00000-of-00001.tsv.gz",
        "multinli_1.0.en.dev_mismatched-00000-of-00001.tsv.gz",
        "snli_1.0.en.test-00000-of-00001.tsv.gz",
    ]
    assert list(read_nli(files[0])) == [(InferencePair("A man sleeps.", "He dreams.", 0), None)]


def test_inputs_that_are_no_nli(tmp_path):
    for name, content in (("other.jsonl", b"{}"), ("other.zip", archive_of_nothing())):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"as published, such as snli_1\.0.*{name}"):
            run(tmp_path, path)


def archive_of_nothing():
    buffer = io.BytesIO()
    zipfile.ZipFile(buffer, "w").close()
    return buffer.getvalue()


def test_a_truncated_archive(tmp_path):
    path = archive(tmp_path / "m.zip", {"multinli_1.0_train.jsonl": row("neutral")})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=r"m\.zip must be a whole zip archive.* fetch it again"):
        run(tmp_path, path)


def test_one_corpus_in_two_files(tmp_path):
    content = row("neutral")
    path = tmp_path / "multinli_1.0_train.jsonl"
    path.write_text(content, encoding="utf-8")
    packed = archive(tmp_path / "m.zip", {path.name: content})
    with pytest.raises(UserError, match=r"multinli_1\.0_train must be in one file"):
        run(tmp_path, path, packed)

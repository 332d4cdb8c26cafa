import gzip
import json

import pytest

from xling_tf.corpora import snli
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.records import InferencePair
from xling_tf.corpora.store import transient_store

SNLI = [f"snli_1.0_{split}.jsonl" for split in ("dev", "test", "train")]
MULTI_NLI = [f"multinli_1.0_{split}.jsonl" for split in ("train", "dev_matched", "dev_mismatched")]


def row(label, premise="p", hypothesis="h"):
    return json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis})


def test_reads_the_three_labels_and_counts_the_rest(tmp_path):
    path = tmp_path / "snli_1.0_dev.jsonl"
    lines = [row("entailment"), row("-"), "{", "[]", row("neutral", "", "h"), row("contradiction")]
    # A combining accent written as an escape.
    lines.append(r'{"gold_label": "neutral", "sentence1": "e\u0301", "sentence2": " h "}')
    path.write_text("\n".join(lines))
    reading = snli.read_snli(path)
    assert [record for record, _ in reading] == [
        InferencePair("p", "h", 0),
        InferencePair("p", "h", 2),
        InferencePair("\u00e9", "h", 1),
    ]
    assert reading.malformed == {
        "no gold label": 1,
        "not JSON with gold_label, sentence1, sentence2": 2,
        "empty sentence": 1,
    }
    assert reading.first_lines["no gold label"] == (2,)


@pytest.mark.parametrize("place", [".", "nli", "multinli_1.0"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_multi_nli_is_read_in_place_beside_snli(tmp_path, place, ending):
    for path in ("parallel", place, "snli_1.0"):
        (tmp_path / path).mkdir(exist_ok=True)
    (tmp_path / "parallel" / "x.en-es.tsv").write_text("Hello\tHola\n")
    for i, name in enumerate(MULTI_NLI):
        content = row("neutral", f"premise {i}").encode()
        path = tmp_path / place / f"{name}{ending}"
        path.write_bytes(gzip.compress(content) if ending else content)
    for i, name in enumerate(SNLI):
        (tmp_path / "snli_1.0" / name).write_text(row("neutral", f"other premise {i}"))
    corpora = [c for c in load_folder(tmp_path, source="en", targets=["es"]) if c.kind == "nli"]
    stored = transient_store(corpora).corpora
    # `SNLI` are dev, test and train; the whole of a training file with a dev file is for training.
    trained = [record.premise for corpus in stored for record in corpus.train]
    held_out = [record.premise for corpus in stored for record in corpus.held_out]
    assert sorted(trained) == ["other premise 2", "premise 0"]
    assert sorted(held_out) == ["other premise 0", "premise 1", "premise 2"]

"""Data for natural language inference in every layout, and what the suite makes of it."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from inference_pairs import by_label, make_pairs, predicting, with_head

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.errors import UserError
from xling_tf.evaluators.classification.inference import SUITE
from xling_tf.evaluators.classification.nli_files import TWO_WAY_LABELS, read_labelled
from xling_tf.evaluators.data import Dataset, Missing


def find(folder: Path) -> tuple[dict[str, Dataset], dict[str, str]]:
    found = list(SUITE.find(folder, 0))
    datasets = {item.name: item for item in found if isinstance(item, Dataset)}
    return datasets, {item.name: item.expected for item in found if isinstance(item, Missing)}


def write_table(path: Path, pairs: Sequence[tuple[str, str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["pair_id\tlabel\tpremise\thypothesis"]
    lines += [f"{number}\t{p[2]}\t{p[0]}\t{p[1]}" for number, p in enumerate(pairs)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_snli(path: Path, pairs: Sequence[tuple[str, str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = ("sentence1", "sentence2", "gold_label")
    rows = [json.dumps(dict(zip(keys, pair, strict=True))) + "\n" for pair in pairs]
    path.write_text("".join(rows), encoding="utf-8")


def test_the_order_of_lines_makes_no_difference(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    scores = []
    for folder in ("plain", "shuffled"):
        for name, language in (("snli.en.dev", "en"), ("xnli.es.dev", "es")):
            pairs = make_pairs(40, language)
            if folder == "shuffled":
                random.shuffle(pairs)
            write_table(tmp_path / folder / "nli" / f"{name}.tsv", pairs)
        datasets, _ = find(tmp_path / folder)
        system = predicting(lambda p, h: NLI_LABELS[len(p + h) % 3])
        scores.append([dataset.load()(system) for dataset in datasets.values()])
    assert scores[0] == scores[1]


def test_tables_are_found_and_read_when_they_are_needed(tmp_path: Path) -> None:
    pairs = [*make_pairs(1, "zh"), ("a", "b", "-")]
    plain = write_table(tmp_path / "nli" / "ocnli.zh.dev.tsv", pairs)
    packed = plain.with_name("rte3.fr.tsv.gz")
    two_way = "label\tpremise\thypothesis\nnot_entailment\ta\tb\n"
    packed.write_bytes(gzip.compress(two_way.encode()))
    (tmp_path / "nli" / "README.md").write_text("#")
    datasets, missing = find(tmp_path)
    assert {name: dataset.files for name, dataset in datasets.items()} == {
        "ocnli.zh.dev": (plain,),
        "rte3.fr": (packed,),
    }
    protocols = [dataset.load().protocol for dataset in datasets.values()]
    assert protocols == [
        {"labels": list(NLI_LABELS), "num_pairs": 3, "num_left_out": 1},
        {"labels": list(TWO_WAY_LABELS), "num_pairs": 1, "num_left_out": 0},
    ]
    assert "nli/snli.en.test.tsv" in missing["snli.en.test"]
    assert "XNLI-1.0/xnli.test.tsv" in missing["xnli.de.test"]
    assert "<name>.en.train" in missing["probe"]


def test_published_layouts_are_read(tmp_path: Path) -> None:
    write_snli(tmp_path / "snli_1.0" / "snli_1.0_test.jsonl", make_pairs(2))
    unusable = [("a", "b", "-"), ("", "b", "neutral")]
    matched = tmp_path / "multinli_1.0" / "multinli_1.0_dev_matched.jsonl"
    write_snli(matched, [*make_pairs(3), *unusable])
    header = "language\tgold_label\tsentence1_parse\tsentence1\tsentence2\tpairID"
    rows = [f'{code}\tneutral\t\t"{code}\tb {code}\t{n}' for n, code in enumerate(("en", "fr"))]
    (tmp_path / "XNLI-1.0").mkdir()
    xnli = tmp_path / "XNLI-1.0" / "xnli.test.tsv"
    xnli.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")

    datasets, missing = find(tmp_path)
    assert datasets["snli.en.test"].load().protocol["num_pairs"] == 6
    protocol = datasets["multinli.en.dev_matched"].load().protocol
    assert (protocol["num_pairs"], protocol["num_left_out"]) == (9, 2)
    assert {f"xnli.{code}.test" for code in ("en", "fr", "de", "zh", "sw")} <= set(datasets)
    asked = []
    system = with_head(lambda *sides: asked.append(sides) or np.eye(3)[[1]])
    assert datasets["xnli.fr.test"].load()(system)["accuracy"] == 1
    assert asked == [(['"fr'], ["b fr"])]
    with pytest.raises(UserError, match=r"xnli\.test\.tsv must have pairs .* are missing"):
        datasets["xnli.de.test"].load()
    assert set(missing) == {"snli_x.es.test", "snli_x.fr.test", "probe"}


def test_a_table_goes_before_what_is_published(tmp_path: Path) -> None:
    write_snli(tmp_path / "snli_1.0" / "snli_1.0_test.jsonl", make_pairs(2))
    path = write_table(tmp_path / "nli" / "snli.en.test.tsv", make_pairs(1))
    datasets, _ = find(tmp_path)
    assert datasets["snli.en.test"].files == (path,)


def test_the_probe_learns_from_training_sets_or_else_from_snli_dev(tmp_path: Path) -> None:
    folder = tmp_path / "nli"
    small = write_table(folder / "snli.en.dev.tsv", make_pairs(5))
    test = write_table(folder / "xnli.es.dev.tsv", make_pairs(5, "es"))
    probe = find(tmp_path)[0]["probe"]
    assert probe.files == (small, test)
    assert probe.load().protocol["num_train"] == 15
    assert set(probe.load()(by_label)) == {
        "accuracy",
        "xnli.es.dev/accuracy",
        "xnli.es.dev/num_pairs",
    }

    train = write_table(folder / "mine.en.train.tsv", make_pairs(7, "more"))
    two_way = [("so", "and so", label) for label in TWO_WAY_LABELS]
    also = write_table(folder / "rte.en.train.tsv", two_way)
    write_table(folder / "mine.es.train.tsv", make_pairs(7, "es"))
    datasets, _ = find(tmp_path)
    assert set(datasets) == {"snli.en.dev", "xnli.es.dev", "probe"}
    assert datasets["probe"].files == (train, also, small, test)
    assert datasets["probe"].load().protocol["num_train"] == 21


@pytest.mark.parametrize(
    ("content", "told_of"),
    [
        ("premise\thypothesis\na\tb\n", "must name the columns"),
        ("label\tpremise\thypothesis\nyes\ta\tb\n", "but its labels are 'yes'; correct"),
        ("label\tpremise\thypothesis\n", "labels are missing"),
        (
            "label\tpremise\thypothesis\nneutral\ta\tb\nnot_entailment\ta\tb\n",
            "only entailment and not_entailment",
        ),
    ],
)
def test_another_table_is_told(content: str, told_of: str, tmp_path: Path) -> None:
    path = tmp_path / "x.en.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=told_of):
        read_labelled(path)


def test_damaged_json_is_told(tmp_path: Path) -> None:
    path = tmp_path / "snli_1.0_test.jsonl"
    write_snli(path, make_pairs(1))
    path.write_text(path.read_text() + "{half\n", encoding="utf-8")
    datasets, _ = find(tmp_path)
    with pytest.raises(UserError, match=r"others: .*1 not JSON.*fetch it again"):
        datasets["snli.en.test"].load()

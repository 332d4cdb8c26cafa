import pytest

from xling_tf.errors import UserError
from xling_tf.evaluators.classification.relatedness import TransferRelatedness
from xling_tf.evaluators.classification.transfer import TransferClassification
from xling_tf.evaluators.classification.transfer_files import SUITE, find
from xling_tf.evaluators.data import Dataset, Missing

NAMES = [
    *("MR", "CR", "SUBJ", "MPQA", "TREC", "SST2", "SST5", "MRPC", "SICK-E", "SICK-R"),
    *("STSB", "STSB.dev"),
]
MRPC = (
    "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    '1\t7\t8\tIt "rains .\tRain falls .\n'
    "0\t9\t10\tSnow .\tSun .\n"
)
SICK = (
    "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    "1\tA dog runs\tA dog is running\t4.9\tENTAILMENT\n"
    "2\tA dog runs\tNobody cooks\t1.0\tNEUTRAL\n"
)
STSB = (
    "main-news\theadlines\t2015\t0001\t5.000\tRain today\tIt rains today\n"
    "main-news\theadlines\t2015\t0002\t0.000\tRain today\tBirds sing\n"
)
PUBLISHED = {
    "MR/rt-polarity.pos": "a fine caf\xe9 film\nwarm and funny\n".encode("latin-1"),
    "MR/rt-polarity.neg": b"dull\nloud\n",
    "CR/custrev.pos": "sturdy caf\xe9 table\n".encode(),
    "CR/custrev.neg": b"it broke\r\n\r\n",
    "SUBJ/subj.objective": b"he drives north\n",
    "SUBJ/subj.subjective": b"a delight\n",
    "MPQA/mpqa.pos": b"welcomed\n",
    "MPQA/mpqa.neg": b"complained\n",
    "TREC/train_5500.label": b"DESC:manner How do bees fly ?\nHUM:ind Who sang : her ?\n",
    "TREC/TREC_10.label": b"HUM:ind Who cooks ?\n",
    **{
        f"SST/binary/sentiment-{split}": b"a fine film\t1\na dull one\t0\n"
        for split in ("train", "dev", "test")
    },
    **{
        f"SST/fine/sentiment-{split}": b"4 a fine film\n0 a dull one\n"
        for split in ("train", "dev", "test")
    },
    "MRPC/msr_paraphrase_train.txt": MRPC.encode(),
    "MRPC/msr_paraphrase_test.txt": MRPC.encode(),
    "SICK/SICK_train.txt": SICK.encode(),
    "SICK/SICK_trial.txt": SICK.encode(),
    "SICK/SICK_test_annotated.txt": SICK.encode(),
    **{f"STS/STSBenchmark/sts-{split}.csv": STSB.encode() for split in ("train", "dev", "test")},
}
# Task: the examples that its first set must hold, sorted.
FIRST = {
    "MR": [
        (("a fine café film",), "pos"),
        (("dull",), "neg"),
        (("loud",), "neg"),
        (("warm and funny",), "pos"),
    ],
    "CR": [(("it broke",), "neg"), (("sturdy café table",), "pos")],
    "TREC": [(("How do bees fly ?",), "DESC"), (("Who sang : her ?",), "HUM")],
    "SST2": [(("a dull one",), "0"), (("a fine film",), "1")],
    "SST5": [(("a dull one",), "0"), (("a fine film",), "4")],
    "MRPC": [(('It "rains .', "Rain falls ."), "1"), (("Snow .", "Sun ."), "0")],
    "SICK-E": [
        (("A dog runs", "A dog is running"), "ENTAILMENT"),
        (("A dog runs", "Nobody cooks"), "NEUTRAL"),
    ],
    "SICK-R": [(("A dog runs", "A dog is running"), 4.9), (("A dog runs", "Nobody cooks"), 1.0)],
    "STSB": [(("Rain today", "Birds sing"), 0.0), (("Rain today", "It rains today"), 5.0)],
}


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def found(folder):
    return {item.name: item for item in find(folder, 0) if isinstance(item, Dataset)}


def test_nothing_is_there(tmp_path):
    items = list(find(tmp_path, 0))
    assert [item.name for item in items] == NAMES
    assert all(isinstance(item, Missing) for item in items)
    assert items[1].expected == (
        "senteval/CR.tsv (label TAB text under a line with these names) or, as published, "
        "senteval/CR/custrev.neg, senteval/CR/custrev.pos"
    )
    assert SUITE.name == "senteval"


@pytest.mark.parametrize("folder", ["senteval", "downstream"])
def test_sentevals_files(tmp_path, folder):
    write(tmp_path / folder, PUBLISHED)
    datasets = found(tmp_path)
    assert list(datasets) == NAMES
    for name, dataset in datasets.items():
        evaluator = dataset.load()
        assert evaluator.name == name
        assert isinstance(evaluator, TransferRelatedness | TransferClassification)
        assert all(path.is_file() for path in dataset.files)
        if name in FIRST:
            assert [tuple(example) for example in evaluator._train] == FIRST[name]
    counts = datasets["SST2"].load().protocol
    assert (counts["num_train"], counts["num_dev"], counts["num_test"]) == (2, 2, 2)


def test_tables(tmp_path):
    text = "label\ttext\n1\tfine\n0\tdull\n"
    pair = "label\tsentence1\tsentence2\n1\tIt rains\tRain\n0\tSnow\tSun\n"
    sick = (
        "relatedness\tentailment\tsentence1\tsentence2\n5\tneutral\ta\tb\n1.5\tentailment\tc\td\n"
    )
    sts = "sentence1\tsentence2\tscore\na\tb\t5.0\nc\td\t0.5\n"
    splits = ("train", "dev", "test")
    write(
        tmp_path / "senteval", {"CR.tsv": text, **{f"SST2.{split}.tsv": text for split in splits}}
    )
    write(tmp_path / "senteval", {f"MRPC.{split}.tsv": pair for split in ("train", "test")})
    write(tmp_path / "senteval", {f"SICK.{split}.tsv": sick for split in splits})
    write(tmp_path / "sts", {f"stsb.en.{split}.tsv": sts for split in ("train", "dev")})
    datasets = found(tmp_path)
    assert list(datasets) == ["CR", "SST2", "MRPC", "SICK-E", "SICK-R", "STSB.dev"]
    loaded = {name: dataset.load() for name, dataset in datasets.items()}
    assert loaded["CR"]._train == [(("dull",), "0"), (("fine",), "1")]
    assert loaded["MRPC"]._test == [(("It rains", "Rain"), "1"), (("Snow", "Sun"), "0")]
    assert loaded["SICK-E"]._dev == [(("a", "b"), "neutral"), (("c", "d"), "entailment")]
    assert loaded["SICK-R"]._dev == [(("a", "b"), 5.0), (("c", "d"), 1.5)]
    assert loaded["STSB.dev"]._test == [(("a", "b"), 5.0), (("c", "d"), 0.5)]


@pytest.mark.parametrize(
    ("task", "files", "message"),
    [
        ("SST2", {"SST/binary/sentiment-dev": "no label here\n"}, "2 fields.*line 1 is 'no label"),
        ("MRPC", {"MRPC/msr_paraphrase_test.txt": "Quality\n1\t2\t3\n"}, "5 fields.*line 2"),
        ("TREC", {"TREC/TREC_10.label": ""}, "TREC_10.label has no examples"),
        ("SICK-R", {"SICK/SICK_trial.txt": SICK.replace("4.9", "high")}, "SICK-R.*number.*'high'"),
    ],
)
def test_files_of_another_kind(tmp_path, task, files, message):
    write(tmp_path / "senteval", PUBLISHED | files)
    with pytest.raises(UserError, match=message):
        found(tmp_path)[task].load()


def test_a_table_without_its_header(tmp_path):
    write(tmp_path / "senteval", {"CR.tsv": "1\tfine\n0\tdull\n"})
    with pytest.raises(UserError, match="must name the columns label, text"):
        found(tmp_path)["CR"].load()

"""Published formats become the tables that evaluators read, from tiny files written by hand."""

import gzip
import json
from pathlib import Path

import convert
import pytest
from raw_files import read_files, squad, write_files

from xling_tf.errors import UserError

FOX = "The fox\nsleeps. It is red."
# Two annotations of a question may begin in different sentences.
SQUAD = squad(FOX, ("Who?", [4]), ("What colour?", [16, 0]), ("No answer?", []))

# Of each format the published files, and the tables that are made of them.
CASES = {
    "moses": (
        {
            **{
                "tatoeba.deu-eng.deu": "Eins\nZwei\n",
                "tatoeba.deu-eng.eng": "One\nTwo\n",
                "README": "x",
            },
            **{"UNv1.0.en-zh_CN.en.gz": "One\n", "UNv1.0.en-zh_CN.zh_CN.gz": "一\n"},
        },
        {
            "bitext/tatoeba.deu-eng": "deu\teng\nEins\tOne\nZwei\tTwo\n",
            "bitext/UNv1.0.en-zh_CN": "en\tzh_CN\nOne\t一\n",
        },
    ),
    "parallel_lines": (
        {"news.en": "One\n", "news.es": "Uno\n", "news.de": "Eins\n", "alone.en": ""},
        {"similarity_search/news": "de\ten\tes\nEins\tOne\tUno\n"},
    ),
    # Some lines have two fields more, and quotes are text.
    "stsbenchmark": (
        {
            "sts-dev.csv": 'main-captions\tMSRvid\t2012test\t0000\t1.5\t"A dog.\tA cat.\n'
            "main-news\theadlines\t2013\t0001\t5.000\tSun\tThe sun\tsource\tlicence\n"
        },
        {
            "sts/stsb.en.dev": "sentence1\tsentence2\tscore\n"
            '"A dog.\tA cat.\t1.5\nSun\tThe sun\t5.000\n'
        },
    ),
    # Pairs without a score were not judged.
    "semeval_sts": (
        {
            "STS12-en-test/STS.input.surprise.OnWN.txt": "a\tb\nleft\tout\nc\td\tsource\n",
            "STS12-en-test/STS.gs.surprise.OnWN.txt": "1.5\n\n5\n",
            "STS2017.eval.v1.1/STS.input.track4a.es-en.txt": "uno\tone\n",
            "STS2017.gs/STS.gs.track4a.es-en.txt": "4\n",
        },
        {
            "sts/sts2012.en.OnWN.test": "sentence1\tsentence2\tscore\na\tb\t1.5\nc\td\t5\n",
            "sts/sts2017.track4a.es-en": "sentence1\tsentence2\tscore\nuno\tone\t4\n",
        },
    ),
    "quora": (
        {
            "quora_duplicate_questions.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
            '1\t3\t4\tWhat does "xyz" mean?\t"What does ""xyz""\nstand for?"\t1\n'
            "2\t5\t6\tIs there more?\t\t0\n"
        },
        {
            "paraphrase/quora.en": "label\tquestion1\tquestion2\n"
            '1\tWhat does "xyz" mean?\tWhat does "xyz" stand for?\n'
            "0\tIs there more?\tIs there more?\n"
        },
    ),
    "askubuntu": (
        {
            "text_tokenized.txt.gz": "9\thow to update ?\tlong\n11\tupdating ?\t\n7\tno sound\tx\n",
            "dev.txt": "9\t11\t11 7\t3.5 1.5\n7\t\t9 11\t2 1\n",
        },
        {
            "paraphrase/askubuntu.en.dev": "label\tquestion1\tquestion2\n"
            "1\thow to update ?\tupdating ?\n0\thow to update ?\thow to update ?\n"
            "0\tupdating ?\tupdating ?\n0\tno sound\tno sound\n"
        },
    ),
    # A line feed inside a field becomes a space; a question has a row for each right sentence.
    "squad": (
        {"dev-v1.1.json": SQUAD, "xquad.zh.json": json.dumps({"data": []})},
        {
            "reqa/squad_dev.en.paragraphs": (
                "paragraph_id\tcontext\np0\tThe fox sleeps. It is red.\n"
            ),
            "reqa/squad_dev.en.sentences": "sentence_id\tparagraph_id\tsentence\n"
            "p0.s0\tp0\tThe fox sleeps.\np0.s1\tp0\tIt is red.\n",
            "reqa/squad_dev.en.questions": "question_id\tquestion\tanswer_sentence_id\n"
            "1\tWho?\tp0.s0\n2\tWhat colour?\tp0.s1\n2\tWhat colour?\tp0.s0\n",
            "reqa/xquad.zh.paragraphs": "paragraph_id\tcontext\n",
            "reqa/xquad.zh.sentences": "sentence_id\tparagraph_id\tsentence\n",
            "reqa/xquad.zh.questions": "question_id\tquestion\tanswer_sentence_id\n",
        },
    ),
    # Some of SentEval's files are in Latin-1, and a byte-order mark may begin one.
    "senteval": (
        {
            "MR/rt-polarity.pos": "a fine caf\xe9 film\n\nwarm\r\n".encode("latin-1"),
            "MR/rt-polarity.neg": "dull caf\xe9\n",
            "TREC/train_5500.label": "DESC:manner How do bees fly ?\nHUM:ind Who sang : her ?\n",
            "TREC/TREC_10.label": "HUM:ind Who cooks ?\n",
            "SST/binary/sentiment-dev": "\ufeffa fine film\t1\n",
            "SST/fine/sentiment-test": "4 a fine film\n",
            "SICK/SICK_trial.txt": "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tjudgment\n"
            "1\tA dog\tA cat\t4.9\tENTAILMENT\n",
        },
        {
            "senteval/MR": "label\ttext\nneg\tdull café\npos\ta fine café film\npos\twarm\n",
            "senteval/TREC.train": "label\ttext\nDESC\tHow do bees fly ?\nHUM\tWho sang : her ?\n",
            "senteval/TREC.test": "label\ttext\nHUM\tWho cooks ?\n",
            "senteval/SST2.dev": "label\ttext\n1\ta fine film\n",
            "senteval/SICK.dev": "relatedness\tsentence1\tsentence2\n4.9\tA dog\tA cat\n",
        },
    ),
    # A pair without a sentence is left out; one without a label is left to the evaluator.
    "snli": (
        {
            "snli_1.0/snli_1.0_test.jsonl": '{"gold_label": "-", "sentence1": "A", '
            '"sentence2": "B"}\n',
            "multinli_1.0_dev_matched.jsonl": '{"gold_label": "neutral", "sentence1": "A", '
            '"sentence2": ""}\n{"gold_label": "neutral", "sentence1": "A", "sentence2": "B"}\n',
        },
        {
            "nli/snli.en.test": "label\tpremise\thypothesis\n-\tA\tB\n",
            "nli/multinli.en.dev_matched": "label\tpremise\thypothesis\nneutral\tA\tB\n",
        },
    ),
    "xnli": (
        {
            "XNLI-1.0/xnli.test.tsv": "language\tgold_label\tsentence1\tsentence2\tpairID\n"
            'fr\tneutral\t"A\tB\t7\nde\tneutral\tC\tD\t7\n'
        },
        {
            "nli/xnli.fr.test": 'pair_id\tlabel\tpremise\thypothesis\n7\tneutral\t"A\tB\n',
            "nli/xnli.de.test": "pair_id\tlabel\tpremise\thypothesis\n7\tneutral\tC\tD\n",
        },
    ),
    # Three stars are neither; of a text 64 words count, here "Bon" and 63 of "encore".
    "cls": (
        {
            "jp/books/test.review": "<items>"
            f"<item><rating>5.0</rating><summary>Bon</summary><text>{'encore ' * 80}</text></item>"
            "<item><rating>3.0</rating><text>Bof</text></item></items>",
            "jp/dvd/test.review": (
                "<items><item><rating>1</rating><text>A &amp;\nB</text></item></items>"
            ),
        },
        {"sentiment/cls.ja.test": f"label\ttext\npositive\tBon{' encore' * 63}\nnegative\tA & B\n"},
    ),
    "mldoc": (
        {
            "french/french.train.1000": r"CCAT" + "\t" + r"b'L\xc3\xa9a dit \"non\"'" + "\n",
            "english.dev": "GCAT\tb'it is left as it is\n",
        },
        {
            "documents/MLDoc.fr.train": 'label\ttext\nCCAT\tLéa dit "non"\n',
            "documents/MLDoc.en.dev": "label\ttext\nGCAT\tb'it is left as it is\n",
        },
    ),
    "argument_mining": (
        {
            **{"AM/labels": "claim\n", "AM/argMinPE.de": "Ja.\n"},
            **{"AC/amClaims.labels": "0\n", "AC/amClaims.en": "No.\n"},
        },
        {"argument/AM.de": "label\ttext\nclaim\tJa.\n", "argument/AC.en": "label\ttext\n0\tNo.\n"},
    ),
}


def tables(folder: Path) -> dict[str, str]:
    files = read_files(folder)
    return {
        name.removesuffix(".tsv.gz"): gzip.decompress(raw).decode() for name, raw in files.items()
    }


@pytest.mark.parametrize("case", convert.FORMATS)
def test_published_files_become_tables(case, tmp_path):
    files, expected = CASES[case]
    packed = {f"{name.removesuffix('.gz')}.xz": content for name, content in files.items()}
    for place, content in {"plain": files, "packed": packed}.items():
        counts = convert.convert(case, write_files(tmp_path / place, content), tmp_path / "tables")
        assert tables(tmp_path / "tables") == expected
        assert counts == {name: text.count("\n") - 1 for name, text in expected.items()}


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        (
            "moses",
            {"a.en-es.en": "1\n2\n", "a.en-es.es": "1\n"},
            r"a\.en-es\.es ends before line 2",
        ),
        ("stsbenchmark", {"sts-dev.csv": "main-news\tSun\tMoon\n"}, "7 fields in every line"),
        ("snli", {"snli_1.0_test.jsonl": "{half\n"}, "line 1: not a JSON object"),
        ("cls", {"en/a/test.review": "<items><item>"}, "must be XML whose items"),
    ],
)
def test_what_is_missing_or_damaged_is_told(name, files, message, tmp_path):
    output = tmp_path / "out"
    with pytest.raises(UserError, match=message):
        convert.convert(name, write_files(tmp_path, files), output)
    assert tables(output) == {}  # nothing half done


def test_a_table_is_not_overwritten_by_a_second_file_of_its_name(tmp_path):
    lines = {
        f"{side}/sts-dev.csv": f"news\tnews\t2015\t1\t4.0\t{side}\tsun\n"
        for side in ("left", "right")
    }
    with pytest.raises(UserError, match=r"has several for sts/stsb\.en\.dev"):
        convert.convert("stsbenchmark", write_files(tmp_path / "input", lines), tmp_path / "out")
    assert "left" in tables(tmp_path / "out")["sts/stsb.en.dev"]

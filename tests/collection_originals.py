"""Writes the published files from which tables of our collection were made, from these tables.

The texts of a copy that differs from a table in spaces or invisible characters cannot be had back:
what is proven is that a reader makes the table from a file of this format with the same texts.
"""

import csv
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

Tables = Mapping[str, Sequence[Sequence[str]]]  # by path, the rows; the first names the columns
Files = dict[str, str | bytes]
_NUMBERS = {"entailment": "0", "neutral": "1", "contradiction": "2"}
_CLASSES = {"negative": "0", "neutral": "1", "positive": "2"}


def _rows(tables: Tables, name: str) -> Sequence[Sequence[str]]:
    return tables[f"eval/{name}.tsv.gz"][1:]


def _tsv(rows: Sequence[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _stsb(tables: Tables) -> Files:
    files: Files = {}
    for path, rows in tables.items():
        _, _, language, split, *_ = path.replace("/", ".").split(".")[1:]
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows[1:])
        files[f"stsb-{language}-{split}.csv"] = text.getvalue()
    return files


def _sentences(tables: Tables) -> Files:
    names = {"CR": "custrev.all", "MPQA": "mpqa.all"}
    for key, kind in {"SST2": "binary", "SST5": "fine"}.items():
        names |= {f"{key}.{split}": f"stsa.{kind}.{split}" for split in ("train", "dev", "test")}
    files: Files = {
        file: "".join(f"{label} {text} \n" for label, text in _rows(tables, f"senteval/{name}"))
        for name, file in names.items()
    }
    files["custrev.all"] += "1 \n"  # a label without a text
    opinions_first = sorted(_rows(tables, "senteval/SUBJ"), key=lambda row: row[0] == "objective")
    files["subj.all"] = "".join(
        f"{int(label == 'objective')} {text} \n" for label, text in opinions_first
    )
    return files


def _sts(tables: Tables) -> Files:
    files: Files = {}
    splits = {"MRPC.dev": "val", "SICK.dev": "trial", "SICK.test": "test_annotated"}
    for path, (_, *rows) in tables.items():
        _, kind, file = path.removesuffix(".tsv.gz").split("/")
        name, *_, split = file.split(".")
        split = splits.get(f"{name}.{split}", split)
        if kind == "sts":
            scored = [(score, *pair) for *pair, score in rows]
            part = file.split(".")[2]
            files[f"sts/semeval-sts/{name[3:]}/{part}.{split}.tsv"] = _tsv(
                [("", "not", "scored"), *scored]
            )
        elif name == "MRPC":
            header = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
            numbered = [(label, "1", "2", *pair) for label, *pair in rows]
            files[f"para/msr/msr-para-{split}.tsv"] = _tsv([header, *numbered])
        else:
            header = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment")
            judged = [("1", *pair, score, label.upper()) for score, label, *pair in rows]
            files[f"sts/sick2014/SICK_{split}.txt"] = _tsv([header, *judged])
    return files


def _argument(tables: Tables) -> Files:
    files: Files = {}
    for name, labels, text in (
        ("AC", "amClaims.labels", "amClaims"),
        ("AM", "labels", "argMinPE"),
    ):
        for language in ("de", "en"):
            rows = _rows(tables, f"argument/{name}.{language}")
            files[f"{name}/{labels}"] = _lines([label for label, _ in rows])
            files[f"{name}/{text}.{language}"] = _lines([text for _, text in rows])
    return files


def _multi30k(tables: Tables) -> Files:
    import gzip

    files: Files = {}
    for path, ((_, language), *rows) in tables.items():
        split = path.split(".")[1]
        for code, side in (("en", 0), (language, 1)):
            text = _lines([row[side] for row in rows])
            files[f"{split}.{code}.gz"] = gzip.compress(text.encode())
    return files


def _wmt22(tables: Tables) -> Files:
    files: Files = {}
    for (first, second), *rows in tables.values():
        name = f"generaltest2022.{first}-{second}"
        files[f"txt/sources/{name}.src.{first}"] = _lines([row[0] for row in rows])
        files[f"txt/references/{name}.ref.A.{second}"] = _lines([row[1] for row in rows])
    return files


def _snli(tables: Tables) -> Files:
    return {
        file: _tsv([(*pair, _NUMBERS[label]) for label, *pair in _rows(tables, f"nli/snli.en.{n}")])
        for n, file in (("dev", "validation.tsv"), ("test", "test.tsv"))
    }


def _xnli(tables: Tables) -> Files:
    header = ["language", "gold_label", "sentence1", "sentence2", "promptID", "pairID", "genre"]
    parts: list[list[Sequence[str]]] = [[header], [header], [header]]
    for language in ("es", "en"):
        for index, (key, label, *pair, genre) in enumerate(
            _rows(tables, f"nli/xnli.{language}.dev")
        ):
            row = [language, label, *pair, "1_xnli.dev", f"{key}_xnli.dev", genre, "xnli.dev"]
            parts[index % 3].append(row)
    folder = "elisanchez-beep/meta4xnli/HEAD/data/meta4xnli/interpretation/source_datasets"
    names = ("met", "no_met", "nonrelevant")
    files: Files = {
        f"{folder}/xnli_dev_{n}.tsv": _tsv(part) for n, part in zip(names, parts, strict=True)
    }
    chinese = [(*pair, label) for _, label, *pair in _rows(tables, "nli/xnli.zh.dev")]
    commit = "d1c8674913edb8783fab8b515d645d949e0fdf23"
    files[f"zhang45258/ERNIE01/{commit}/data/xnli/dev.tsv"] = _tsv(
        [("text_a", "text_b", "label"), *chinese]
    )
    german = [(*pair, label) for label, *pair in _rows(tables, "nli/xnli.de.dev")]
    tested = [("Das", "Dies", "neutral")]
    for split, rows in (("train", german[:2240]), ("dev", [*german[2240:], *tested])):
        files[f"LSX-UniWue/SuperGLEBer/HEAD/data/XGlue/NLI/{split}.txt"] = _tsv(rows)
    files["LSX-UniWue/SuperGLEBer/HEAD/data/XGlue/NLI/test.txt"] = _tsv(tested)
    return files


def _esxnli(tables: Tables) -> Files:
    header = "language gold_label a b c d sentence1 sentence2 promptID pairID genre label1".split()
    rows: list[Sequence[str]] = [header]
    for language in ("es", "en"):
        rows += [
            (language, label, "", "", "", "", *pair, "1", key, genre, label)
            for key, label, *pair, genre in _rows(tables, f"nli/esxnli.{language}")
        ]
    return {"esxnli.tsv": _tsv(rows)}


def _rte3_french(tables: Tables) -> Files:
    header = "id language premise hypothesis label_int label task length".split()
    return {
        f"RTE3-FR-{file}-3class.tsv": _tsv(
            [
                header,
                *(
                    (key, "fr", *pair, _NUMBERS[label], label, "SUM", "short")
                    for key, label, *pair in _rows(tables, f"nli/rte3.fr.{split}")
                ),
            ]
        )
        for split, file in (("dev", "dev-set"), ("test", "test-gold"))
    }


def _rte3(tables: Tables) -> Files:
    buffer, answers = io.BytesIO(), {"entailment": "YES", "not_entailment": "NO"}
    with zipfile.ZipFile(buffer, "w") as archive:
        for split in ("dev", "test"):
            pairs = "".join(
                f'<pair id={quoteattr(key)} entailment="{answers[label]}">'
                f"<t>{escape(premise)}</t><h>{escape(hypothesis)}</h></pair>\n"
                for key, label, premise, hypothesis in _rows(tables, f"nli/rte3.en.{split}")
            )
            text = f'<?xml version="1.0" encoding="UTF-8"?>\n<corpus>{pairs}</corpus>'
            archive.writestr(f"rte/rte3_{split}.xml", text)
    return {"rte.zip": buffer.getvalue()}


def _ocnli(tables: Tables) -> Files:
    rows = [["-", "没有", "标签"], *_rows(tables, "nli/ocnli.zh.dev")]
    objects = [{"label": label, "sentence1": a, "sentence2": b} for label, a, b in rows]
    return {"dev.json": _lines([json.dumps(row, ensure_ascii=False) for row in objects])}


def _counterfactual(tables: Tables) -> Files:
    header = ("sentence1", "sentence2", "gold_label")
    return {
        f"{split}.tsv": _tsv(
            [
                header,
                *((*p, x) for x, *p in _rows(tables, f"nli/snli_counterfactual.en.{split}")),
            ]
        )
        for split in ("dev", "test")
    }


def _quora(tables: Tables) -> Files:
    labels, *sides = zip(*_rows(tables, "paraphrase/quora.en.dev"), strict=True)
    texts = {"0": "false", "1": "true"}
    return {
        "labels.dev": _lines([texts[label] for label in labels]),
        **{f"{s}.dev": _lines(side) for s, side in zip(("s1", "s2"), sides, strict=True)},
    }


def _paws_x(tables: Tables) -> Files:
    return {
        f"{split}.tsv": _tsv(
            [
                ("id", "sentence1", "sentence2", "label"),
                *(("1", *p, x) for x, *p in _rows(tables, f"paraphrase/pawsx.de.{split}")),
            ]
        )
        for split in ("dev", "test")
    }


def _umsab(tables: Tables) -> Files:
    files: Files = {}
    languages = {"english": "en", "french": "fr", "german": "de", "spanish": "es"}
    for folder, language in languages.items():
        for file, split in (("train", "train"), ("val", "dev"), ("test", "test")):
            rows = _rows(tables, f"sentiment/umsab_tweets.{language}.{split}")
            files[f"{folder}/{file}_text.txt"] = _lines([text for _, text in rows])
            files[f"{folder}/{file}_labels.txt"] = _lines([_CLASSES[label] for label, _ in rows])
    return files


def _chnsenticorp(tables: Tables) -> Files:
    return {
        f"{split}.tsv": _tsv(
            [("label", "text_a"), *_rows(tables, f"sentiment/chnsenticorp.zh.{split}")]
        )
        for split in ("train", "dev", "test")
    }


def _squad_lower(tables: Tables) -> Files:
    sentences = dict(_rows(tables, "reqa/squad11_dev.en.sentences"))
    questions = _rows(tables, "reqa/squad11_dev.en.questions")
    return {
        "src-dev.txt": _lines([sentences[key] for _, key in questions]),
        "tgt-dev.txt": _lines([question for question, _ in questions]),
    }


def _muse(tables: Tables) -> Files:
    return {
        path.removeprefix("dictionaries/muse.").removesuffix(".tsv.gz") + ".txt": _lines(
            [" ".join(row) for row in rows]
        )
        for path, rows in tables.items()
    }


def _text_berg(tables: Tables) -> Files:
    return {path.rpartition("/")[2]: _tsv(rows) for path, rows in tables.items()}


def _vectors(tables: Tables) -> Files:
    return {
        "{}/word2vec.{}".format(*path.split(".")[1:3]): _tsv(rows) for path, rows in tables.items()
    }


ORIGINALS: dict[str, Callable[[Tables], Files]] = {
    "stsb": _stsb,
    "sentences": _sentences,
    "sts2012-2016": _sts,
    "argument": _argument,
    "multi30k": _multi30k,
    "wmt22": _wmt22,
    "snli": _snli,
    "xnli": _xnli,
    "esxnli": _esxnli,
    "rte3-french": _rte3_french,
    "rte3": _rte3,
    "ocnli": _ocnli,
    "counterfactual": _counterfactual,
    "quora-dev": _quora,
    "paws-x": _paws_x,
    "umsab": _umsab,
    "chnsenticorp": _chnsenticorp,
    "squad-lower": _squad_lower,
    "muse": _muse,
    "text-berg": _text_berg,
    "vectors": _vectors,
}

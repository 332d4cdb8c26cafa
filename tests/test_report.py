"""Reports that compare results with each other and with the papers' figures."""

import copy
import json
import re
import shlex
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import report
from programs import ROOT, run_program

from evaluation import paper_tables
from evaluation.comparison import interval_of_score
from xling_tf.errors import UserError
from xling_tf.presets import PRESETS
from xling_tf.trainer.training import experiment

# As evaluations write them.
RESULTS = {
    "system": {"name": "mine", "checksum": "c0ffee", "description": {"preset": "en-es"}},
    "command": "python evaluation/main.py --model exported/en-es",
    "seed": 0,
    "complete": True,
    "seconds": 12.5,
    "scores": {
        "sts": {"stsb.en.dev": {"pearson_angular": 0.7, "num_pairs": 4.0}},
        "senteval": {
            "MR": {"logistic/accuracy": 0.61, "network/accuracy": 0.62},
            "SST2": {"logistic/accuracy": 0.64, "network/accuracy": 0.65},
        },
        "bitext": {"wmt22.en-zh": {"en-zh/precision_at_1": 0.5, "error_rate": 0.5}},
        "eigen_similarity": {"en-de": {"eigen_similarity": 0.8}},
    },
    "datasets": {
        "sts": {
            "stsb.en.dev": {
                "protocol": {"similarity": "-arccos", "num_pairs": 4},
                "files": {"sts/stsb.en.dev.tsv": {"checksum": "aaaa1111", "lines": 5}},
                "seconds": 1.0,
            }
        }
    },
    "skipped": {"senteval/TREC": "expected: senteval/TREC.tsv"},
}


def results(name: str = "mine", **changes) -> dict:
    """A copy with the system's name; changes replace whole parts."""
    made = copy.deepcopy(RESULTS) | changes
    made["system"]["name"] = name
    return made


def write(folder: Path, content: dict, name: str = "") -> Path:
    path = folder / f"{name or content['system']['name']}.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture
def two(tmp_path):
    """Two systems; the second is better at everything but the error rates."""
    better = results("theirs")
    better["scores"]["sts"]["stsb.en.dev"]["pearson_angular"] = 0.832
    better["scores"]["bitext"]["wmt22.en-zh"] = {"en-zh/precision_at_1": 0.9, "error_rate": 0.6}
    return report.read_results([write(tmp_path, results()), write(tmp_path, better)])


def tables(read):
    return {(s.title, t.title): t for s in report.sections(read) for t in s.tables}


def cells(read, suite_title, *names):
    (row,) = (
        row for row in tables(read)[suite_title, "All scores"].rows if tuple(row.names) == names
    )
    return [tuple(cell) for cell in row.cells]


STS, BITEXT = "Semantic textual similarity", "Translation retrieval from a whole corpus"
SENTEVAL = "SentEval's transfer tasks"


def test_the_best_is_marked_whichever_way_a_metric_points(two):
    assert cells(two, STS, "stsb.en.dev", "Pearson") == [("0.700", False), ("0.832", True)]
    assert cells(two, BITEXT, "wmt22.en-zh", "error rate") == [("50.0", True), ("60.0", False)]
    # Of equal scores both are best; one system alone has none.
    assert cells(two, SENTEVAL, "MR", "logistic, accuracy") == [("61.0", True)] * 2
    assert cells(two[:1], SENTEVAL, "MR", "logistic, accuracy") == [("61.0", False)]


def test_training_data_are_marked_and_left_out_of_a_second_mean(two, tmp_path):
    trained = results("trained")
    account = trained["datasets"]["sts"]["stsb.en.dev"]
    trained["datasets"]["senteval"] = {
        # The pairs decide, where there are any, and a hash may meet another one by chance.
        "MR": account | {"trained_on": {"pairs": 0.001, "texts": 0.5}},
        "SST2": account | {"trained_on": {"texts": 0.84}},
    }
    read = [*two, *report.read_results([write(tmp_path, trained)])]
    table = tables(read)[SENTEVAL, "All scores"]
    assert [row.names[0] for row in table.rows] == ["† MR", "† MR", "† SST2", "† SST2"]
    notes = [note for note in table.notes if note.startswith("†")]
    assert [("50%" in note, "84%" in note) for note in notes] == [(True, False), (False, True)]
    means = {row.names[0]: row for row in tables(read)["Overview", "Mean of first scores"].rows}
    assert [cell.text for cell in means["senteval"].cells] == ["62.5"] * 3
    (clean,) = (row for name, row in means.items() if name.startswith("senteval,"))
    assert [cell.text for cell in clean.cells] == ["61.0"] * 3
    assert not any(name.startswith("sts,") for name in means)
    assert report.verdict(read)["left_out"] == {"that a model was trained on": 1}


def test_systems_stand_above_the_papers_own_in_its_tables(two):
    table = tables(two)[
        SENTEVAL, "Yang et al. 2019, table 8: SentEval transfer (network, accuracy)"
    ]
    assert table.headings == ["", "MR", "CR", "SUBJ", "MPQA", "TREC", "SST2"]
    kinds = {"mine": "measured", "theirs": "measured", "USE_CNN": "published"}
    assert [(row.names[0], row.kind) for row in table.rows][:3] == [*kinds.items()]
    assert [cell.text for cell in table.rows[0].cells] == ["62.0", "", "", "", "", "65.0"]
    # Of the paper's own rows and those it quotes, Quick-Thought has 82.4 on MR.
    best = [row.names[0] for row in table.rows if row.cells[0].is_best and row.kind == "published"]
    assert best == ["Quick-Thought (Logeswaran and Lee, 2018)"]
    # Data that replace those of a paper are marked: the column en-zh is filled from WMT 2022.
    table = tables(two)[
        BITEXT, "Yang et al. 2019, table 5: Translation retrieval among the UN corpus (P@1)"
    ]
    assert [cell.text for cell in table.rows[0].cells] == ["", "", "", "50.0"]
    assert table.headings[4].endswith(" (a)")
    assert table.notes[0].startswith("(a) 2,000 sentences of WMT 2022 instead of")


def test_results_that_do_not_compare_are_marked(tmp_path):
    other = results("theirs")
    other["datasets"]["sts"]["stsb.en.dev"]["files"] = {"sts/stsb.en.dev.tsv": {"checksum": "bbbb"}}
    same = [write(tmp_path, results(name), name) for name in ("mine", "same")]
    assert report.differences(report.read_results(same), "sts", "stsb.en.dev") == []
    read = report.read_results([*same, write(tmp_path, other)])
    (warning,) = report.differences(read, "sts", "stsb.en.dev")
    assert warning.startswith("sts/stsb.en.dev.tsv differs")
    table = tables(read)[STS, "All scores"]
    assert (table.rows[0].names[0], table.notes) == ("⚠ stsb.en.dev", [f"⚠ stsb.en.dev: {warning}"])


def training(seed, score, **settings):
    values = {"retrieval/en-es/all": {"en-es/precision_at_1": score, "num_queries": 5000}}
    config = {"description": f"{seed}", "training": {"seed": seed}, **settings}
    corpora = {"parallel/x.en-es": 100}
    return {"steps": 9, "minutes": 1.5, "scores": values, "config": config, "corpora": corpora}


def test_runs_that_differ_in_their_seed_alone_are_one_model(tmp_path):
    runs = {
        "en-es": training(1, 0.97),
        "en-es-seed-2": training(2, 0.98),
        "again": training(2, 0.5),  # the same seed once more is another model
        "third": training(3, 0.96),
        "other": training(4, 0.9, encoder={"num_layers": 1}),
        "elsewhere": training(5, 0.9) | {"corpora": {"parallel/x.en-es": 99}},
    }
    for name, content in runs.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name, content, "results")
    read = report.read_results([tmp_path / name / "results.json" for name in runs])
    read = report.over_seeds(read)
    assert [r.name for r in read] == ["en-es (3 seeds)", "again", "other", "elsewhere"]
    # The deviations of 96, 97 and 98 from their mean are -1, 0 and 1: sqrt(2 / 2) = 1.
    key = "retrieval.en-es.all", "en-es, P@1"
    assert cells(read, "training", *key)[0] == ("97.0 ± 1.0", True)
    assert [text for text, _ in cells(read, "training", *key)[1:]] == ["50.0", "90.0", "90.0"]


def test_evaluations_of_seeds_are_one_model_if_data_and_protocol_are_the_same(tmp_path):
    made = []
    for name, score in (("mine", 0.7), ("mine-seed-2", 0.8), ("mine-seed-3", 0.9)):
        made.append(results(name))
        made[-1]["scores"]["sts"]["stsb.en.dev"]["pearson_angular"] = score
    made[2]["datasets"]["sts"]["stsb.en.dev"]["protocol"]["similarity"] = "cosine"
    read = report.over_seeds(report.read_results([write(tmp_path, content) for content in made]))
    assert [result.name for result in read] == ["mine (2 seeds)", "mine-seed-3"]
    # The deviations of 0.7 and 0.8 from their mean are 0.05: sqrt(2 * 0.05 ** 2 / 1) = 0.0707.
    assert cells(read, STS, "⚠ stsb.en.dev", "Pearson")[0] == ("0.750 ± 0.071", False)


def test_trainings_stand_side_by_side(tmp_path):
    scores = {"retrieval/en-es/all": {"en-es/precision_at_1": 0.981, "num_queries": 5000}}
    training = {"steps": 1200, "minutes": 12.26, "scores": scores}
    for name in ("no-snli", "en-es"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, training, "results")
    read = report.read_results([tmp_path / n / "results.json" for n in ("no-snli", "en-es")])
    table = tables(read)["training", "All scores"]
    assert table.headings[2:] == ["no-snli", "en-es"]
    assert [(*row.names, row.cells[0].text) for row in table.rows] == [
        ("retrieval.en-es.all", "en-es, P@1", "98.1"),
        ("budget", "steps", "1200"),
        ("budget", "minutes", "12.3"),
    ]
    # The longer training is no better for that.
    assert [row.cells[0].is_best for row in table.rows] == [True, False, False]


HOSTILE = '"><script>document.title = "broken"</script><img src=x onerror="a()">|x'


def test_texts_are_escaped(tmp_path):
    made = results(HOSTILE, skipped={HOSTILE: HOSTILE}, complete=False, command=HOSTILE)
    made["scores"][HOSTILE] = {HOSTILE: {HOSTILE: 0.5}}
    made["datasets"]["sts"]["stsb.en.dev"]["protocol"] = {HOSTILE: HOSTILE}
    read = report.read_results([write(tmp_path, results()), write(tmp_path, made, "hostile")])
    parts = report.sections(read)
    assert not re.search("<script|<img", report.render(parts, read, as_page=True))
    markdown = report.render(parts, read, as_page=False)
    assert "<script" not in markdown
    assert not re.search(r"[^\\]\|x", markdown)
    assert 'Not finished: ">' in markdown


def test_our_scores_are_collected_from_trainings_and_evaluations_of_one_model(tmp_path):
    file = tmp_path / "ours.json"
    trained = {("training", "stsb.en.dev", "pearson_angular"): 0.1}
    command = "python train --cache=/a --teacher /x/use --set v=sif:/x/v.bin"
    training = {"steps": 10, "minutes": 1.26, "command": command}
    training |= {"config": {"training": {"seed": 3}}, "corpora": {"similarity/stsb.en.train": 5}}
    evaluated = {
        ("sts", name, "pearson_angular"): 0.8 for name in ("stsb.en.dev", "stsb.es.dev", "z")
    }
    of_model = ("ours", evaluated, {"command": "evaluate", "system": {"checksum": "c0"}})
    # The evaluation's score is the later one, in whichever order. No paper has a column for "z".
    ours = paper_tables.add_results(file, [of_model, ("ours", trained, training)])["ours"]
    assert ours["command"] == "train --teacher use --set v=sif:v.bin"
    assert (ours["minutes"], ours["seed"], ours["learned"]) == (1.3, 3, ["stsb."])
    assert ours["scores"] == {
        f"sts/stsb.{code}.dev": {"pearson_angular": 0.8} for code in ("en", "es")
    }
    # Scores of the same model are kept, those of another one or another training are not.
    more = {("sts", "stsb.en.test", "pearson_angular"): 0.3}

    def names(*results):
        return [*paper_tables.add_results(file, results)["ours"]["scores"]]

    assert names(("ours", more, of_model[2])) == [
        "sts/stsb.en.dev",
        "sts/stsb.es.dev",
        "sts/stsb.en.test",
    ]
    assert names(("ours", trained, training | {"steps": 20})) == ["sts/stsb.en.dev"]
    assert names(of_model) == ["sts/stsb.en.dev", "sts/stsb.es.dev"]
    assert names(("ours", more, {"system": {"checksum": "c1"}})) == ["sts/stsb.en.test"]


SYSTEMS = json.loads((ROOT / "evaluation/results/papers.json").read_text("utf-8"))


def test_every_system_of_ours_stands_beside_a_row_of_a_paper():
    beside = set()
    for table in paper_tables.papers():
        assert table.ours.keys() <= table.values.keys()
        beside.update(*table.ours.values())
    assert {name.partition("-seed-")[0] for name in SYSTEMS} <= beside


def trained_by(command):
    """The settings that a command asks for, but for the files of word vectors and the teacher."""
    _, _, flags = command.partition(" --")
    words = shlex.split(f"--{flags}")
    values = defaultdict(list)
    for flag, value in zip(words[::2], words[1::2], strict=True):
        values[flag.removeprefix("--")].append(value)
    settings = [s for s in values.pop("set", []) if not s.startswith("initial.vectors=")]
    values.pop("data", None)
    named = {name: value[0] for name, value in values.items()}
    if "target" in named:
        named["target"] = named["target"].split(",")
    named.setdefault("preset", "multi-task")
    config = experiment(named.pop("preset"), **named | {"teacher": None}, settings=settings)[1]
    return replace(config, description="")


def test_each_command_of_the_page_can_be_typed():
    page = (ROOT / "docs/research/papers.md").read_text("utf-8")
    _, _, of_systems = page.partition("## Our systems")
    commands = dict(re.findall(r"^\| `(.*?)` .*\| (xling-tf .*) \|$", of_systems, re.MULTILINE))
    assert commands.keys() == SYSTEMS.keys()
    assert commands.pop("published-cnn").startswith("xling-tf import ")
    for name, command in commands.items():
        # Today's flags mean what the flags of then meant.
        assert command.startswith("xling-tf train ")
        assert trained_by(command) == trained_by(SYSTEMS[name]["command"])
        preset = re.search(r"--preset (\S+)", command)
        assert not preset or preset[1] in PRESETS
        # Files are those of the collection; other spaces are learned.
        vectors = "".join(re.findall(r"initial\.vectors=(\S+)", command))
        assert ".bin" not in vectors
        assert len(re.findall(r"\.gz", vectors)) == len(re.findall("DIR/", vectors))


def test_the_page_in_the_docs_is_made_of_its_files():
    page = report.ABOUT_PAPERS + report.render(paper_tables.beside(SYSTEMS), [], as_page=False)
    assert (ROOT / "docs/research/papers.md").read_text("utf-8") == page


def test_the_program_writes_both_forms(tmp_path):
    path = write(tmp_path, results())
    for name in ("page.html", "tables.md"):
        run_program(tmp_path, "evaluation/report.py", str(path), f"--output={name}")
    printed = run_program(tmp_path, "evaluation/report.py", str(path), "--output=-").output
    assert printed == (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "<!doctype html>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "table 2: STS Benchmark" in (tmp_path / "tables.md").read_text(encoding="utf-8")


# In points, how far the systems are ahead of "mine" on ten data sets.
GAINS = {"mine": [0] * 10, "hardly": [1, -1] * 5, "much": [8, 9, 9, 10, 10, 10, 10, 11, 11, 12]}


def compared(folder, *names, count=10):
    """The report of these systems in Markdown, whose first lines are the verdict."""
    for name in names:
        scores = {
            f"set-{n}": {"accuracy": 0.5 + gain / 100} for n, gain in enumerate(GAINS[name][:count])
        }
        write(folder, results(name, scores={"senteval": scores}, datasets={}))
    read = report.read_results([folder / f"{name}.json" for name in names])
    return report.render(report.sections(read), read, as_page=False)


def test_a_verdict_says_what_is_more_than_chance(tmp_path):
    text = compared(tmp_path, "mine", "much")
    verdict = "much is better than mine, by 10.0 points on average over 10 data sets of 1 suite."
    assert text.startswith(f"**{verdict}")
    # Of the 2 ** 10 ways to swap, all or none differ as much.
    assert all(part in text for part in ("; 0.2% of random swaps", "| **+10.0 ("))
    tie = r".* cannot be told apart: .*\n\n95% of .* -0\.6 to 0\.6 points; 100\.0% of"
    assert re.match(tie, compared(tmp_path, "mine", "hardly"))
    assert compared(tmp_path, "mine", "much", count=4).startswith("**Too few data sets")
    assert compared(tmp_path, "mine").startswith("**mine has 50.0 points")


def test_intervals_of_a_data_set_are_wilsons_or_fishers():
    # (p + z² / 2n ± z √(p (1 - p) / n + z² / 4n²)) / (1 + z² / n), and
    # tanh(artanh .7 ± z / √(103 - 3)).
    assert interval_of_score("a/accuracy", 0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert interval_of_score("pearson", 0.7, 103) == pytest.approx((0.5858, 0.7869), abs=1e-4)
    assert interval_of_score("macro_f1", 0.5, 100) is None


def test_a_file_without_scores_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"/mine\.json must be .*no scores.*; give another$"):
        report.read_results([write(tmp_path, results(scores={"sts": {}}))])

import numpy as np
import pytest
from encode_functions import by_meaning, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.classification.argument_files import SUITE
from xling_tf.evaluators.classification.argument_mining import SubsampleValidation
from xling_tf.evaluators.data import Dataset, Missing

LABELS = ["Claim", "Premise"] * 60
ROWS = {
    language: [(label, f"{language} {number} {label}") for number, label in enumerate(LABELS)]
    for language in ("en", "de")
}


def make(rows=ROWS, **options):
    return SubsampleValidation(rows, name="AM", **{"aligned": True, "num_runs": 6, **options})


def find(folder):
    return {found.name: found for found in SUITE.find(folder, 0)}


def write_table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["label\ttext", *(f"{label}\t{text}" for label, text in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_perfect_encoder_scores_one_within_and_across_languages():
    scores = make()(by_meaning(lambda text: text.split()[2]))
    assert scores == {
        "en-de/macro_f1": 1.0,
        "en-de/macro_f1_stderr": 0.0,
        "en/macro_f1": 1.0,
        "en/macro_f1_stderr": 0.0,
        "de/macro_f1": 1.0,
        "de/macro_f1_stderr": 0.0,
    }


def test_random_vectors_score_chance():
    # Two labels of equal frequency: 1/2 for guesses, and 1/3 for one answer to everything, to which
    # regularisation tends; 0.1 for the chance of six runs with 24 test rows each.
    scores = make()(random_vectors())
    for name in ("en-de", "en", "de"):
        assert 1 / 3 - 0.1 < scores[f"{name}/macro_f1"] < 1 / 2 + 0.1
        assert 0 < scores[f"{name}/macro_f1_stderr"] < 0.1


def test_translations_of_training_sentences_are_not_tested_on():
    # An encoder that knows which row a text is, but nothing of its label, profits from translations
    # alone: had the test rows of German been trained on in English, it would score 1.
    scores = make()(by_meaning(lambda text: text.split()[1]))
    assert scores["en-de/macro_f1"] < 0.7
    assert scores["en-de/macro_f1"] == scores["en/macro_f1"] == scores["de/macro_f1"]


def test_macro_f1_by_hand():
    # The vectors tell Claim from the rest, but not Premise from None, of which Premise is the more
    # frequent: all of both are called Premise. In a test part with p premises and n of None, F1 is 1,
    # 2p / (2p + n) and 0. Of 60 and 40 rows a fifth is 12 and 8: (1 + 24 / 32 + 0) / 3 = 0.583. What
    # falls into a part varies by chance, their mean over 20 runs by about 0.005.
    labels = ["Claim"] * 60 + ["Premise"] * 60 + ["None"] * 40
    rows = {"en": [(label, f"{number} {label}") for number, label in enumerate(labels)]}
    evaluator = make(rows, num_runs=20)
    scores = evaluator(lambda texts: np.array([["Claim" in text, 1.0] for text in texts]))
    assert scores["en/macro_f1"] == pytest.approx(0.583, abs=0.02)


def test_shuffled_lines_and_second_calls_give_equal_scores():
    order = np.random.default_rng(0).permutation(len(LABELS))
    shuffled = {language: [rows[place] for place in order] for language, rows in ROWS.items()}
    evaluator = make()
    scores = evaluator(random_vectors())
    assert evaluator(random_vectors()) == scores
    assert make(shuffled)(random_vectors()) == scores


def test_length_of_vectors_makes_no_difference():
    def longer(texts):
        return 1000 * random_vectors()(texts)

    scores = make()(random_vectors())
    assert make()(longer) == pytest.approx(scores, abs=0.02)


def test_rows_that_are_no_translations_are_cut_apart():
    rows = {"en": ROWS["en"], "fr": [(label, f"fr {text}") for label, text in ROWS["en"][:50]]}
    scores = make(rows, aligned=False)(by_meaning(lambda text: text.split()[-1]))
    assert scores["en-fr/macro_f1"] == 1.0


@pytest.mark.parametrize(
    ("german", "message"),
    [
        ([("Premise", "x"), *ROWS["de"][1:]], r"row 1 has \['Claim', 'Premise'\] in en, de"),
        (ROWS["de"][1:], "have {'en': 120, 'de': 119} rows"),
    ],
)
def test_translations_with_other_labels_are_refused(german, message):
    with pytest.raises(UserError, match=message):
        make({"en": ROWS["en"], "de": german})


def test_too_few_rows_are_refused():
    with pytest.raises(UserError, match="two labels in each fifth of its rows"):
        make({"en": ROWS["en"][:6]})


def test_a_vector_that_is_not_finite_names_its_text():
    with pytest.raises(UserError, match="en 0 Claim"):
        make()(lambda texts: np.array([[np.nan if t == "en 0 Claim" else 1.0] for t in texts]))


def test_tables_are_found(tmp_path):
    for language, rows in ROWS.items():
        write_table(tmp_path / f"argument/AM.{language}.tsv", rows)
    found = find(tmp_path)
    assert isinstance(found["AM"], Dataset)
    assert [path.name for path in found["AM"].files] == ["AM.en.tsv", "AM.de.tsv"]
    evaluator = found["AM"].load()
    assert evaluator.protocol["num_rows"] == {"en": 120, "de": 120}
    assert evaluator.protocol["aligned"]
    assert isinstance(found["CLS"], Missing)
    assert "argument/CLS.<language>.tsv" in found["CLS"].expected


def test_published_files_are_found(tmp_path):
    folder = tmp_path / "argument" / "AC"
    folder.mkdir(parents=True)
    (folder / "amClaims.labels").write_text("0\n1\n" * 30, encoding="utf-8")
    for language in ("en", "de"):
        (folder / f"amClaims.{language}").write_text("a sentence\n" * 60, encoding="utf-8")
    found = find(tmp_path)["AC"]
    assert [path.name for path in found.files] == ["amClaims.labels", "amClaims.en", "amClaims.de"]
    assert found.load().protocol["num_rows"] == {"en": 60, "de": 60}


def test_a_missing_task_names_both_layouts(tmp_path):
    expected = find(tmp_path)["AM"].expected
    assert "argument/AM.<language>.tsv (label TAB text" in expected
    assert "argument/AM/labels and argument/AM/argMinPE.<language>" in expected


def test_a_missing_column_is_named(tmp_path):
    path = tmp_path / "argument/AM.en.tsv"
    path.parent.mkdir()
    path.write_text("kind\ttext\nClaim\tIt is so.\n", encoding="utf-8")
    with pytest.raises(UserError, match="label is not in"):
        find(tmp_path)["AM"].load()

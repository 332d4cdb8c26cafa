"""Random subsample validation, by encoders whose scores are known."""

import numpy as np
import pytest
from encode_functions import by_meaning

from xling_tf.baselines.rueckle2018.argument import SubsampleValidation
from xling_tf.errors import UserError

ROWS = {
    language: [
        (label, f"{language} {n} {label}") for n, label in enumerate(["Claim", "Premise"] * 60)
    ]
    for language in ("en", "de")
}


def subsamples(rows=ROWS, **options):
    return SubsampleValidation(rows, name="AM", **{"aligned": True, "num_runs": 6, **options})


def test_translations_of_training_sentences_are_not_tested_on():
    # An encoder that knows which row a text is, but nothing of its label, profits from translations
    # alone: had the test rows of German been trained on in English, it would score 1.
    scores = subsamples()(by_meaning(lambda text: text.split()[1]))
    assert scores["en-de/macro_f1"] < 0.7
    assert scores["en-de/macro_f1"] == scores["en/macro_f1"] == scores["de/macro_f1"]


def test_macro_f1_of_subsamples_by_hand():
    # Vectors tell Claim from the rest, of which all are called Premise. In a test part with p
    # premises and n of None, F1 is 1, 2p / (2p + n) and 0. Here p is 12 and n 8:
    # (1 + 24 / 32 + 0) / 3 = 0.583.
    # Their number in a part varies by chance, the mean of 20 runs by about 0.005.
    labels = ["Claim"] * 60 + ["Premise"] * 60 + ["None"] * 40
    rows = {"en": [(label, f"{number} {label}") for number, label in enumerate(labels)]}
    evaluator = subsamples(rows, num_runs=20)
    scores = evaluator(lambda texts: np.array([["Claim" in text, 1.0] for text in texts]))
    assert scores["en/macro_f1"] == pytest.approx(0.583, abs=0.02)
    # Claims and premises are found, 120 of 160 rows, within three standard errors.
    assert scores["en/accuracy"] == pytest.approx(0.75, abs=0.045)


def test_rows_that_cannot_be_divided_are_refused():
    with pytest.raises(UserError, match="equal labels in every language"):
        subsamples(ROWS | {"de": ROWS["de"][1:]})
    with pytest.raises(UserError, match="two labels in each fifth"):
        subsamples({"en": ROWS["en"][:6]})

"""Which texts of other data a model was trained on."""

from pathlib import Path

import numpy as np
import pytest

from xling_tf.corpora.split import text_hashes
from xling_tf.corpora.trained_on import TRAINED_ON, TrainedOn
from xling_tf.errors import UserError

PAIRS = [("A dog.", "Un perro."), ("A cat.", "Un gato.")]


def trained_on(*records: tuple[str, ...]) -> TrainedOn:
    return TrainedOn.of([map(text_hashes, zip(*records, strict=True))])


def test_texts_and_pairs_are_found_again_whatever_their_order_case_and_form() -> None:
    known = trained_on(*PAIRS, ("Mañana.", "Tomorrow."))
    decomposed = "man\u0303ana. "
    assert known.share_of_texts(["a  DOG.", decomposed, "new", "newer"]) == 0.5
    # The texts of the last one are known, each of another record.
    pairs = [("un perro.", "A DOG."), ("Tomorrow.", decomposed), ("A dog.", "Un gato.")]
    assert known.share_of_pairs(pairs) == pytest.approx(2 / 3)


def test_all_texts_of_a_record_count_but_its_pair_is_the_first_two() -> None:
    known = trained_on(("question", "answer", "the answer's paragraph"))
    assert known.share_of_texts(["the answer's paragraph"]) == 1
    assert known.share_of_pairs([("question", "answer"), ("answer", "the answer's paragraph")]) == 0.5


def test_a_file_keeps_what_was_trained_on_in_few_bytes(tmp_path: Path) -> None:
    hashes = np.random.default_rng(0).integers(2**64, size=(2, 50_000), dtype=np.uint64)
    known = TrainedOn.of([hashes])
    (tmp_path / TRAINED_ON).write_bytes(known.to_bytes())
    read = TrainedOn.read(tmp_path)
    assert read is not None
    np.testing.assert_array_equal(read.texts, known.texts)
    np.testing.assert_array_equal(read.pairs, known.pairs)
    assert (tmp_path / TRAINED_ON).stat().st_size < 4 * (len(known.texts) + len(known.pairs))
    assert TrainedOn.read(tmp_path / "another") is None
    damaged = bytearray(known.to_bytes())
    # The first byte behind the zip's header of 30 bytes, a name and more: no Deflate block begins so.
    damaged[30 + damaged[26] + damaged[28]] = 0xFF
    for content in (known.to_bytes()[:-100], damaged):
        (tmp_path / TRAINED_ON).write_bytes(content)
        with pytest.raises(UserError, match="damaged"):
            TrainedOn.read(tmp_path)


def test_a_model_has_seen_what_the_one_it_began_as_has_seen() -> None:
    both = trained_on(PAIRS[0]).joined(trained_on(PAIRS[1]))
    assert both.share_of_pairs(PAIRS) == 1
    assert trained_on(PAIRS[0]).joined(TrainedOn.of(())).share_of_pairs(PAIRS) == 0.5

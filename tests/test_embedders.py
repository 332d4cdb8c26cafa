"""Opening embedders by their names on the command line; REST servers have a file of their own."""

import shutil
from pathlib import Path
from typing import Any

import encode_functions
import pytest
import tensorflow as tf

from xling_tf.errors import UserError
from xling_tf.evaluators.embedders import open_embedder

STRINGS = tf.TensorSpec([None], tf.string)


def lengths(texts: tf.Tensor, width: int = 2) -> tf.Tensor:
    """Bytes of each text, `width` times."""
    return tf.tile(tf.cast(tf.strings.length(texts), tf.float32)[:, None], [1, width])


def save(folder: Path, model: Any, **signatures: Any) -> Path:
    tf.saved_model.save(model, str(folder), signatures=signatures or None)
    return folder


def called(function: Any = lengths, spec: tf.TensorSpec = STRINGS) -> tf.Module:
    """A module with only a call."""
    model = tf.Module()
    model.__call__ = tf.function(function, input_signature=[spec], autograph=False)
    return model


def test_the_checksum_covers_the_files_that_vectors_depend_on(tmp_path):
    plain_folder = save(tmp_path / "plain", called())
    copy = Path(shutil.copytree(plain_folder, tmp_path / "copy"))
    (copy / "README.md").write_text("More words")
    embedder = open_embedder(str(plain_folder))
    assert embedder(["a", "bcd"]).tolist() == [[1, 1], [3, 3]]
    assert embedder.questions is embedder.responses is embedder.inference is None
    checksum = embedder.checksum
    assert open_embedder(str(copy)).checksum == checksum
    (copy / "assets").mkdir(exist_ok=True)
    (copy / "assets" / "more.txt").write_text("words")
    assert open_embedder(str(copy)).checksum != checksum


def test_a_module_with_only_questions_and_responses(tmp_path):
    """Like multilingual-qa; responses take a context."""

    named = [tf.TensorSpec([None], tf.string, name=name) for name in ("input", "context")]

    @tf.function(input_signature=named[:1])
    def question(input: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"outputs": lengths(input)}

    @tf.function(input_signature=named)
    def response(input: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": lengths(input) - 9, "outputs": lengths(input) + 10 * lengths(context)}

    save(tmp_path, tf.Module(), question_encoder=question, response_encoder=response)
    embedder = open_embedder(str(tmp_path))
    assert embedder(["ab"]).tolist() == embedder.encode_questions(["ab"]).tolist() == [[2, 2]]
    responses = embedder.encode_responses(["a", "abc", "ab"], ["ab", "", "abcd"])
    assert responses.tolist() == [[21, 21], [3, 3], [42, 42]]


def test_models_that_do_not_map_strings_to_vectors_are_rejected(tmp_path):
    numbers = called(lambda x: x * 2, tf.TensorSpec([None], tf.float32))
    for number, (model, message) in enumerate(
        [
            (numbers, "that maps strings to vectors, but fails with two strings"),
            (
                called(tf.strings.length),
                r"that maps strings to vectors, but .*returned shape \[2\]",
            ),
            (tf.Module(), r"must have a signature 'serving_default'.*has none"),
        ]
    ):
        folder = save(tmp_path / str(number), model)
        with pytest.raises(UserError, match=message):
            open_embedder(str(folder))
    with pytest.raises(UserError, match="does not exist"):
        open_embedder(f"{tmp_path}/none")


def test_functions_must_exist_and_give_a_vector_for_each_text(monkeypatch):
    assert open_embedder("python:encode_functions:constant")(["a", "b"]).tolist() == [[1] * 4] * 2
    for target in ("encode_functions:", "nowhere:f", "encode_functions:hashlib"):
        with pytest.raises(UserError, match=f"module:function.* there is no '{target}'"):
            open_embedder(f"python:{target}")
    monkeypatch.setattr(encode_functions, "constant", lambda texts: [[1.0]])
    with pytest.raises(UserError, match=r"a vector for each of 2 texts, got shape \[1, 1\]"):
        open_embedder("python:encode_functions:constant")(["a", "b"])

"""The command that compares models on a language."""

import shutil

import pytest
from programs import ROOT, run_program, run_python, the_error
from raw_files import write_files
from testing import tiny_config, tiny_model

from xling_tf.bulk.mining import mine_translations
from xling_tf.bulk.vector_files import VectorFolder, encode_files
from xling_tf.models import BOX_FOLDER


@pytest.mark.slow
def test_models_are_compared_on_a_text(hub_folder, tmp_path):
    shutil.copytree(hub_folder, tmp_path / "exported/use-multilingual")
    text = "\n".join(["Aukeratu gertaerak egutegian erakusteko."] * 30)
    write_files(tmp_path, {"text.txt": text})
    flags = ("eu", "--text=text.txt")
    shown = run_program(tmp_path, "training/languages.py", *flags).output
    rows = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert "no (15 listed)" in rows["use-multilingual"]
    assert "yes (93 listed)" in rows["multilingual-e5-small"]
    assert "import it first" in rows["multilingual-e5-small"]
    assert "%" in rows["use-multilingual"]
    assert "3,000" in rows


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected one language code, got none"),
        (["basque"], "expected a language code"),
        (["eu", "--text=empty.txt"], "empty.txt must have lines of text"),
    ],
)
def test_mistakes_are_one_line(words, said, tmp_path):
    write_files(tmp_path, {"empty.txt": "\n\n"})
    line = the_error(run_python(tmp_path, str(ROOT / "training/languages.py"), *words))
    assert said in line


@pytest.mark.skipif(
    not (BOX_FOLDER / "runtime.json").is_file(), reason=f"{BOX_FOLDER} is made by `make model`"
)
def test_encode_says_that_the_model_in_the_box_does_not_list_a_language(tmp_path, caplog):
    sentence = "Ohar hau dokumentu guztien azken orrialdean agertzen da"  # Basque
    write_files(tmp_path, {"text.txt": "".join(f"{sentence} {n}\n" for n in range(30))})
    encode_files("multilingual-mini", str(tmp_path / "text.txt"), tmp_path / "vectors")
    assert "seem to be in eu, which is not among the 15 languages" in caplog.text


@pytest.mark.slow
def test_encode_says_what_the_model_does_not_know(tmp_path, caplog):
    # Without n-grams, whose hashes words of other scripts share.
    tiny_model(tiny_config("tokenizer.ngram_sizes=")).export(tmp_path / "model")
    sentence = "ზედდებული ქვეწარწერები ვიდეოზე, რომელიც აქ არის"
    write_files(tmp_path, {"text.txt": "".join(f"{sentence} {n}\n" for n in range(30))})
    encode_files(tmp_path / "model", str(tmp_path / "text.txt"), tmp_path / "vectors")
    # Of the words and signs of a line only the comma and some numbers may be known.
    assert VectorFolder.open(tmp_path / "vectors").description["unknown_pieces"] > 0.7
    language, unknown = (line for line in caplog.messages if "text" in line)
    assert "pieces of the first 30 texts are unknown" in unknown
    assert "seem to be in ka, which is not among the" in language
    # `mine` repeats it, by what the folder says.
    caplog.clear()
    mine_translations(tmp_path / "vectors", tmp_path / "vectors", tmp_path / "out.tsv", threshold=1)
    assert sum("are unknown to the model that encoded it" in line for line in caplog.messages) == 2

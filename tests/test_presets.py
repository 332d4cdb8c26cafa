import pytest

from xling_tf.errors import UserError
from xling_tf.presets import PRESETS, get_preset
from xling_tf.tasks.registry import build_tasks


def six_tasks(target):
    return [
        f"translation_ranking_en-{target}",
        "response_prediction_en",
        f"response_prediction_{target}",
        "quick_thought_en",
        f"quick_thought_{target}",
        "inference",
    ]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_its_tasks(name):
    # 2019, sec. 2.2: "six total tasks are used in training, as the first two tasks are mirrored".
    preset = get_preset(name)
    assert [task.name for task in build_tasks(preset)] == six_tasks(preset.data.targets[0])


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_budget_and_a_description(name):
    preset = get_preset(name)
    assert preset.training.steps or preset.training.minutes
    assert 20 < len(preset.description) < 100
    assert preset.optimizer.name in ("sgd", "adam")


def test_the_literal_recipe():
    # 2019, sec. 3.2: "All of our models are trained for 30 million steps."
    training = get_preset("paper-en-es").training
    assert (training.steps, training.minutes) == (30_000_000, 0)


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

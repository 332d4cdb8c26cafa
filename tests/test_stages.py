"""The stages of a training: tasks, steps and rates, restarts, and what is refused."""

import dataclasses

import numpy as np
import pytest
from programs import read_lines
from testing import TWO_TASKS, make_trainer, tiny_config

from xling_tf.config import ExperimentConfig, StageConfig
from xling_tf.errors import UserError
from xling_tf.settings import apply_overrides
from xling_tf.trainer.schedule import Budget

pytestmark = pytest.mark.usefixtures("without_graphs")

RANKING, INFERENCE = "translation_ranking_en-es", "inference"
# Of ten steps two for the average of words, five for one task alone, and three for the rest.
STAGES = {
    "average": StageConfig(share=0.2, part="average", examples_per_batch=5),
    "ranking": StageConfig(share=0.5, tasks=("translation_ranking",)),
    "all": StageConfig(earlier_rate=0.0),
}
SETTINGS = (
    "encoder.bow_residual=true",
    "training.steps=10",
    "optimizer.decay=linear",
    "data.equal_batches=true",
)


def config_of(*settings, **stages):
    config = apply_overrides(TWO_TASKS, SETTINGS)
    return apply_overrides(dataclasses.replace(config, stages={**STAGES, **stages}), settings)


def lines_of(run_dir):
    return read_lines(run_dir / "metrics.jsonl")


def test_each_stage_has_its_tasks_batches_steps_and_rates(tmp_path):
    trainer = make_trainer(tmp_path, config_of())
    assert trainer.train()
    lines = lines_of(tmp_path)
    both = [RANKING, INFERENCE]
    assert [line["task"] for line in lines] == [*both, *[RANKING] * 5, *both, RANKING]
    # Five pairs in a batch of the first stage, two in the others.
    assert [line["sentences"] for line in lines] == [10] * 2 + [4] * 8
    # Rates fall to zero in each stage, from its first step, which is at the whole rate.
    falls = [n / steps for steps in (2, 5, 3) for n in range(steps)]
    rates = [line["learning_rate"] for line in lines]
    assert rates == pytest.approx([0.1 * (1 - fall) for fall in falls])


def test_layers_of_earlier_stages_learn_at_their_own_rate(tmp_path):
    trainer = make_trainer(tmp_path, config_of())
    encoder, seen = trainer._stages[-1].encoder, []
    average = encoder.static.trainable_variables
    others = [v for v in encoder.trainable_variables if not any(v is other for other in average)]

    def step(stage, step=trainer._train_step):
        before = [[v.numpy() for v in part] for part in (average, others)]
        result = step(stage)
        after = [[v.numpy() for v in part] for part in (average, others)]
        moved = [
            any((one != other).any() for one, other in zip(*parts, strict=True))
            for parts in zip(before, after, strict=True)
        ]
        seen.append((stage.name, *moved))
        return result

    trainer._train_step = step
    trainer.train()
    first, second, last = ("average", True, False), ("ranking", True, True), ("all", False, False)
    assert seen == [first] * 2 + [second] * 5 + [last] * 3


@pytest.mark.parametrize("stop", [1, 2, 4, 7, 9])
def test_a_restart_among_three_stages_changes_nothing(stop, tmp_path):
    config = config_of("optimizer.name=adam")
    make_trainer(tmp_path / "whole", config).train()
    part = make_trainer(tmp_path / "part", config)

    def interrupted(stage, step=part._train_step):
        if part.step == stop:
            raise KeyboardInterrupt
        return step(stage)

    part._train_step = interrupted
    with pytest.raises(KeyboardInterrupt):
        part.train()
    part._save()
    again = make_trainer(tmp_path / "part", config)
    again.train()
    whole = make_trainer(tmp_path / "whole", config)
    whole.train()  # reads its last checkpoint
    for one, other in zip(whole._checkpoints.variables, again._checkpoints.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    for line, other in zip(*map(lines_of, (tmp_path / "whole", tmp_path / "part")), strict=True):
        assert (line["task"], line["loss"]) == (other["task"], other["loss"])


@pytest.mark.parametrize(("least", "steps"), [(6, [2, 6, 2]), (9, [2, 8, 0]), (1, [2, 5, 3])])
def test_a_minimum_of_steps_is_taken_from_later_stages(least, steps, tmp_path, caplog):
    ranking = dataclasses.replace(STAGES["ranking"], min_steps=least)
    trainer = make_trainer(tmp_path, config_of(ranking=ranking))
    assert trainer.train()
    assert [stage.steps for stage in trainer._stages] == steps
    assert ("stage all had no step" in caplog.text) == (0 in steps)


def test_a_stage_for_which_nothing_is_left_is_passed_over(tmp_path):
    first = dataclasses.replace(STAGES["average"], min_steps=8)
    trainer = make_trainer(tmp_path, config_of(average=first))
    assert trainer.train()
    assert [stage.steps for stage in trainer._stages] == [8, 0, 2]


def test_minutes_are_divided_as_steps_are(tmp_path, monkeypatch):
    # Every step takes a minute, and the budget is ten.
    trainer = make_trainer(tmp_path, config_of("training.steps=0", "training.minutes=10"))
    monkeypatch.setattr(
        trainer, "_agree", lambda _: setattr(trainer, "seconds", 60.0 * trainer.step)
    )
    assert trainer.train()
    assert [stage.steps for stage in trainer._stages] == [2, 5, 3]
    assert [stage.begin for stage in trainer._stages] == [
        Budget(0, 0),
        Budget(2, 120),
        Budget(7, 420),
    ]


def test_shares_are_given_or_an_equal_part_of_what_is_left():
    def shares(**stages):
        given = {name: StageConfig(share=share) for name, share in stages.items()}
        return ExperimentConfig(stages=given).stage_shares

    assert shares(a=None) == {"a": 1}
    assert shares(a=0.5, b=None, c=None) == {"a": 0.5, "b": 0.25, "c": 0.25}
    assert shares(a=0.0, b=None) == {"b": 1}
    for wrong in ({}, {"a": 0.5}, {"a": 0.5, "b": 0.6}, {"a": 1.0, "b": None}, {"a": 0.0}):
        with pytest.raises(UserError, match="must add up to 1"):
            shares(**wrong)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"tasks": ("inferense",)}, "did you mean inference"),
        ({"tasks": ("inference",)}, "tasks.translation_ranking is in no stage"),
        ({"tasks": ("distillation",)}, "needs a task whose weight is above 0"),
        ({"part": "half"}, "must be whole or average, got half"),
        ({"share": 2.0}, "must be from 0 to 1"),
    ],
)
def test_stages_that_cannot_be_are_refused(stage, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(TWO_TASKS, stages={"one": StageConfig(**stage)})


def test_the_share_of_a_new_name_adds_a_stage_after_the_others():
    # The share may come after other settings of the stage. What it leaves goes to `whole`, whose
    # share is auto: 1 - 0.25 = 0.75.
    config = apply_overrides(TWO_TASKS, ["stages.more.tasks=inference", "stages.more.share=0.25"])
    assert config.stage_shares == {"whole": 0.75, "more": 0.25}
    assert config.stages["more"] == StageConfig(share=0.25, tasks=("inference",))
    assert apply_overrides(config, ["stages.more.share=0"]).stage_shares == {"whole": 1.0}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("stages.more.tasks=inference", r"to add a stage, set stages\.more\.share as well"),
        ("stages.average.share=0.5", r"needs .*bow_residual=true; set stages\.average\.share=0"),
        ("stages.avrage.share=0.5", "did you mean average"),
        ("training.bow_share=0.4", "is now stages.average.share"),
        ("training.bow_steps=9", "is now stages.average.min_steps"),
        ("training.bow_batch=9", "is now stages.average.examples_per_batch"),
        ("training.bow_rate=0.1", "is now stages.whole.earlier_rate"),
    ],
)
def test_settings_that_cannot_be_are_told_in_a_line(setting, message):
    with pytest.raises(UserError, match=message) as error:
        tiny_config(setting)
    assert "\n" not in str(error.value)

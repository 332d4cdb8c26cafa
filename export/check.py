"""Checks that exported models do what users of sentence encoders rely on.

    python export/check.py exported/en-es

Each model is loaded in a bare process, called in every form, by threads, thousands of times, by each of its
signatures and with hostile strings, and fine-tuned. The exit status is 1 if a check fails.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.errors import UserError
from xling_tf.program import quiet_start, run
from xling_tf.savedmodel.saved_models import find_model, require_saved_model

_SENTENCES = flags.DEFINE_integer("sentences", 10_000, "Number of texts in the large call.", lower_bound=1)


def main(*models: str) -> None:
    """Checks the models that the command line names."""
    if not (folders := [find_model(model) for model in models]):
        raise UserError("expected folders of exported models, got none")
    with quiet_start():
        import tensorflow as tf

        tf.config.list_physical_devices()  # prints notes about missing GPUs
        import model_checks
    for folder in folders:
        require_saved_model(folder)
    outcomes = []
    for folder in folders:
        print(folder, flush=True)
        subject = model_checks.Subject(folder, _SENTENCES.value)
        for check in model_checks.CHECKS:
            outcomes.append(outcome := model_checks.run_check(check, subject))
            details = outcome["text"] or ", ".join(f"{k} {v}" for k, v in outcome["measured"].items())
            name, seconds = outcome["check"].replace("_", " "), outcome["seconds"]
            print(f"{outcome['status']:7} {seconds:7.1f} s  {name}: {details}", flush=True)
    if any(outcome["status"] == "failed" for outcome in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    run(main, "the same command starts again", extra="hub", takes_files=True)

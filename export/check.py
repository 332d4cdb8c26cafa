"""Checks that SavedModels keep the contracts of sentence encoders: ours, and published modules.

    python export/check.py exported/en-es
    python export/check.py exported/en-es exported/qa --json checked.json

Two checks take minutes on large models: that of one call with 100,000 sentences, and that of 2,000 calls.
--sentences 1000 shortens the first. The exit status is 1 where a check has failed.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.conformance.outcome import Outcome
from xling_tf.errors import UserError, one_line_errors, parse_flags_and_files, quiet_start

_JSON = flags.DEFINE_string("json", None, "File for the outcomes, with versions and the machine.")
_SENTENCES = flags.DEFINE_integer(
    "sentences", 100_000, "Sentences of the one large call.", lower_bound=1
)
_CALLS = 2_000


def main(argv: list[str]) -> None:
    """Checks what the command line names."""
    with one_line_errors("the same command starts anew"):
        folders = [Path(argument) for argument in argv[1:]]
        if not folders:
            raise UserError("folders of exported models are expected, but none came; name them")
        with quiet_start():
            from xling_tf.conformance.report import (
                format_outcome,
                format_summary,
                has_failed,
                write_json,
            )
            from xling_tf.conformance.running import require_model, run_suite
        for folder in folders:
            require_model(folder)
        outcomes: dict[Path, list[Outcome]] = {}
        for folder in folders:
            print(folder, flush=True)
            outcomes[folder] = []
            for outcome in run_suite(folder, sentences=_SENTENCES.value, calls=_CALLS):
                outcomes[folder].append(outcome)
                print(format_outcome(outcome), flush=True)
            print(format_summary(folder.resolve().name, outcomes[folder]), flush=True)
        if _JSON.value is not None:
            write_json(Path(_JSON.value), outcomes)
    if any(map(has_failed, outcomes.values())):
        sys.exit(1)


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags_and_files)

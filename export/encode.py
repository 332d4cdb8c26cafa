r"""Encodes files of texts, of any size, into files of vectors.

    xling-tf encode --model exported/en-es --input 'corpus/*.parquet' --output vectors \
        --text_column sentence

reads Parquet, JSON lines, TSV, CSV or plain lines, local or remote, and writes shards with the
vectors and the other columns. If it is killed, the same command continues.
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from typing import Any, get_args

from absl import flags

from xling_tf.client.quantization import Precision
from xling_tf.models import IN_THE_BOX
from xling_tf.program import progress, quiet_start, report_default_model, run

_MODEL = flags.DEFINE_string(
    "model", IN_THE_BOX, "The exported model, in any form that xling_tf.load opens."
)
_INPUT = flags.DEFINE_multi_string(
    "input",
    None,
    "Files, local or remote (s3://...), also with wildcards. Repeatable.",
    required=True,
)
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the shards.", required=True)
_OPTIONS = (
    flags.DEFINE_string("text_column", "text", "Name of the text column."),
    flags.DEFINE_list("columns", None, "Names of the columns to keep; default: all."),
    flags.DEFINE_bool(
        "header",
        True,
        "TSV and CSV do not begin with names of columns, which are then f0, f1, ...",
    ),
    flags.DEFINE_enum("precision", "float32", get_args(Precision), "Precision of the vectors."),
    flags.DEFINE_integer("truncate_dim", None, "Number of dimensions to keep.", lower_bound=1),
    flags.DEFINE_string("prompt_name", None, "Name of one of the model's prompts, such as query."),
    flags.DEFINE_bool("skip_damaged", False, "Leaves out damaged rows and files, and counts them."),
)
_ROWS_PER_SHARD = flags.DEFINE_integer(
    "rows_per_shard", 1 << 17, "Rows of each shard.", lower_bound=1
)
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "Estimates rows, hours and bytes from the first rows, and exits."
)


def main() -> None:
    """Encodes what the flags describe, and prints the counts."""
    report_default_model(flags.FLAGS["model"])
    with quiet_start():
        from xling_tf.bulk.vector_files import encode_files, estimate
    options: dict[str, Any] = {flag.name: flag.value for flag in _OPTIONS}
    if _DRY_RUN.value:
        guess = estimate(_MODEL.value, _INPUT.value, **options)
        print(
            f"about {guess.rows:,.0f} rows, {guess.seconds / 3600:.2g} hours (by "
            f"{len(guess.sample)} rows), {guess.num_bytes / 1e9:.2g} GB of vectors of "
            f"{guess.sample.shape[1]} {guess.sample.dtype} numbers"
        )
        return
    with progress("encoding") as report:
        counts = encode_files(
            _MODEL.value,
            _INPUT.value,
            _OUTPUT.value,
            rows_per_shard=_ROWS_PER_SHARD.value,
            report=report,
            **options,
        )
    print(f"{_OUTPUT.value}: {', '.join(f'{count} {name}' for name, count in counts.items())}")


if __name__ == "__main__":
    run(main, "the same command continues", extra="bulk")

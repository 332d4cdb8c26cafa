"""Runs a preparation: the units that are not done yet, by Beam; then the corpus appears."""

import re
from collections.abc import Callable, Sequence

import apache_beam as beam
from absl import logging
from apache_beam.metrics.metric import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from xling_tf.errors import UserError
from xling_tf.pipelines.common import Account, Preparation
from xling_tf.pipelines.storage import Input
from xling_tf.pipelines.units import Job

# Runners raise what a worker raised as text in an error of their own.
_END = r"([^\n]*?)(?: \[while running|\n|$)"
_USER_ERROR = re.compile(r"UserError: " + _END)
_SYSTEM_ERROR = re.compile(r"(?:\w*IOError: |(?=\[Errno ))" + _END)


def prepare(
    preparation: Preparation,
    *,
    inputs: Sequence[Input],
    output: str,
    num_shards: int,
    options: PipelineOptions,
) -> Account:
    """Prepares a corpus, or finds it done.

    The shards `<output>/<corpus>-00000-of-000NN<suffix>` appear together at the end, in place of
    earlier shards of that corpus, with the account in `<output>/preparation.json`. Until then, what
    is done lies in a hidden folder of the output folder.

    Args:
        preparation: What to do.
        inputs: The raw files, as `storage.find_inputs` gives them.
        output: The data folder, on any file system that Beam and all workers reach.
        num_shards: How many shards to write.
        options: Beam's.

    Returns:
        The account of all units, also of those that earlier runs did.

    Raises:
        UserError: Nothing usable is in the inputs, or a disk or a worker gave up.
    """
    job = Job(preparation=preparation, inputs=tuple(inputs), output=output, num_shards=num_shards)
    earlier = job.published()
    if earlier is not None:
        logging.info("%s is prepared already", job.corpus_path)
        return earlier
    _run_units("Extract", job.extract, job.waiting_inputs(), options)
    _run_units("Combine", job.combine, job.waiting_shards(), options)
    account = job.account()
    if not account.counts["lines written"]:
        found = ", ".join(f"{count} {name}" for name, count in sorted(account.counts.items()))
        damage = "".join(f"; {path}: {fault}" for path, fault in account.damaged.items())
        raise UserError(
            f"the inputs must hold text for {preparation.corpus}, but nothing was kept of them: "
            f"{found or 'no record'}{damage}; name other files with --input"
        )
    job.publish(account)
    return account


class _Work(beam.DoFn):
    """Does a unit of work and shows its counts among the runner's metrics."""

    def __init__(self, work: Callable[[int], Account]) -> None:
        self._work = work

    def process(self, unit: int) -> None:
        """Does the unit of that number."""
        for outcome, count in self._work(unit).counts.items():
            Metrics.counter("preparation", outcome).inc(count)


def _run_units(
    name: str, work: Callable[[int], Account], units: Sequence[int], options: PipelineOptions
) -> None:
    if not units:
        return
    logging.info("%s: %d units of work", name, len(units))
    try:
        with beam.Pipeline(options=options) as pipeline:
            # Without the reshuffle a runner may give all units to one worker.
            _ = (
                pipeline
                | "Units" >> beam.Create(units)
                | beam.Reshuffle()
                | name >> beam.ParDo(_Work(work))
            )
    except Exception as error:
        if translation := _translated(error):
            raise translation from error
        raise


def _translated(error: Exception) -> BaseException | None:
    text = f"{type(error).__name__}: {error}"
    if KeyboardInterrupt.__name__ in text:
        return KeyboardInterrupt()
    if mistakes := _USER_ERROR.findall(text):
        return UserError(mistakes[-1])
    if causes := _SYSTEM_ERROR.findall(text):
        return UserError(
            f"files must be readable and writable while text is prepared, but: {causes[-1]}; "
            "mend that and start the same command again, which goes on where this one stopped"
        )
    return None

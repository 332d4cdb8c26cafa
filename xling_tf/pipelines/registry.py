"""The subcommands of data/main.py by name."""

from collections.abc import Mapping

from xling_tf.pipelines import bitext, reddit, snli, wikipedia
from xling_tf.pipelines.command import Command

COMMANDS: Mapping[str, Command] = {
    "reddit": reddit.COMMAND,
    "wikipedia": wikipedia.COMMAND,
    "snli": snli.COMMAND,
    "bitext": bitext.COMMAND,
}

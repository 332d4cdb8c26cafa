"""Translated text that Debian and Ubuntu packages carry, fetched by apt and prepared."""

from xling_tf.corpora.debian.prepare import default_targets, prepare_default_corpora

__all__ = ["default_targets", "prepare_default_corpora"]

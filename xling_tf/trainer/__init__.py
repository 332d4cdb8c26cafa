"""Training: from an experiment's config and corpora to an exported model."""

"""Whether a SavedModel of a sentence encoder keeps the contracts that its users rely on."""

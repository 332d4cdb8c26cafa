"""What other libraries ask of a model."""

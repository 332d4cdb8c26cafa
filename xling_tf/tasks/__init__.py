"""Training tasks: columns of text, a head on the shared encoder, per-example losses."""

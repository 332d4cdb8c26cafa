"""Training tasks: the texts they encode, their heads on the shared encoder, and their losses."""

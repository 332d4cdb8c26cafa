"""Arrays of vectors: checked, compared, searched, mined, and held in fewer bytes."""

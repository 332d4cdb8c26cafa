"""What only a paper's baseline needs; rows of the registries name it, and nothing imports it."""

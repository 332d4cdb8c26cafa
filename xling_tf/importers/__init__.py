"""Reading of models that other libraries have saved."""

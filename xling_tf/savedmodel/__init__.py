"""SavedModels that are called like the published modules on TF Hub."""

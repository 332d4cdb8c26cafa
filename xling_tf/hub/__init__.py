"""SavedModels that mirror the modules on TF Hub: built, exported, loaded."""
